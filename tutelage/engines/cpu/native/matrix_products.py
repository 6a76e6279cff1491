"""Matrix products whose rows are bit-identical to those of a decoding step: in float32, and in bfloat16 on panels.

Sums run from the first term to the last for any number of rows, so each row is independent of the others and
bit-identical to a decoding step (`NativeStep`) on the same weights. `multiply` computes outputs, input gradients and
weight gradients in float32; `PanelLinear` computes outputs in bfloat16. A decoding step stores weights as `Panels` in
both cases.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import BFloat16, Float, Float32, Shaped
from torch import Tensor
from torch.nn.functional import pad

from tutelage.engines.cpu.allocator import workspace
from tutelage.engines.cpu.native.bindings import LANES, compute, is_available, size_of, warn_disabled
from tutelage.engines.cpu.native.structs import FloatProduct, Matrix

TILE = 32
"""Features per tile; bfloat16 panels are padded to a multiple of it."""


def multiplies_floats() -> bool:
    """Whether the float32 kernel is available and agrees with torch on this machine."""
    return is_available() and _floats_agree_with_torch()


def supports(features: int) -> bool:
    """Whether the bfloat16 kernels are available, agree with torch on this machine, and support rows of `features`
    features."""
    return features % 2 == 0 and is_available() and _panels_agree_with_torch()


# Float32 --------------------------------------------------------------------------------------------------------------


def multiply(
    a: Float32[Tensor, "M K"],
    b: Float32[Tensor, "K N"],
    into: Float32[Tensor, "M N"] | None = None,
    *,
    bias: Float32[Tensor, " N"] | None = None,
    accumulate: bool = False,
) -> Float32[Tensor, "M N"]:
    """A B + bias, written to `into` if given, or added to it with `accumulate`.

    Transposed views are read in place.
    """
    (rows, depth), columns = a.shape, b.shape[1]
    if into is None:
        into = a.new_empty(rows, columns)
    if not depth or not rows * columns:
        return torch.addmm(into, a, b, beta=int(accumulate), out=into).add_(0.0 if bias is None else bias)
    a, b = _contiguous_one_way(a), _contiguous_one_way(b)
    bias = None if bias is None else bias.contiguous()
    product = FloatProduct(
        *(rows, columns, depth),
        *(a.data_ptr(), *a.stride()),
        *(b.data_ptr(), *b.stride()),
        *(None if bias is None else bias.data_ptr(), into.data_ptr(), into.stride(0), accumulate),
    )
    with workspace(size_of("float_product_workspace", product)) as copies:
        compute("float_product", product, copies)
    return into


def _contiguous_one_way(x: Tensor) -> Tensor:
    """The matrix itself if its rows or columns are contiguous, else a copy."""
    return x if 1 in x.stride() else x.contiguous()


# Panels ---------------------------------------------------------------------------------------------------------------


def panel_floats(features: int, half: bool) -> int:
    """Floats per panel. In bfloat16, panels are padded to whole tiles, and a float holds two elements."""
    return LANES * -(-features // TILE) * TILE // 2 if half else LANES * features


def pack(weight: Float[Tensor, "out in"], panels: Float32[Tensor, " panels"], step: int, *, half: bool = False) -> None:
    """Copy W into panels with a stride of `step` floats."""
    weight = weight.detach()
    if not half or weight.dtype != torch.bfloat16:
        weight = weight.float()
    kernel = "pack" if not half else "copy_half" if weight.dtype == torch.bfloat16 else "pack_half"
    weight = weight.contiguous()
    compute(kernel, weight, *weight.shape, panels, step)


class Panels:
    """Stacked linear layers with a common input on panels: x ↦ x Wᵀ + b. `half`: in bfloat16, for even numbers of
    features.

    With an `adapter`, A [R, in] and s B [out, R] of all layers, it is x ↦ [W | s B] [x; t] + b with t = A x, in
    bfloat16 for a multiple of 16 features; an odd rank is padded with zeros. The panels of two weights of equal shape
    may alternate, without effect on results. `allocate(n)` returns memory for n floats.
    """

    def __init__(
        self,
        weights: Sequence[Float[Tensor, "_ in"]],
        bias: Float[Tensor, " out"] | None = None,
        adapter: tuple[Float[Tensor, "R in"], Float[Tensor, "out R"]] | None = None,
        *,
        half: bool = False,
        alternating: bool = False,
        allocate: Callable[[int], Float32[Tensor, " _"]] = torch.empty,
    ) -> None:
        weights, features = whole_panels(weights, alternating), weights[0].shape[1]
        sizes = [len(weight) for weight in weights]
        self.rank = 0 if adapter is None else len(adapter[0])
        rank = self.rank + (self.rank % 2 if half else 0)
        panel = panel_floats(features + rank, half)
        panels = allocate(sum(map(panels_of, sizes)) * panel)
        columns = _padded_columns(adapter, rank, sizes)
        parts = zip(weights, columns, places(sizes, panels, panel, alternating), strict=True)
        for weight, beside, (own, step) in parts:
            if beside is None:
                pack(weight, own, step, half=half)
            elif half and features % TILE == 0:
                pack(weight, own, step, half=True)
                pack(beside, own[features // 2 * LANES :], step, half=True)
            else:
                kind = weight.dtype if half else torch.float32
                pack(torch.cat((weight.to(kind), beside.to(kind)), 1), own, step, half=half)
        self.held = [panels]
        address = None if bias is None else self._address(bias)
        shape = {"out": sum(sizes), "in_": features + rank, "rank": rank}
        alternating = alternating and half  # float32 steps do not alternate panels
        self.matrix = Matrix(panels.data_ptr(), address, **shape, half=half, alternating=alternating)
        if adapter is not None:
            panel = panel_floats(features, half)
            own = allocate(panels_of(rank) * panel)
            pack(pad(adapter[0], (0, 0, 0, rank - self.rank)), own, panel, half=half)
            self.matrix.lora_a = self._address(own)

    def _address(self, x: Tensor) -> int:
        """The address of a tensor in float32, which is kept alive."""
        self.held.append(x.float().contiguous())
        return self.held[-1].data_ptr()


class PanelLinear(Panels):
    """Linear layers on panels in bfloat16, as a function."""

    def __init__(self, *tensors: Any, **options: Any) -> None:
        super().__init__(*tensors, half=True, **options)

    def __call__(self, x: BFloat16[Tensor, "N in"]) -> tuple[BFloat16[Tensor, "N out"], BFloat16[Tensor, "N R"] | None]:
        """The rounded product, and t if there is an adapter."""
        y = x.new_empty(len(x), self.matrix.out)
        return y, self._compute(x, y, None)

    def unrounded(self, x: BFloat16[Tensor, "N in"]) -> Float32[Tensor, "N out"]:
        """The product in float32."""
        y = x.new_empty(len(x), self.matrix.out, dtype=torch.float32)
        self._compute(x, None, y)
        return y

    def _compute(self, x: Tensor, rounded: Tensor | None, exact: Tensor | None) -> Tensor | None:
        x = x.contiguous()
        t = x.new_empty(len(x), self.matrix.rank) if self.rank else None
        lines, features = (-(-size // LANES) * LANES for size in (len(x), self.matrix.in_))
        blocks = torch.empty(lines * features)
        compute("half_product", self.matrix, len(x), x, rounded, exact, t, blocks)
        return t if t is None else t[:, : self.rank]


def panels_of(out: int) -> int:
    """Number of panels of a matrix with `out` rows."""
    return -(-out // LANES)


def whole_panels(weights: Sequence[Float[Tensor, "_ in"]], alternating: bool) -> list[Float[Tensor, "_ in"]]:
    """The weights, concatenated if they do not alternate and one of them would not fill its last panel."""
    whole = alternating or all(len(weight) % LANES == 0 for weight in weights[:-1])
    return list(weights) if whole else [torch.cat(list(weights))]


def places(
    sizes: Sequence[int], panels: Shaped[Tensor, " all"], panel: int, alternating: bool
) -> Iterator[tuple[Shaped[Tensor, " rest"], int]]:
    """Start and stride of the panels of each weight, for weights with `sizes` rows. A panel has `panel` elements."""
    first = 0
    for size in sizes:
        yield panels[first * panel :], panel * (len(sizes) if alternating else 1)
        first += 1 if alternating else panels_of(size)


def floats_of(sizes: Sequence[int], features: int, rank: int, *, half: bool = True) -> list[int]:
    """Floats that `Panels` allocates for layers with `sizes` outputs, `features` inputs and an adapter of rank
    `rank`."""
    rank += rank % 2 if half else 0
    whole = sum(map(panels_of, sizes)) * panel_floats(features + rank, half)
    return [whole, panels_of(rank) * panel_floats(features, half)] if rank else [whole]


def _padded_columns(adapter: tuple[Tensor, Tensor] | None, rank: int, sizes: Sequence[int]) -> Sequence[Tensor | None]:
    """The columns s B of each weight, zero-padded to an even rank."""
    if adapter is None:
        return [None] * len(sizes)
    return pad(adapter[1], (0, rank - adapter[1].shape[1])).split(list(sizes))


# Trials ---------------------------------------------------------------------------------------------------------------


@cache
def _floats_agree_with_torch() -> bool:
    """Whether products of rows and of columns agree with torch in double precision on this machine, and a row alone is
    bit-identical to the same row among others."""
    wave = torch.arange(37.0 * 70).mul(0.7).sin()
    x, weight, bias = wave.view(37, 70), wave[: 70 * 37].view(70, 37), wave[:37]
    expected = x.double() @ weight.double() + bias.double()
    results = [multiply(a, b, bias=bias) for a, b in ((x, weight), (x.T.contiguous().T, weight.T.contiguous().T))]
    results.append(torch.cat([multiply(row, weight, bias=bias) for row in x.split(1)]))
    same = all(torch.allclose(y.double(), expected, atol=1e-4) and torch.equal(y, results[0]) for y in results)
    if not same:
        warn_disabled("The compiled products in float32 are not used: their results differ from torch's.")
    return same


@cache
def _panels_agree_with_torch() -> bool:
    """Whether a product agrees with torch in double precision on this machine."""
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
