"""Gradients of matrices, added up where they are kept while they are made.

    ∂W = Σ Gᵀ X        over all products y = X Wᵀ with a gradient G, in all micro-batches

Autograd makes every term in memory of its own and adds it to the others afterwards, which takes three passes more over
something as large as the model; of an embedding it first makes a matrix of zeros. Inside `Gradients.in_place` a layer
with a gradient of its own adds its term to `W.grad` as part of the product. All of them lie in one stretch of memory
(see `Stretch`), which an update and the sampling after it use by turns.

    gradients = Gradients(model.parameters())
    with gradients.in_place():
        loss.backward()                         # not torch.autograd.grad, which would find nothing
    optimiser.step(); optimiser.zero_grad()
    gradients.forget()

That is for float32 on a processor: there a backward pass runs in the thread that asked for it, and sees who is asking.
Elsewhere, and for all other parts of a model, everything is as it was.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from tutelage.engines.cpu.memory import Stretch
from tutelage.engines.cpu.native import passes

_in_place: ContextVar["Gradients | None"] = ContextVar("in_place", default=None)


class Gradients:
    """Those of the matrices in float32 that a model trains; all other parameters are left alone."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._matrices: list[nn.Parameter] = []
        self._places: dict[int, Tensor] = {}  # by the identity of the parameter

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, backward passes add to gradients in place, also to those that are there already."""
        self._take_room()
        token = _in_place.set(self)
        try:
            yield
        finally:
            _in_place.reset(token)

    def release(self) -> None:
        """Let the room be used for something else, unless a parameter holds a gradient in it."""
        if all(p.grad is None for p in self._matrices):
            self._places = {}

    def _take_room(self) -> None:
        if not self._places:
            trained = (p for p in self._model.parameters() if p.requires_grad)
            self._matrices = [p for p in trained if p.dim() == 2 and p.dtype == torch.float32]
            stretch = Stretch(p.numel() for p in self._matrices)
            self._places = {id(p): stretch.take(p.numel()).view_as(p) for p in self._matrices}

    def place(self, weight: Tensor) -> tuple[Tensor | None, bool]:
        """Where the gradient of `weight` is, and whether there is something in it already; None where it may not be
        added to in place."""
        self._take_room()  # again, where memory ran out and what was there was forgotten
        if id(weight) not in self._places:
            return None, True
        begun = weight.grad is not None
        if not begun:
            weight.grad = self._places[id(weight)]
        return weight.grad, begun


def add_product(weight: Tensor, left: Tensor, right: Tensor, total: Tensor | None = None) -> Tensor | None:
    """The term `left` `right` of the gradient of `weight`: None once it was added in place, else `total` with it added.

    Float[out, n], Float[n, in]. A total is kept in float32 at least, and without a third matrix where the types allow
    it.
    """
    place, begun = _place(weight)
    if place is not None and not begun and left.dtype == place.dtype:
        torch.mm(left, right, out=place)
    elif place is not None:
        _plus(place if begun else place.zero_(), left, right)
    elif total is not None:
        return _plus(total, left, right)
    else:
        product = left @ right
        return product.to(torch.promote_types(product.dtype, torch.float32))
    return total


def add_rows(weight: Tensor, index: Tensor, rows: Tensor) -> Tensor | None:
    """The gradient of a table whose rows were looked up: None once it was added in place.

    Int[N], Float[N, d]. A row that was looked up several times gets the sum.
    """
    place, begun = _place(weight)
    to_table = torch.zeros_like(weight) if place is None else place
    if not begun:
        to_table.zero_()
    to_table.index_add_(0, index, rows.to(to_table.dtype))
    return to_table if place is None else None


def total_norm(gradients: Iterable[Tensor]) -> Tensor:
    """√ Σ g² over all of them: Float[], with the squares of large matrices added up in double precision."""
    apart: list[Tensor] = []
    squares: list[Tensor] = []
    for gradient in gradients:
        if passes.serve(gradient):
            squares.append(passes.squares(gradient))
        else:
            apart.append(gradient)
    rest = nn.utils.get_total_norm(apart)
    return torch.stack([rest.double().square(), *squares]).sum().sqrt().float() if squares else rest


def _place(weight: Tensor) -> tuple[Tensor | None, bool]:
    gradients = _in_place.get()
    return (None, True) if gradients is None else gradients.place(weight)


def _plus(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return total.addmm_(left, right) if right.dtype == total.dtype else total.add_(left @ right)
