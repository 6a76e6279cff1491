"""Pieces of a recipe, and their common interface: traits, the context of a call, and a state.

A piece is a callable that fits a slot: an advantage, a baseline, a shaping, a surrogate, a controller. Plain functions
are pieces too. A piece with a state has two methods, like an `optax.GradientTransformation`:

    init() -> state                                    before the first step
    __call__(…, state) -> (result for the slot, state)

The state is immutable and consists of numbers, strings, lists and dicts, so that it can be saved as JSON in a
checkpoint. A piece without `init` is called without a state.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from tutelage.core.shapes import Index, PerRow, PerToken

State: TypeAlias = Any
"""State of a piece: numbers, strings, lists, and dicts with string keys; `()` if there is none."""


@runtime_checkable
class Stateful(Protocol):
    """A piece with state that persists between training steps."""

    def init(self) -> State:
        """The initial state."""


def init(piece: object) -> State:
    """The state of a piece before the first step: `piece.init()`, or `()` for a piece without a state."""
    return piece.init() if isinstance(piece, Stateful) else ()


def apply(piece: Any, *inputs: Any, state: State) -> tuple[Any, State]:
    """Call a piece. Returns its result and next state, `()` for a piece without a state."""
    if isinstance(piece, Stateful):
        return piece(*inputs, state)  # type: ignore[operator]
    return piece(*inputs), state


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Traits of a piece, declared as attributes of the same names, all optional.

    A plain function has the defaults.
    """

    needs: frozenset[str] = frozenset()
    """Requirements of the piece: "value" (a critic), "group" (two rows or more per prompt), "greedy" or "score_norm"
    (fields of `Context`), "kl_old" (a field of `Observation`)."""
    per_response: bool = False
    """For an advantage: the same Ψ for every token of a completion. For a surrogate: one ratio per completion."""
    on_policy: bool = False
    """The gradient of the surrogate is valid only while the policy equals the sampler."""
    proximal: bool = False
    """The surrogate keeps the policy close to the sampler, by clipping the ratio or by a penalty."""
    standardise: bool = False
    """The advantage divides by the standard deviation of a prompt's scores."""


def traits(piece: object) -> Traits:
    """The traits that a piece declares."""
    return Traits(**{f.name: getattr(piece, f.name) for f in fields(Traits) if hasattr(piece, f.name)})


@dataclass(frozen=True, kw_only=True)
class Context:
    """Additional information about the rows of a batch; None if not available.

    A piece that requires `greedy` or `score_norm` lists it in `needs`.
    """

    ids: tuple[str, ...] = ()
    """Prompt id of each of the B rows."""
    max_length: int | None = None
    """Maximum number of completion tokens."""
    score_norm: PerToken | None = None
    """Float[B, R], ‖∇ log π(aₜ|sₜ)‖² up to a common factor."""
    greedy: PerRow | None = None
    """Float[B], the shaped score of the greedy completion to the row's prompt."""
    turn: Int[Tensor, "B R"] | None = None
    """Index of each token's turn; None if every row is a single turn."""
    last_value: PerRow | None = None
    """Float[B], the critic's value of the state after the last token where a completion was cut, 0 where it ended; None
    if the return ends there."""
    is_greedy: bool = False
    """Whether the rows are greedy completions. A shaping transforms their scores like those of the rollout but excludes
    them from its statistics."""

    def rows(self, index: Index) -> "Context":
        """The context of the rows at `index` (Int[b] or Bool[B])."""
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        return replace(
            self,
            ids=tuple(self.ids[i] for i in index.tolist() if self.ids),
            score_norm=None if self.score_norm is None else self.score_norm[index],
            greedy=None if self.greedy is None else self.greedy[index],
            turn=None if self.turn is None else self.turn[index],
            last_value=None if self.last_value is None else self.last_value[index],
        )


NOTHING = Context()
"""An empty context."""


def check_range(piece: object, interval: str, **numbers: float | None) -> None:
    """Raise ValueError for a setting of a piece outside an interval such as "[0, 1)" or "(0, ∞]"; None is valid."""
    low, high = (float(end.replace("∞", "inf")) for end in interval[1:-1].split(","))
    for name, number in numbers.items():
        open_end = (number == low and interval[0] == "(") or (number == high and interval[-1] == ")")
        if number is not None and (open_end or not low <= number <= high):
            raise ValueError(f"{type(piece).__name__}: {name} must be in {interval}, not {number}.")


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Measurements of a training step for the controllers of coefficients."""

    kl_reference: float
    """KL(policy‖reference) of the rollout, nats per completion."""
    kl_old: float
    """KL(old‖policy) after the update, nats per token."""
    rows: int
    """Completions in the step, over all processes."""
