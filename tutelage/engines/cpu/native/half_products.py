"""Products in bfloat16 on panels, as a decoding step computes them: the bits of a row do not depend on other rows."""

from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from functools import cache

import torch
from jaxtyping import BFloat16, Float, Float32, Shaped
from torch import Tensor
from torch.nn.functional import pad

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
    """Copy W into panels of `pairs` that begin `step` pairs apart."""
    weight, functions = weight.detach(), library()
    weight = (weight if weight.dtype == torch.bfloat16 else weight.float()).contiguous()
    copy = functions.tutelage_copy_half if weight.dtype == torch.bfloat16 else functions.tutelage_pack_half
    copy(byref(thread_pool()), weight.data_ptr(), *weight.shape, pairs.data_ptr(), step)


class PanelLinear:
    """Linear layers over the same features, one below the other, on panels: x ↦ x Wᵀ + b. Their features are even.

    With an `adapter`, A [R, in] and s B [out, R] of all layers, it is x ↦ [W | s B] [x; t] + b with t = A x, for a
    multiple of 16 features; the panels have zeros beside an odd rank. The panels of two weights of one shape may
    alternate, without a difference to results. `allocate` returns memory for so many floats.
    """

    def __init__(
        self,
        weights: Sequence[Float[Tensor, "_ in"]],
        bias: Float[Tensor, " out"] | None = None,
        adapter: tuple[Float[Tensor, "R in"], Float[Tensor, "out R"]] | None = None,
        *,
        alternating: bool = False,
        allocate: Callable[[int], Float32[Tensor, " _"]] = torch.empty,
    ) -> None:
        weights, features = whole_panels(weights, alternating), weights[0].shape[1]
        sizes = [len(weight) for weight in weights]
        self.rank = 0 if adapter is None else len(adapter[0])
        rank = self.rank + self.rank % 2
        panel = panel_pairs(features + rank)
        panels = allocate(sum(map(panels_of, sizes)) * panel)
        columns = _padded_columns(adapter, rank, sizes)
        for weight, beside, (own, step) in zip(
            weights, columns, places(sizes, panels, panel, alternating), strict=True
        ):
            if beside is None:
                pack(weight, own, step)
            elif features % TILE:
                pack(torch.cat((weight, beside.to(weight.dtype)), 1), own, step)
            else:
                pack(weight, own, step)
                pack(beside, own[features // 2 * LANES :], step)
        self.held = [panels]
        self.matrix = Matrix(
            panels.data_ptr(),
            None if bias is None else self._address(bias),
            out=sum(sizes),
            in_=features + rank,
            rank=rank,
            half=True,
            alternating=alternating,
        )
        if adapter is not None:
            own = allocate(panels_of(rank) * panel_pairs(features))
            pack(pad(adapter[0], (0, 0, 0, rank - self.rank)), own, panel_pairs(features))
            self.matrix.lora_a = self._address(own)

    def _address(self, x: Tensor) -> int:
        """The address of a tensor in float32, which is kept alive."""
        self.held.append(x.float().contiguous())
        return self.held[-1].data_ptr()

    def __call__(
        self, x: BFloat16[Tensor, "N in"]
    ) -> tuple[BFloat16[Tensor, "N out"], BFloat16[Tensor, "N R"] | None]:
        """The product, rounded, and t where there is an adapter."""
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
        results = (None if y is None else y.data_ptr() for y in (rounded, exact, t))
        library().tutelage_half_product(
            byref(thread_pool()), byref(self.matrix), len(x), x.data_ptr(), *results, blocks.data_ptr()
        )
        return t if t is None else t[:, : self.rank]


def panels_of(out: int) -> int:
    """The number of panels of a matrix with `out` rows."""
    return -(-out // LANES)


def whole_panels(weights: Sequence[Float[Tensor, "_ in"]], alternating: bool) -> list[Float[Tensor, "_ in"]]:
    """The weights; all as one where they follow each other and the last panel of one would not be full."""
    whole = alternating or all(len(weight) % LANES == 0 for weight in weights[:-1])
    return list(weights) if whole else [torch.cat(list(weights))]


def places(
    sizes: Sequence[int], panels: Shaped[Tensor, " all"], panel: int, alternating: bool
) -> Iterator[tuple[Shaped[Tensor, " rest"], int]]:
    """Where the panels of each weight begin, and the step from one to the next, for weights of so many rows. A panel
    has `panel` numbers."""
    first = 0
    for size in sizes:
        yield panels[first * panel :], panel * (len(sizes) if alternating else 1)
        first += 1 if alternating else panels_of(size)


def floats_of(sizes: Sequence[int], features: int, rank: int) -> list[int]:
    """The floats that `PanelLinear` allocates for layers of so many outputs, features and an adapter of that rank."""
    rank += rank % 2
    whole = sum(map(panels_of, sizes)) * panel_pairs(features + rank)
    return [whole, panels_of(rank) * panel_pairs(features)] if rank else [whole]


def _padded_columns(
    adapter: tuple[Tensor, Tensor] | None, rank: int, sizes: Sequence[int]
) -> Sequence[Tensor | None]:
    """The columns s B beside each weight, with zeros up to an even rank."""
    if adapter is None:
        return [None] * len(sizes)
    return pad(adapter[1], (0, rank - adapter[1].shape[1])).split(list(sizes))


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
