"""Weights in the form that reading one token at a time wants.

A linear layer spends a decoding step reading its weights. For as long as a rollout takes, each works on a copy of
them instead: with the adapters folded in (W + Σ scale · B A, so that they cost nothing per token), cast once to the
precision of the arithmetic, and on a CPU laid out in the blocks that its library reads. The weights themselves are
never touched, so nothing has to be taken out of them again.

oneDNN's blocks serve any number of lines and every processor. MKL's serve one number and processors by Intel, where
they take a fifth to a third less time (see bench/NOTES.md): then prompts are read with the weights as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from tutelage.engines.cpu.memory import hand_back_freed_memory
from tutelage.engines.logprobs import Head
from tutelage.engines.memory import available_memory
from tutelage.engines.network import inner
from tutelage.errors import TutelageError

Layer = Callable[[Tensor], Tensor]
Matrix = tuple[Tensor, Tensor | None]
"""W [out, in] and b [out]"""

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that read one tensor, which is faster as one product. One that is given another still computes its own."""
CPUINFO = Path("/proc/cpuinfo")
ANY = 0
"""The number of lines of a layout that serves any number."""
SPARE = 64
"""Up to here a step takes hardly less time for fewer lines, since it reads the same weights."""


@contextmanager
def decoding_weights(model: nn.Module, head: Head, dtype: torch.dtype) -> Iterator["DecodingWeights"]:
    """Inside, the linear layers of `model` can be laid out for decoding with its weights as they are now.

    The copies take up to as much memory as the weights, and are given back at the end. None are made where that
    would be more than half of what is left: decoding then takes longer, and is the same.
    """
    weights = DecodingWeights(inner(model), head, dtype)
    try:
        yield weights
    finally:
        weights.take_back()
        weights.native = None


class DecodingWeights:
    """The layers of a model on copies of their weights. `version` changes whenever they are others than before."""

    def __init__(self, whole: Any, head: Head, dtype: torch.dtype) -> None:
        self.whole, self.dtype, self.own_head = whole, dtype, head
        size = sum(weight.numel() * dtype.itemsize for weight in whole.parameters())
        device = next(whole.parameters()).device
        self.fits = size < available_memory(device) / 2
        self.by_lines = device.type == "cpu" and dtype == torch.float32 and _mkl_is_faster()
        self.version = 0
        self.joint: dict[nn.Module, Layer] = {}
        """The products of siblings, by the module that they are in."""
        self.native: Any = None
        """What `models.native` has laid out for itself."""
        self._replaced: list[nn.Module] = []
        self._laid_out: int | None = None

    @property
    def head(self) -> Head:
        """The head to match."""
        output = self.whole.get_output_embeddings()
        laid_out = self.own_head.weight is not None and output in self._replaced
        return replace(self.own_head, module=output) if laid_out else self.own_head

    def for_any(self) -> None:
        """Prepare for any number of lines."""
        self._lay_out(ANY)

    def for_prompts(self) -> None:
        """Prepare for the lines of prompts, which are read but once."""
        if self.by_lines:
            self.take_back()
        else:
            self.for_any()

    def for_answers(self, count: int) -> int:
        """Prepare for a step of that many answers; returns how many lines it should compute instead."""
        enough = lines(count)
        if not self.by_lines:
            self.for_any()
        elif self._laid_out is None or not _is_close(enough, self._laid_out):
            self._lay_out(enough)
        return self._laid_out or enough

    def take_back(self) -> None:
        """Let the layers be as they were."""
        if self._replaced:
            self.version += 1
        for module in self._replaced:
            del module.forward
        self._replaced, self.joint, self._laid_out = [], {}, None

    @torch.no_grad()
    def _lay_out(self, count: int) -> None:
        if count == self._laid_out or not self.fits:
            return
        self.take_back()
        hand_back_freed_memory()  # MKL asks for twice the room that it fills: what was used before would count
        self._laid_out, self.version = count, self.version + 1
        self._replace(self.whole)

    def _replace(self, module: nn.Module) -> None:
        """Give every linear layer inside `module` its faster form, a layer with its adapters as one."""
        for names in SIBLINGS:
            siblings = [part for name in names if isinstance(part := getattr(module, name, None), nn.Module)]
            product = self._as_one(siblings) if len(siblings) == len(names) else None
            if product is not None:
                self.joint[module] = product.product
                for index, part in enumerate(siblings):
                    self._put(part, partial(product.part, index))
        for part in module.children():
            if "forward" in vars(part):
                continue  # met before, or changed by somebody else
            alone = self._faster(part)
            if alone is None:
                self._replace(part)
            else:
                self._put(part, alone)

    def _put(self, module: nn.Module, layer: Layer) -> None:
        module.forward = layer
        self._replaced.append(module)

    def _faster(self, module: nn.Module) -> Layer | None:
        """The faster form of a linear layer, where there is one."""
        found = matrix(module)
        if found is None:
            return None
        weight, bias, own = found
        if _packable(weight, self.dtype):
            return self._packed(weight, bias)
        return None if own and weight.dtype == self.dtype else _cast(weight, bias, self.dtype)

    def _as_one(self, modules: Sequence[nn.Module]) -> "_Once | None":
        """Layers over the same features as one product that each takes its part of; None where that cannot be."""
        found = [matrix(module) for module in modules if "forward" not in vars(module)]
        matrices = [each for each in found if each is not None and _packable(each[0], self.dtype)]
        if len(matrices) < len(modules) or len({weight.shape[1] for weight, _, _ in matrices}) > 1:
            return None
        weights = [weight for weight, _, _ in matrices]
        product = self._packed(
            torch.cat(weights), joint_bias([(weight, bias) for weight, bias, _ in matrices])
        )
        return _Once(product, [len(weight) for weight in weights])

    def _packed(self, weight: Tensor, bias: Tensor | None) -> "Packed":
        weight, bias = weight.to(self.dtype), None if bias is None else bias.to(self.dtype)
        return Panels(weight, bias, self._laid_out) if self._laid_out else Blocks(weight, bias)


def lines(count: int) -> int:
    """How many lines a step computes for `count` answers: the next number of no more than three leading bits.

    oneDNN compiles its layers anew for every number of lines that it meets, in about a millisecond each, and MKL's
    have to be laid out anew; these are eight numbers and four more for each doubling.
    """
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def _is_close(wanted: int, laid_out: int) -> bool:
    """Whether a layout for so many lines serves as well: idle lines against another layout, worth a few steps."""
    return laid_out >= wanted > (laid_out / 2 if laid_out <= SPARE else 0.75 * laid_out)


def is_matrix(module: nn.Module) -> bool:
    """Whether a module is W x + b, with its adapters if it has some."""
    if not isinstance(module, LoraLinear):
        return type(module) is Conv1D or (type(module) is nn.Linear and module.weight.is_floating_point())
    more = any(a in module.lora_variant or module.lora_bias[a] for a in _adapters(module))  # DoRA and its kin
    return not (module.merged or more) and is_matrix(module.get_base_layer())


def matrix(module: nn.Module) -> tuple[Tensor, Tensor | None, bool] | None:
    """(weight [out, in], bias, whether that is the module's own parameter) of a module that is one matrix."""
    if not is_matrix(module):
        return None
    if isinstance(module, nn.Linear):
        return module.weight, module.bias, True
    if isinstance(module, Conv1D):
        return module.weight.T, module.bias, False
    assert isinstance(module, LoraLinear)
    found = matrix(module.get_base_layer())
    assert found is not None
    weight, bias, own = found
    for adapter in _adapters(module):
        delta = module.get_delta_weight(adapter)
        weight, own = weight + (delta.T if module.fan_in_fan_out else delta), False
    return weight, bias, own


def _adapters(module: LoraLinear) -> list[str]:
    return [] if module.disable_adapters else [a for a in module.active_adapters if a in module.lora_A]


def matrix_in(module: nn.Module, dtype: torch.dtype) -> Matrix:
    """`matrix` for a compiled step, in a precision. Raises TutelageError where the module is not one matrix."""
    found = matrix(module)
    if found is None:
        raise TutelageError(
            f"The compiled step does not serve the weights of a {type(module).__name__}. Use --engine plain."
        )
    weight, bias, _ = found
    return weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)


def joint_bias(matrices: Sequence[Matrix]) -> Tensor | None:
    """Every b in a row, zeros where one has none; None where none has."""
    if all(bias is None for _, bias in matrices):
        return None
    return torch.cat([weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in matrices])


# Forms ----------------------------------------------------------------------------------------------------------------


class Packed(Protocol):
    """x Wᵀ + b on a copy of W."""

    def __call__(self, x: Tensor) -> Tensor:
        """x Wᵀ + b"""
        ...

    def onto(self, other: Tensor, x: Tensor) -> Tensor:
        """other + x Wᵀ + b"""
        ...


class Blocks:
    """In oneDNN's layout. A row has the same bits whatever the number of rows beside it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)
        self.bias, self.dtype, self.run = bias, weight.dtype, torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: Tensor) -> Tensor:
        """x Wᵀ + b"""
        y: Tensor = self.run(x.to(self.dtype), self.weight, self.bias, "none", [], "")
        return y

    def onto(self, other: Tensor, x: Tensor) -> Tensor:
        """other + x Wᵀ + b"""
        y: Tensor = self.run.binary(x.to(self.dtype), other, self.weight, self.bias, "add")
        return y


class Panels:
    """In MKL's layout for `count` lines, and for no other number."""

    def __init__(self, weight: Tensor, bias: Tensor | None, count: int) -> None:
        self.weight = torch.ops.mkl._mkl_reorder_linear_weight(weight.contiguous(), count)
        self.shape = weight.new_empty(1).expand(weight.shape)  # all that is looked at of the plain weights
        self.bias, self.count, self.run = bias, count, torch.ops.mkl._mkl_linear

    def __call__(self, x: Tensor) -> Tensor:
        """x Wᵀ + b"""
        if x.numel() != self.count * x.shape[-1]:
            raise RuntimeError(f"laid out for {self.count} lines, not for an input of shape {tuple(x.shape)}")
        y: Tensor = self.run(x, self.weight, self.shape, self.bias, self.count)
        return y

    def onto(self, other: Tensor, x: Tensor) -> Tensor:
        """other + x Wᵀ + b"""
        return self(x).add_(other)


@cache
def _mkl_is_faster() -> bool:
    """Whether this is a processor for which MKL is made."""
    if not torch.backends.mkl.is_available() or not hasattr(torch.ops.mkl, "_mkl_linear"):
        return False
    try:
        return "GenuineIntel" in CPUINFO.read_text()
    except OSError:
        return False


def packable(dtype: torch.dtype) -> bool:
    """Whether oneDNN has layers of this precision for this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _packable(weight: Tensor, dtype: torch.dtype) -> bool:
    return weight.device.type == "cpu" and packable(dtype)


def _cast(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Layer:
    """x Wᵀ + b on a copy of W in another precision, or with adapters folded in."""
    weight, shift = weight.to(dtype), None if bias is None else bias.to(dtype)
    return lambda x: linear(x.to(dtype), weight, shift)


class _Once:
    """A product that is computed when one of its parts is asked for, and then given out part by part."""

    def __init__(self, product: Layer, widths: list[int]) -> None:
        self.product, self.widths = product, widths
        self.parts: dict[int, Tensor] = {}
        self.given: tuple[Tensor, int] | None = None

    def part(self, index: int, x: Tensor) -> Tensor:
        """Part `index` of the product with x: of the last one, if that was of this very tensor, unchanged since."""
        same = self.given is not None and self.given[0] is x and self.given[1] == x._version
        if not same or index not in self.parts:
            self.parts = dict(enumerate(self.product(x).split(self.widths, -1)))
            self.given = (x, x._version)
        taken = self.parts.pop(index)
        if not self.parts:
            self.given = None  # the input may be large
        return taken
