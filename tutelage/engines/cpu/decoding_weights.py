"""Copies of the weights of linear layers in a layout for decoding, which reads one token at a time.

A linear layer spends a decoding step reading its weights. During a rollout, each works on a copy of them instead: with
the adapters merged (W + Σ scale · B A, so that they cost nothing per token), cast once to the precision of the
arithmetic, and on a CPU in the blocked layout of its library. The weights themselves are never changed, so
nothing has to be subtracted from them afterwards.

The layout of oneDNN serves any number of lines and every CPU. The layout of MKL serves one number of lines and
CPUs by Intel, where it takes a fifth to a third less time (see bench/NOTES.md); then prompts are read with the
layers' own weights.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.engines.cpu.allocator import release_freed_memory
from tutelage.engines.device_memory import available_memory
from tutelage.engines.logprobs import Head
from tutelage.engines.network import inner

Layer = Callable[[Tensor], Tensor]
"""A linear layer: [..., in] → [..., out]"""
Matrix = tuple[Float[Tensor, "_ _"], Float[Tensor, " _"] | None]
"""W [out, in] and b [out] of a linear layer."""

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that read the same tensor, which are faster as one product. One that is called with another tensor
still computes its own product."""
CPUINFO = Path("/proc/cpuinfo")
ANY = 0
"""Stands for the number of lines of a layout that serves any number."""
SPARE = 64
"""Lines up to which a step takes hardly less time for fewer lines, since it reads the same weights."""


@contextmanager
def decoding_weights(model: nn.Module, head: Head, dtype: torch.dtype) -> Iterator["DecodingWeights"]:
    """Context in which the linear layers of `model` can be laid out for decoding, with the present weights.

    The copies take up to as much memory as the weights, and are freed at the end. No copies are made where they would
    take more than half of the memory that is left: decoding then takes longer, with the same result.
    """
    weights = DecodingWeights(inner(model), head, dtype)
    try:
        yield weights
    finally:
        weights.restore()
        weights.native = None


class DecodingWeights:
    """The linear layers of a model on copies of their weights. `version` changes with every change of layout."""

    def __init__(self, whole: Any, head: Head, dtype: torch.dtype) -> None:
        self.whole, self.dtype, self.own_head = whole, dtype, head
        size = sum(weight.numel() * dtype.itemsize for weight in whole.parameters())
        device = next(whole.parameters()).device
        self.fits = size < available_memory(device) / 2
        self.by_lines = device.type == "cpu" and dtype == torch.float32 and _mkl_is_faster()
        self.version = 0
        self.joint: dict[nn.Module, Layer] = {}
        """The joint products of sibling layers, by the module that contains them."""
        self.native: Any = None
        """The `NativeWeights` of the compiled step, once it was used."""
        self._replaced: list[nn.Module] = []
        self._laid_out: int | None = None

    @property
    def head(self) -> Head:
        """The output head on the present layout."""
        output = self.whole.get_output_embeddings()
        laid_out = self.own_head.weight is not None and output in self._replaced
        return replace(self.own_head, module=output) if laid_out else self.own_head

    def for_any(self) -> None:
        """Lay the weights out for any number of lines."""
        self._lay_out(ANY)

    def for_prompts(self) -> None:
        """Lay the weights out for prompts, which are read only once."""
        if self.by_lines:
            self.restore()
        else:
            self.for_any()

    def for_answers(self, count: int) -> int:
        """Lay the weights out for a step of `count` completions. Returns the number of lines that the step must
        compute."""
        enough = padded_lines(count)
        if not self.by_lines:
            self.for_any()
        elif self._laid_out is None or not _is_close(enough, self._laid_out):
            self._lay_out(enough)
        return self._laid_out or enough

    def restore(self) -> None:
        """Return to the layers' own weights, and free the copies."""
        if self._replaced:
            self.version += 1
        for module in self._replaced:
            del module.forward
        self._replaced, self.joint, self._laid_out = [], {}, None

    @torch.no_grad()
    def _lay_out(self, count: int) -> None:
        if count == self._laid_out or not self.fits:
            return
        self.restore()
        release_freed_memory()  # MKL allocates twice the memory that it fills, in addition to what the heap keeps
        self._laid_out, self.version = count, self.version + 1
        self._replace(self.whole)

    def _replace(self, module: nn.Module) -> None:
        """Replace the `forward` of every linear layer inside `module`, a layer with its adapters as one."""
        for names in SIBLINGS:
            siblings = [part for name in names if isinstance(part := getattr(module, name, None), nn.Module)]
            product = self._as_one(siblings) if len(siblings) == len(names) else None
            if product is not None:
                self.joint[module] = product.product
                for index, part in enumerate(siblings):
                    self._put(part, partial(product.part, index))
        for part in module.children():
            if "forward" in vars(part):
                continue  # replaced already, or modified by other code
            single = self._laid_out_layer(part)
            if single is None:
                self._replace(part)
            else:
                self._put(part, single)

    def _put(self, module: nn.Module, layer: Layer) -> None:
        module.forward = layer
        self._replaced.append(module)

    def _laid_out_layer(self, module: nn.Module) -> Layer | None:
        """A linear layer in the layout for decoding; None if its own form is as good, or it is not linear."""
        found = matrix(module)
        if found is None:
            return None
        weight, bias, own = found
        if _can_be_laid_out(weight, self.dtype):
            return self._laid_out_product(weight, bias)
        return None if own and weight.dtype == self.dtype else _cast(weight, bias, self.dtype)

    def _as_one(self, modules: Sequence[nn.Module]) -> "_SiblingProduct | None":
        """Layers over the same features as one product; None if one of them is no matrix that can be laid out."""
        found = [matrix(module) for module in modules if "forward" not in vars(module)]
        matrices = [each for each in found if each is not None and _can_be_laid_out(each[0], self.dtype)]
        if len(matrices) < len(modules) or len({weight.shape[1] for weight, _, _ in matrices}) > 1:
            return None
        weights = [weight for weight, _, _ in matrices]
        product = self._laid_out_product(
            torch.cat(weights), joint_bias([(weight, bias) for weight, bias, _ in matrices])
        )
        return _SiblingProduct(product, [len(weight) for weight in weights])

    def _laid_out_product(self, weight: Tensor, bias: Tensor | None) -> "OneDnnLinear | MklLinear":
        weight, bias = weight.to(self.dtype), None if bias is None else bias.to(self.dtype)
        return MklLinear(weight, bias, self._laid_out) if self._laid_out else OneDnnLinear(weight, bias)


def padded_lines(count: int) -> int:
    """The number of lines that a step computes for `count` completions: `count` rounded up to three significant bits.

    oneDNN compiles its layers anew for every number of lines, in about a millisecond each, and MKL's have to be laid
    out anew. These are eight numbers, and four more for each doubling.
    """
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def _is_close(wanted: int, laid_out: int) -> bool:
    """Whether a layout for `laid_out` lines serves `wanted` ones: a few idle lines cost less than another layout."""
    return laid_out >= wanted > (laid_out / 2 if laid_out <= SPARE else 0.75 * laid_out)


def is_matrix(module: nn.Module) -> bool:
    """Whether a module, together with its adapters, computes W x + b."""
    if not isinstance(module, LoraLinear):
        return type(module) is Conv1D or (type(module) is nn.Linear and module.weight.is_floating_point())
    more = any(
        a in module.lora_variant or module.lora_bias[a] for a in active_adapters(module)
    )  # DoRA and others
    return not (module.merged or more) and is_matrix(module.get_base_layer())


def matrix(
    module: nn.Module,
) -> tuple[Float[Tensor, "out in"], Float[Tensor, " out"] | None, bool] | None:
    """W, b, and whether W is the module's own parameter; None if the module is not one matrix."""
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
    for adapter in active_adapters(module):
        parts = (cast(nn.Linear, each[adapter]) for each in (module.lora_A, module.lora_B))
        a, b = (part.weight.to(weight.dtype) for part in parts)
        weight, own = torch.addmm(weight, b, a, alpha=module.scaling[adapter]), False
    return weight, bias, own


def active_adapters(module: LoraLinear) -> list[str]:
    """The names of the adapters that a layer computes with; none while adapters are switched off."""
    return [] if module.disable_adapters else [a for a in module.active_adapters if a in module.lora_A]


def matrix_of(module: nn.Module) -> Matrix:
    """W and b of a module, for the compiled step. Raises TutelageError if the module is not one matrix."""
    found = matrix(module)
    if found is None:
        raise TutelageError(
            f"The compiled step does not serve the weights of a {type(module).__name__}. Use --engine plain."
        )
    weight, bias, _ = found
    return weight.detach(), None if bias is None else bias.detach()


def joint_bias(matrices: Sequence[Matrix]) -> Float[Tensor, " total"] | None:
    """The biases one after the other, with zeros for a matrix without one; None if no matrix has one."""
    if all(bias is None for _, bias in matrices):
        return None
    return torch.cat([weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in matrices])


# Layouts --------------------------------------------------------------------------------------------------------------


class OneDnnLinear:
    """A linear layer in oneDNN's layout. The bits of a row do not depend on the number of rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)
        self.bias, self.dtype, self.run = bias, weight.dtype, torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: Float[Tensor, "*lines in"]) -> Float[Tensor, "*lines out"]:
        """x Wᵀ + b"""
        y: Tensor = self.run(x.to(self.dtype), self.weight, self.bias, "none", [], "")
        return y

    def plus(
        self, other: Float[Tensor, "*lines out"], x: Float[Tensor, "*lines in"]
    ) -> Float[Tensor, "*lines out"]:
        """other + x Wᵀ + b"""
        y: Tensor = self.run.binary(x.to(self.dtype), other, self.weight, self.bias, "add")
        return y


class MklLinear:
    """A linear layer in MKL's layout for `count` lines, and for no other number."""

    def __init__(self, weight: Tensor, bias: Tensor | None, count: int) -> None:
        self.weight = torch.ops.mkl._mkl_reorder_linear_weight(weight.contiguous(), count)
        self.shape = weight.new_empty(1).expand(
            weight.shape
        )  # MKL reads the shape of the plain weights and nothing else
        self.bias, self.count, self.run = bias, count, torch.ops.mkl._mkl_linear

    def __call__(self, x: Float[Tensor, "*lines in"]) -> Float[Tensor, "*lines out"]:
        """x Wᵀ + b"""
        if x.numel() != self.count * x.shape[-1]:
            raise RuntimeError(
                f"laid out for {counted(self.count, 'line')}, not for an input of shape {tuple(x.shape)}"
            )
        y: Tensor = self.run(x, self.weight, self.shape, self.bias, self.count)
        return y

    def plus(
        self, other: Float[Tensor, "*lines out"], x: Float[Tensor, "*lines in"]
    ) -> Float[Tensor, "*lines out"]:
        """other + x Wᵀ + b"""
        return self(x).add_(other)


@cache
def _mkl_is_faster() -> bool:
    """Whether this torch has MKL's layout, and this is a CPU by Intel."""
    if not torch.backends.mkl.is_available() or not hasattr(torch.ops.mkl, "_mkl_linear"):
        return False
    try:
        return "GenuineIntel" in CPUINFO.read_text()
    except OSError:
        return False


def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN has linear layers of this precision for this CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _can_be_laid_out(weight: Tensor, dtype: torch.dtype) -> bool:
    return weight.device.type == "cpu" and has_onednn(dtype)


def _cast(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Layer:
    """x Wᵀ + b on a copy of W in another precision, or with merged adapters."""
    weight, shift = weight.to(dtype), None if bias is None else bias.to(dtype)
    return lambda x: linear(x.to(dtype), weight, shift)


class _SiblingProduct:
    """The joint product of sibling layers. It is computed when the first sibling is called, and each takes its part."""

    def __init__(self, product: Layer, widths: list[int]) -> None:
        self.product, self.widths = product, widths
        self.parts: dict[int, Tensor] = {}
        self.input: tuple[Tensor, int] | None = None  # the tensor of the product, and its version counter

    def part(self, index: int, x: Tensor) -> Tensor:
        """Part `index` of the product with x, which is computed unless the last one was of this unchanged tensor."""
        same = self.input is not None and self.input[0] is x and self.input[1] == x._version
        if not same or index not in self.parts:
            self.parts = dict(enumerate(self.product(x).split(self.widths, -1)))
            self.input = (x, x._version)
        taken = self.parts.pop(index)
        if not self.parts:
            self.input = None  # it may be large
        return taken
