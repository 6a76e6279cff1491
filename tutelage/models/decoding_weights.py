"""Weights in the form that reading one token at a time wants.

A linear layer spends a decoding step reading its weights. For as long as a rollout takes, each works on a copy of
them instead: with the adapters folded in (W + Σ scale · B A, so that they cost nothing per token), cast once to the
precision of the arithmetic, and on a CPU laid out in the blocks that oneDNN reads, which is two to three times as
fast as the plain layout for a few dozen rows. The weights themselves are never touched, so nothing has to be taken
out of them again. oneDNN's layers also give a row the same bits whatever the number of rows beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from tutelage.models.backbone import inner
from tutelage.models.logprobs import Head
from tutelage.models.memory import available_memory

Layer = Callable[[Tensor], Tensor]

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that read one tensor, which is faster as one product. One that is given another still computes its own."""


@contextmanager
@torch.no_grad()
def decoding_weights(model: nn.Module, head: Head, dtype: torch.dtype) -> Iterator[Head]:
    """Inside, the linear layers of `model` run on copies of its weights as they are now; yields the head to match.

    The copies take up to as much memory as the weights, and are given back at the end. None are made where that
    would be more than half of what is left: decoding then takes longer, and is the same.
    """
    whole = inner(model)
    replaced: list[nn.Module] = []
    size = sum(weight.numel() * dtype.itemsize for weight in whole.parameters())
    try:
        if size < available_memory(next(whole.parameters()).device) / 2:
            _replace(whole, dtype, replaced)
        output = whole.get_output_embeddings()
        yield replace(head, module=output) if head.weight is not None and output in replaced else head
    finally:
        for module in replaced:
            del module.forward


def _replace(module: nn.Module, dtype: torch.dtype, replaced: list[nn.Module]) -> None:
    """Give every linear layer inside `module` its faster form, a layer with its adapters as one."""
    for names in SIBLINGS:
        siblings = [part for name in names if isinstance(part := getattr(module, name, None), nn.Module)]
        if len(siblings) == len(names):
            for part, layer in zip(siblings, _as_one(siblings, dtype), strict=False):
                _put(part, layer, replaced)
    for part in module.children():
        if "forward" in vars(part):
            continue  # met before, or changed by somebody else
        alone = _faster(part, dtype)
        if alone is None:
            _replace(part, dtype, replaced)
        else:
            _put(part, alone, replaced)


def _put(module: nn.Module, layer: Layer, replaced: list[nn.Module]) -> None:
    module.forward = layer
    replaced.append(module)


def _faster(module: nn.Module, dtype: torch.dtype) -> Layer | None:
    """The faster form of a linear layer, where there is one."""
    found = _matrix(module)
    if found is None:
        return None
    weight, bias, own = found
    if _packable(weight, dtype):
        return packed(weight, bias, dtype)
    return None if own and weight.dtype == dtype else _cast(weight, bias, dtype)


def _matrix(module: nn.Module) -> tuple[Tensor, Tensor | None, bool] | None:
    """(weight [out, in], bias, whether that is the module's own parameter) of a module that is one matrix."""
    if type(module) is nn.Linear and module.weight.is_floating_point():
        return module.weight, module.bias, True
    if type(module) is Conv1D:
        return module.weight.T, module.bias, False
    if not isinstance(module, LoraLinear) or module.merged:
        return None
    base = _matrix(module.get_base_layer())
    adapters = [] if module.disable_adapters else [a for a in module.active_adapters if a in module.lora_A]
    if base is None or any(a in module.lora_variant or module.lora_bias[a] for a in adapters):
        return None  # DoRA and its kin are more than a sum
    weight, bias, own = base
    for adapter in adapters:
        delta = module.get_delta_weight(adapter)
        weight, own = weight + (delta.T if module.fan_in_fan_out else delta), False
    return weight, bias, own


# Forms ----------------------------------------------------------------------------------------------------------------


def packable(dtype: torch.dtype) -> bool:
    """Whether oneDNN has layers of this precision for this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _packable(weight: Tensor, dtype: torch.dtype) -> bool:
    return weight.device.type == "cpu" and packable(dtype)


def packed(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Layer:
    """x Wᵀ + b on a copy of W in oneDNN's layout."""
    blocks = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous(), 16)
    shift = None if bias is None else bias.to(dtype)
    run = torch.ops.mkldnn._linear_pointwise

    def layer(x: Tensor) -> Tensor:
        y: Tensor = run(x.to(dtype), blocks, shift, "none", [], "")
        return y

    return layer


def _cast(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Layer:
    """x Wᵀ + b on a copy of W in another precision, or with adapters folded in."""
    weight, shift = weight.to(dtype), None if bias is None else bias.to(dtype)
    return lambda x: nn.functional.linear(x.to(dtype), weight, shift)


def _as_one(modules: Sequence[nn.Module], dtype: torch.dtype) -> list[Layer]:
    """Linear layers over the same features as one product of which each takes its part; none where that cannot be."""
    found = [_matrix(module) for module in modules if "forward" not in vars(module)]
    matrices = [each for each in found if each is not None and _packable(each[0], dtype)]
    if len(matrices) < len(modules) or len({weight.shape[1] for weight, _, _ in matrices}) > 1:
        return []
    biases = [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias, _ in matrices]
    plain = all(bias is None for _, bias, _ in matrices)
    weights = [weight for weight, _, _ in matrices]
    product = packed(torch.cat(weights), None if plain else torch.cat(biases), dtype)
    once = _Once(product, [len(weight) for weight in weights])
    return [partial(once.part, index) for index in range(len(weights))]


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
