"""State of a recipe between steps: the number of steps, and a state for each stateful slot, saved in checkpoints."""

from dataclasses import dataclass, fields, replace
from typing import Any

from tutelage.algorithms.slots import Choices
from tutelage.base.errors import TutelageError
from tutelage.core import surrogates
from tutelage.core.pieces import Observation, State, init


@dataclass(frozen=True, kw_only=True)
class RecipeState:
    """The number of completed steps, and one state per stateful slot; `()` for a piece without state."""

    step: int = 0
    shaping: State = ()
    advantage: State = ()
    penalty: State = ()
    surrogate: State = ()

    def to_dict(self) -> dict[str, Any]:
        """The state as a JSON-serialisable dict, for a checkpoint.

        Raises TutelageError for state other than numbers, strings, lists and dicts.
        """
        return {field.name: _plain(getattr(self, field.name), field.name) for field in fields(self)}

    @property
    def penalty_coef(self) -> float:
        """Coefficient of the KL to the reference; 0 without a penalty."""
        return float(self.penalty["coef"]) if self.penalty else 0.0

    @property
    def surrogate_coef(self) -> float | None:
        """Coefficient of the KL to the sampler; None if the surrogate has no controlled coefficient."""
        return self.surrogate.get("coef") if isinstance(self.surrogate, dict) else None


def initial_state(recipe: Choices) -> RecipeState:
    """The initial state of a recipe."""
    return RecipeState(
        shaping=init(recipe.shaping),
        advantage=init(recipe.advantage),
        penalty=init(recipe.penalty),
        surrogate=init(recipe.surrogate),
    )


def state_metrics(recipe: Choices, state: RecipeState) -> dict[str, float]:
    """Numbers that pieces log of their own states: those of `metrics(state)` of a piece that has it, as SLOT/NAME.

    Raises TutelageError if one is not a number.
    """
    numbers: dict[str, float] = {}
    for slot in ("shaping", "advantage", "penalty", "surrogate"):
        piece = getattr(recipe, slot)
        metrics = getattr(piece, "metrics", None)
        for name, value in metrics(getattr(state, slot)).items() if callable(metrics) else ():
            if not isinstance(value, int | float):
                raise TutelageError(
                    f"{type(piece).__name__}.metrics gives {value!r} for {name!r}: give numbers, such as float(x)."
                )
            numbers[f"{slot}/{name}"] = float(value)
    return numbers


def after_update(recipe: Choices, state: RecipeState, observation: Observation) -> RecipeState:
    """The state of a recipe after a step, with controllers updated by its measurements.

    During critic warm-up, when the policy is fixed, controllers are not updated.
    """
    state = replace(state, step=state.step + 1)
    if recipe.critic is not None and state.step <= recipe.critic.warmup:
        return state
    penalty = recipe.penalty.observe(observation, state.penalty) if recipe.penalty else state.penalty
    return replace(state, penalty=penalty, surrogate=surrogates.observe(recipe.surrogate, observation, state.surrogate))


def restored_state(recipe: Choices, saved: dict[str, Any]) -> RecipeState:
    """Restore the state from the result of `RecipeState.to_dict`, for the same recipe.

    Raises TutelageError if it was saved by another recipe or by pieces with another structure of state.
    """
    start = initial_state(recipe)
    names = [field.name for field in fields(RecipeState)]
    if saved.keys() != set(names):
        odd = ", ".join(sorted(set(names) ^ saved.keys()))
        raise TutelageError(
            f"The recipe's state in this checkpoint was written by another version of Tutelage: {odd} differ. "
            "Resume with the version that started the run."
        )
    slots = {name: _fitting(getattr(start, name), saved[name], name, recipe) for name in names[1:]}
    return RecipeState(step=int(saved["step"]), **slots)


def _fitting(start: State, saved: Any, slot: str, recipe: Choices) -> State:
    """The saved state of a slot. Raises TutelageError if its structure differs from the piece's initial state."""
    if not _fits(start, saved):
        raise TutelageError(
            f"The checkpoint does not fit the recipe {recipe.name}: its state of {slot} is {saved!r}, but the "
            f"piece's initial state is {start!r}. Resume with the recipe of the run."
        )
    return _with_tuples(start, saved)


def _with_tuples(start: State, saved: Any) -> State:
    """The saved state with `()`, which JSON turns into a list, restored for pieces without state."""
    if isinstance(start, dict) and start:
        return {key: _with_tuples(start[key], value) for key, value in saved.items()}
    return () if start == () else saved


def _fits(start: State, saved: Any) -> bool:
    """Whether a state has the structure of `start`: the same names and types; None and an empty dict or list match
    anything."""
    if start == ():
        return saved in ([], ())
    if isinstance(start, dict):
        same = not start or (isinstance(saved, dict) and saved.keys() == start.keys())
        return isinstance(saved, dict) and same and all(_fits(start[key], saved[key]) for key in start)
    if isinstance(start, int | float):
        return isinstance(saved, int | float)
    return start is None or isinstance(saved, type(start))


def _plain(state: State, path: str) -> Any:
    if isinstance(state, dict) and all(isinstance(key, str) for key in state):
        return {key: _plain(value, f"{path}.{key}") for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [_plain(value, path) for value in state]
    if state is None or isinstance(state, str | bool | int | float):
        return state
    raise TutelageError(
        f"The state of {path} holds a {type(state).__name__}, which cannot be saved in a checkpoint. Use only "
        "numbers, strings, lists, and dicts with string keys."
    )
