"""Products in bfloat16 on panels, as a decoding step computes them: the bits of a row do not depend on other rows."""

from collections.abc import Sequence
from ctypes import byref
from functools import cache

import torch
from jaxtyping import BFloat16, Float, Float32, Shaped
from torch import Tensor

from tutelage.engines.cpu.native.bindings import LANES, is_available, library, thread_pool, warn_disabled
from tutelage.engines.cpu.native.structs import Matrix

TILE = 32
"""Features of a tile: panels in bfloat16 are padded to a multiple of it."""


def supports(features: int) -> bool:
    """Whether the kernels are available and agree with torch here, and take rows of so many features."""
    return features % 2 == 0 and is_available() and _agrees_with_torch()


def panel_pairs(features: int) -> int:
    """Pairs of numbers of a panel in bfloat16, which is padded to whole tiles (see `structs.hpp`)."""
    return LANES * -(-features // TILE) * TILE // 2


def pack(weight: Float[Tensor, "out in"], pairs: Shaped[Tensor, " pairs"], step: int) -> None:
    """Copy W, in float32 or bfloat16, into panels of `pairs` that begin `step` pairs apart."""
    weight, functions = weight.contiguous(), library()
    copy = functions.tutelage_copy_half if weight.dtype == torch.bfloat16 else functions.tutelage_pack_half
    copy(byref(thread_pool()), weight.data_ptr(), *weight.shape, pairs.data_ptr(), step)


class PanelLinear:
    """Linear layers over the same features, one below the other, on panels: x ↦ x Wᵀ + b.

    With `columns` beside W there are as many more features. The number of all features is even.
    """

    def __init__(
        self,
        weights: Sequence[Float[Tensor, "_ in"]],
        bias: Float32[Tensor, " out"] | None = None,
        columns: Float[Tensor, "out more"] | None = None,
    ) -> None:
        known = weights[0].shape[1]
        if any(len(weight) % LANES for weight in weights[:-1]) or (columns is not None and known % TILE):
            weights = [torch.cat(list(weights))]
        if columns is not None and known % TILE:
            weights, columns = [torch.cat((weights[0], columns.to(weights[0].dtype)), 1)], None
        out, features = sum(map(len, weights)), weights[0].shape[1]
        features += 0 if columns is None else columns.shape[1]
        step = panel_pairs(features)
        self.bias = None if bias is None else bias.float().contiguous()
        self.panels = torch.empty(-(-out // LANES) * step, dtype=torch.int32)
        start = 0
        for weight in weights:
            pack(weight.detach(), self.panels[start // LANES * step :], step)
            start += len(weight)
        if columns is not None:
            pack(columns.detach(), self.panels[known // 2 * LANES :], step)
        address = None if self.bias is None else self.bias.data_ptr()
        self.matrix = Matrix(self.panels.data_ptr(), address, out=out, in_=features, half=True)

    def __call__(self, x: BFloat16[Tensor, "N in"]) -> BFloat16[Tensor, "N out"]:
        """The product, rounded."""
        y = x.new_empty(len(x), self.matrix.out)
        self._compute(x, y, None)
        return y

    def unrounded(self, x: BFloat16[Tensor, "N in"]) -> Float32[Tensor, "N out"]:
        """The product in float32."""
        y = x.new_empty(len(x), self.matrix.out, dtype=torch.float32)
        self._compute(x, None, y)
        return y

    def _compute(self, x: Tensor, rounded: Tensor | None, exact: Tensor | None) -> None:
        x = x.contiguous()
        lines, features = (-(-size // LANES) * LANES for size in x.shape)
        blocks = torch.empty(lines * features)
        results = (None if y is None else y.data_ptr() for y in (rounded, exact))
        library().tutelage_half_product(
            byref(thread_pool()), byref(self.matrix), len(x), x.data_ptr(), *results, blocks.data_ptr()
        )


@cache
def _agrees_with_torch() -> bool:
    """Whether a product agrees with torch in double precision, on this machine."""
    wave = torch.arange(54 * 70, dtype=torch.float32).mul(0.7).sin().bfloat16()
    x, weight, bias = wave[: 37 * 70].view(37, 70), wave[-17 * 70 :].view(17, 70), wave[:17].float()
    expected = x.double() @ weight.double().T + bias.double()
    same = all(
        torch.allclose(PanelLinear([w], bias).unrounded(x).double(), expected, atol=1e-4)
        for w in (weight, weight.float())
    )
    if not same:
        warn_disabled("The compiled products in bfloat16 are not used: their results differ from torch's.")
    return same
