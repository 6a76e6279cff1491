"""Gradients of matrices, accumulated in place by the matrix products of the backward pass.

    ∂W = Σ Gᵀ X        over all products y = X Wᵀ with a gradient G, in all micro-batches

Autograd allocates each term and adds it afterwards, which costs three more passes over memory the size of the model;
for an embedding it first creates a zero matrix. Inside `Gradients.in_place`, autograd functions add each term to
`W.grad` as part of the product. All these gradients share one arena (see `Arena`) with the decoding weights.

    gradients = Gradients(model)
    with gradients.in_place():
        loss.backward()                         # not torch.autograd.grad, which would return no gradients
    optimiser.step(); optimiser.zero_grad()
    gradients.release()

Supports float32 on a CPU, where a backward pass runs in the calling thread and sees its context variables. On other
devices, and for all other parameters, autograd works as usual.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tutelage.engines.cpu import products
from tutelage.engines.cpu.allocator import Arena
from tutelage.engines.cpu.native import elementwise

_in_place: ContextVar["Gradients | None"] = ContextVar("in_place", default=None)


class Gradients:
    """In-place gradients of the trainable float32 matrices of a model. Autograd handles all other parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._matrices: list[nn.Parameter] = []
        self._places: dict[int, Tensor] = {}  # keyed by the id of the parameter

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Context in which backward passes accumulate gradients in place, including existing ones."""
        self._allocate()
        token = _in_place.set(self)
        try:
            yield
        finally:
            _in_place.reset(token)

    def release(self) -> None:
        """Free the arena, unless it holds the gradient of a parameter."""
        if all(p.grad is None for p in self._matrices):
            self._places = {}

    def _allocate(self) -> None:
        if not self._places:
            trained = (p for p in self._model.parameters() if p.requires_grad)
            self._matrices = [p for p in trained if p.dim() == 2 and p.dtype == torch.float32]
            arena = Arena(p.numel() for p in self._matrices)
            self._places = {id(p): arena.take(p.numel()).view_as(p) for p in self._matrices}

    def place(self, weight: Float[Tensor, "out in"]) -> tuple[Float[Tensor, "out in"] | None, bool]:
        """The buffer for the gradient of `weight`, and whether it already holds a gradient.

        The buffer is None if the gradient cannot be accumulated in place.
        """
        self._allocate()  # again if the arena was released after running out of memory
        if id(weight) not in self._places:
            return None, True
        begun = weight.grad is not None
        if not begun:
            weight.grad = self._places[id(weight)]
        return weight.grad, begun


def add_product(
    weight: Float[Tensor, "out in"],
    grad: Float[Tensor, "n out"],
    x: Float[Tensor, "n in"],
    total: Float[Tensor, "out in"] | None = None,
) -> Float[Tensor, "out in"] | None:
    """Add the term Gᵀ X to the gradient of `weight`, where G = `grad` is the gradient of y = X Wᵀ.

    Returns None if accumulated in place; else `total` with the term added, or the term. A total has at least float32
    precision and, if dtypes allow, is updated without a temporary matrix.
    """
    place, begun = _place(weight)
    if place is not None and grad.dtype != place.dtype:
        _add_in_place(place, grad.T @ x, begun)
    elif place is not None:
        products.weight_gradient(grad, x, place, accumulate=begun)
    elif total is not None and x.dtype != total.dtype:
        return total.add_(grad.T @ x)
    else:
        term = products.weight_gradient(grad, x, total)
        return term.to(torch.promote_types(term.dtype, torch.float32))
    return total


def add_term(weight: Float[Tensor, "out in"], term: Float[Tensor, "out in"]) -> Float[Tensor, "out in"] | None:
    """Add `term`, a product in bfloat16, to the gradient of `weight` in float32.

    Returns None if accumulated in place, else the term in float32.
    """
    place, begun = _place(weight)
    if place is None:
        return term.float()
    _add_in_place(place, term, begun)
    return None


def add_rows(
    weight: Float[Tensor, "V d"], index: Int[Tensor, " N"], rows: Float[Tensor, "N d"]
) -> Float[Tensor, "V d"] | None:
    """The gradient of an embedding from the gradients `rows` of the vectors looked up at `index`.

    Gradients of repeated rows are summed. Returns None if accumulated in place.
    """
    place, begun = _place(weight)
    to_table = torch.zeros_like(weight) if place is None else place
    if not begun:
        to_table.zero_()
    to_table.index_add_(0, index, rows.to(to_table.dtype))
    return to_table if place is None else None


def total_norm(gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
    """√ Σ g² over all entries of all gradients. Squares of large matrices are summed in double precision."""
    others: list[Tensor] = []
    squares: list[Tensor] = []
    for gradient in gradients:
        if elementwise.supports(gradient):
            squares.append(elementwise.sum_of_squares(gradient))
        else:
            others.append(gradient)
    rest = nn.utils.get_total_norm(others)
    return torch.stack([rest.double().square(), *squares]).sum().sqrt().float() if squares else rest


def _place(weight: Tensor) -> tuple[Tensor | None, bool]:
    gradients = _in_place.get()
    return (None, True) if gradients is None else gradients.place(weight)


def _add_in_place(total: Tensor, term: Tensor, begun: bool) -> None:
    """Add a term of another dtype to a float32 gradient, or initialise the gradient with it."""
    if not begun:
        total.copy_(term)
    elif term.dtype == torch.bfloat16 and elementwise.mixed_supports(term.numel()):
        elementwise.mixed_add(total, term, out=total)
    else:
        total.add_(term)
