"""Pieces of a recipe, and what all of them share: traits, the context of a call, and a state.

A piece is a callable that fits a slot: an advantage, a baseline, a shaping, a surrogate, a controller. A plain
function is one. A piece with a state has two methods, as an `optax.GradientTransformation` has:

    init() -> state                                    before the first step
    __call__(…, state) -> (what the slot asks for, state)

The state belongs to the piece and is never changed in place. It is made of numbers, texts, lists and dicts, so that a
checkpoint can hold it as JSON. A piece without `init` is called without a state.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from tutelage.core.shapes import Index, PerRow, PerToken

State: TypeAlias = Any
"""What a piece remembers: numbers, texts, lists, and dicts with texts as keys; `()` for nothing."""


@runtime_checkable
class Stateful(Protocol):
    """A piece that remembers something from one step of the loop to the next."""

    def init(self) -> State:
        """The state before the first step."""


def init(piece: object) -> State:
    """The state of a piece before the first step: `piece.init()`, or `()` for a piece without a state."""
    return piece.init() if isinstance(piece, Stateful) else ()


def apply(piece: Any, *inputs: Any, state: State) -> tuple[Any, State]:
    """The result of a piece and its next state; a piece without a state is called without one and keeps `()`."""
    if isinstance(piece, Stateful):
        return piece(*inputs, state)  # type: ignore[operator]
    return piece(*inputs), state


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The traits of a piece, which it declares as attributes of the same names; each may be left out.

    A plain function declares nothing.
    """

    needs: frozenset[str] = frozenset()
    """What the piece cannot do without: "value" (a critic), "group" (two rows or more per prompt), "greedy" or
    "score_norm" (fields of `Context`), "kl_old" (a field of `Observation`)."""
    per_response: bool = False
    """An advantage gives every token of a completion the same Ψ; a surrogate weighs a completion by one ratio."""
    on_policy: bool = False
    """A surrogate whose gradient is right only while the policy is the sampler."""
    proximal: bool = False
    """A surrogate that holds the policy near the sampler, by limits on the ratio or by a price."""
    standardise: bool = False
    """An advantage that divides by the standard deviation of a prompt's scores."""


def traits(piece: object) -> Traits:
    """The traits that a piece declares."""
    return Traits(**{f.name: getattr(piece, f.name) for f in fields(Traits) if hasattr(piece, f.name)})


@dataclass(frozen=True, kw_only=True)
class Context:
    """The facts about the rows of a batch that a piece may use beside its inputs; None for what is not known.

    A piece that cannot do without `greedy` or `score_norm` names it in its `needs`.
    """

    ids: tuple[str, ...] = ()
    """The prompt's id of each of the B rows."""
    max_length: int | None = None
    """The limit on completion tokens."""
    score_norm: PerToken | None = None
    """Float[B, R], ‖∇ log π(aₜ|sₜ)‖² up to a common factor."""
    greedy: PerRow | None = None
    """Float[B], the shaped score of the greedy completion to the row's prompt."""
    is_greedy: bool = False
    """Whether the rows are greedy completions. A shaping treats their scores as it treated those of the rollout, and
    leaves them out of its statistics."""

    def rows(self, index: Index) -> "Context":
        """The context of the rows at `index` (Int[b] or Bool[B])."""
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        return replace(
            self,
            ids=tuple(self.ids[i] for i in index.tolist() if self.ids),
            score_norm=None if self.score_norm is None else self.score_norm[index],
            greedy=None if self.greedy is None else self.greedy[index],
        )


NOTHING = Context()
"""The context without any information."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The measurements of a step of the loop that the controllers of coefficients use."""

    kl_reference: float
    """KL(policy‖reference) of the rollout, nats per completion."""
    kl_old: float
    """KL(old‖policy) once the update was taken, nats per token."""
    rows: int
    """Completions in the step, over all processes."""
