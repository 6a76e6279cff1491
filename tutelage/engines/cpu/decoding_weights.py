"""Copies of the weights of linear layers in a layout optimised for decoding one token at a time.

Decoding is bound by reading weights. During a rollout, each linear layer works on a copy: with the adapters merged (W +
Σ scale · B A, at no cost per token), cast once to the dtype of the arithmetic, and on a CPU in the blocked layout of
its library. The original weights never change, so adapters need not be unmerged afterwards.

oneDNN's layout supports any number of lines and every CPU. MKL's layout supports a fixed number of lines and Intel
CPUs, where it takes a fifth to a third less time (see bench/NOTES.md); prompts are then read with the original weights.
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
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.engines.cpu.allocator import release_freed_memory
from tutelage.engines.devices import available_memory
from tutelage.engines.logprobs import Head
from tutelage.engines.network import active_adapters, inner

Layer = Callable[[Tensor], Tensor]
"""A linear layer: [..., in] → [..., out]"""
Matrix = tuple[Float[Tensor, "_ _"], Float[Tensor, " _"] | None]
"""W [out, in] and b [out] of a linear layer."""

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of sibling layers that read the same tensor and are faster as one product. A layer called with another tensor
computes its own product."""
CPUINFO = Path("/proc/cpuinfo")
ANY = 0
"""Marks a layout that supports any number of lines."""
SPARE = 64
"""Number of lines below which the time of a step is nearly constant, since reading the weights dominates."""


@contextmanager
def decoding_weights(model: nn.Module, head: Head, dtype: torch.dtype) -> Iterator["DecodingWeights"]:
    """Context in which the linear layers of `model` can use the decoding layout of their current weights.

    The copies take up to as much memory as the weights and are freed at the end. If they would take more than half of
    available memory, none are created: decoding is slower, with the same result.
    """
    weights = DecodingWeights(inner(model), head, dtype)
    try:
        yield weights
    finally:
        weights.restore()
        weights.native = None


class DecodingWeights:
    """The linear layers of a model on copies of their weights. `version` increases with every change of layout."""

    def __init__(self, whole: Any, head: Head, dtype: torch.dtype) -> None:
        self.whole, self.dtype, self.own_head = whole, dtype, head
        size = sum(weight.numel() * dtype.itemsize for weight in whole.parameters())
        device = next(whole.parameters()).device
        self.fits = size < available_memory(device) / 2
        self.by_lines = device.type == "cpu" and dtype == torch.float32 and _mkl_is_faster()
        self.version = 0
        self.joint: dict[nn.Module, Layer] = {}
        """Joint products of sibling layers, keyed by the containing module."""
        self.native: Any = None
        """The `NativeWeights` of the compiled step; None before its first use."""
        self._replaced: list[nn.Module] = []
        self._laid_out: int | None = None

    @property
    def head(self) -> Head:
        """The output head on the current layout."""
        output = self.whole.get_output_embeddings()
        laid_out = self.own_head.weight is not None and output in self._replaced
        return replace(self.own_head, module=output) if laid_out else self.own_head

    def for_any(self) -> None:
        """Lay the weights out for any number of lines."""
        self._lay_out(ANY)

    def for_prompts(self) -> None:
        """Lay the weights out for reading prompts."""
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
        """Restore the layers' original weights and free the copies."""
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
        release_freed_memory()  # MKL allocates twice the memory that it fills, beside the free heap
        self._laid_out, self.version = count, self.version + 1
        self._replace(self.whole)

    def _replace(self, module: nn.Module) -> None:
        """Replace the `forward` of every linear layer inside `module`, treating a layer with adapters as one."""
        for names in SIBLINGS:
            siblings = [part for name in names if isinstance(part := getattr(module, name, None), nn.Module)]
            product = self._as_one(siblings) if len(siblings) == len(names) else None
            if product is not None:
                self.joint[module] = product.product
                for index, part in enumerate(siblings):
                    self._put(part, partial(product.part, index))
        for part in module.children():
            if "forward" in vars(part):
                continue  # already replaced, or patched by other code
            single = self._laid_out_layer(part)
            if single is not None:
                self._put(part, single)
            elif not isinstance(part, BaseTunerLayer):  # PEFT changes weights inside others, such as fused experts
                self._replace(part)

    def _put(self, module: nn.Module, layer: Layer) -> None:
        module.forward = layer
        self._replaced.append(module)

    def _laid_out_layer(self, module: nn.Module) -> Layer | None:
        """A linear layer in the decoding layout; None if that is no faster or the module is not linear."""
        result = matrix(module)
        if result is None:
            return None
        weight, bias, own = result
        if _can_be_laid_out(weight, self.dtype):
            return self._laid_out_product(weight, bias)
        return None if own and weight.dtype == self.dtype else _cast(weight, bias, self.dtype)

    def _as_one(self, modules: Sequence[nn.Module]) -> "_SiblingProduct | None":
        """Layers with the same input as one product; None if one of them cannot be laid out."""
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

    oneDNN recompiles layers for every number of lines (about 1 ms each), and MKL's have to be laid out again. Rounding
    leaves eight small counts and four per doubling.
    """
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def _is_close(wanted: int, laid_out: int) -> bool:
    """Whether a layout for `laid_out` lines is used for `wanted` lines: a few idle lines cost less than another
    layout."""
    return laid_out >= wanted > (laid_out / 2 if laid_out <= SPARE else 0.75 * laid_out)


def is_matrix(module: nn.Module) -> bool:
    """Whether a module, together with its adapters, computes W x + b."""
    if not isinstance(module, LoraLinear):
        return type(module) is Conv1D or (type(module) is nn.Linear and module.weight.is_floating_point())
    more = any(a in module.lora_variant or module.lora_bias[a] for a in active_adapters(module))  # DoRA and others
    return not (module.merged or more) and is_matrix(module.get_base_layer())


def matrix(module: nn.Module) -> tuple[Float[Tensor, "out in"], Float[Tensor, " out"] | None, bool] | None:
    """W, b, and whether W is the module's own parameter; None if the module is not one matrix."""
    if not is_matrix(module):
        return None
    if isinstance(module, nn.Linear):
        return module.weight, module.bias, True
    if isinstance(module, Conv1D):
        return module.weight.T, module.bias, False
    assert isinstance(module, LoraLinear)
    base = matrix(module.get_base_layer())
    assert base is not None
    weight, bias, own = base
    for adapter in active_adapters(module):
        parts = (cast(nn.Linear, each[adapter]) for each in (module.lora_A, module.lora_B))
        a, b = (part.weight.to(weight.dtype) for part in parts)
        weight, own = torch.addmm(weight, b, a, alpha=module.scaling[adapter]), False
    return weight, bias, own


def matrix_of(module: nn.Module) -> Matrix:
    """W and b of a module, for the compiled step. Raises TutelageError if the module is not one matrix."""
    result = matrix(module)
    if result is None:
        raise TutelageError(
            f"The compiled step does not serve the weights of a {type(module).__name__}. Use --engine plain."
        )
    weight, bias, _ = result
    return weight.detach(), None if bias is None else bias.detach()


def joint_bias(matrices: Sequence[Matrix]) -> Float[Tensor, " total"] | None:
    """The concatenated biases, with zeros for a matrix without bias; None if no matrix has a bias."""
    if all(bias is None for _, bias in matrices):
        return None
    return torch.cat([weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in matrices])


# Layouts --------------------------------------------------------------------------------------------------------------


class OneDnnLinear:
    """A linear layer in oneDNN's layout. The result for a row is bit-identical for any number of rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)
        self.bias, self.dtype, self.run = bias, weight.dtype, torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: Float[Tensor, "*lines in"]) -> Float[Tensor, "*lines out"]:
        """x Wᵀ + b"""
        y: Tensor = self.run(x.to(self.dtype), self.weight, self.bias, "none", [], "")
        return y

    def plus(self, other: Float[Tensor, "*lines out"], x: Float[Tensor, "*lines in"]) -> Float[Tensor, "*lines out"]:
        """other + x Wᵀ + b"""
        y: Tensor = self.run.binary(x.to(self.dtype), other, self.weight, self.bias, "add")
        return y


class MklLinear:
    """A linear layer in MKL's layout, for exactly `count` lines."""

    def __init__(self, weight: Tensor, bias: Tensor | None, count: int) -> None:
        self.weight = torch.ops.mkl._mkl_reorder_linear_weight(weight.contiguous(), count)
        self.shape = weight.new_empty(1).expand(weight.shape)  # MKL reads only the shape of the plain weights
        self.bias, self.count, self.run = bias, count, torch.ops.mkl._mkl_linear

    def __call__(self, x: Float[Tensor, "*lines in"]) -> Float[Tensor, "*lines out"]:
        """x Wᵀ + b"""
        if x.numel() != self.count * x.shape[-1]:
            raise RuntimeError(f"laid out for {counted(self.count, 'line')}, but the input has shape {tuple(x.shape)}")
        y: Tensor = self.run(x, self.weight, self.shape, self.bias, self.count)
        return y

    def plus(self, other: Float[Tensor, "*lines out"], x: Float[Tensor, "*lines in"]) -> Float[Tensor, "*lines out"]:
        """other + x Wᵀ + b"""
        return self(x).add_(other)


@cache
def _mkl_is_faster() -> bool:
    """Whether this build of torch supports MKL's layout and the CPU is made by Intel."""
    if not torch.backends.mkl.is_available() or not hasattr(torch.ops.mkl, "_mkl_linear"):
        return False
    try:
        return "GenuineIntel" in CPUINFO.read_text()
    except OSError:
        return False


def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN supports linear layers in `dtype` on this CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


def _can_be_laid_out(weight: Tensor, dtype: torch.dtype) -> bool:
    return weight.device.type == "cpu" and has_onednn(dtype)


def _cast(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Layer:
    """x Wᵀ + b on a copy of W in another dtype or with merged adapters."""
    weight, shift = weight.to(dtype), None if bias is None else bias.to(dtype)
    return lambda x: linear(x.to(dtype), weight, shift)


class _SiblingProduct:
    """The joint product of sibling layers, computed when the first sibling is called; each takes its slice."""

    def __init__(self, product: Layer, widths: list[int]) -> None:
        self.product, self.widths = product, widths
        self.parts: dict[int, Tensor] = {}
        self.input: tuple[Tensor, int] | None = None  # input tensor of the product, and its version counter

    def part(self, index: int, x: Tensor) -> Tensor:
        """Slice `index` of the product with x, computed unless cached for this unchanged tensor."""
        same = self.input is not None and self.input[0] is x and self.input[1] == x._version
        if not same or index not in self.parts:
            self.parts = dict(enumerate(self.product(x).split(self.widths, -1)))
            self.input = (x, x._version)
        taken = self.parts.pop(index)
        if not self.parts:
            self.input = None  # it may be large
        return taken
