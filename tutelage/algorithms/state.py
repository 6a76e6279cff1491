"""The state of a recipe: the states of its pieces from one step of the loop to the next, kept in checkpoints."""

from dataclasses import dataclass, fields, replace
from typing import Any

from tutelage.algorithms.choices import Choices
from tutelage.base.errors import TutelageError
from tutelage.core import surrogates
from tutelage.core.pieces import Observation, State, init


@dataclass(frozen=True, kw_only=True)
class RecipeState:
    """The number of steps done, and one state for each slot whose piece may have one; `()` for a piece without."""

    step: int = 0
    shaping: State = ()
    advantage: State = ()
    penalty: State = ()
    surrogate: State = ()

    def to_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, as JSON can hold it.

        Raises TutelageError for a piece that remembers anything but numbers, texts, lists and dicts.
        """
        return {field.name: _plain(getattr(self, field.name), field.name) for field in fields(self)}

    @property
    def penalty_coef(self) -> float:
        """Price of a nat from the reference; 0 without a penalty."""
        return float(self.penalty["coef"]) if self.penalty else 0.0

    @property
    def surrogate_coef(self) -> float | None:
        """Price of a nat from the sampler; None where the surrogate has no coefficient that a controller changes."""
        return self.surrogate.get("coef") if isinstance(self.surrogate, dict) else None


def initial_state(recipe: Choices) -> RecipeState:
    """The state of a recipe before the first step."""
    return RecipeState(
        shaping=init(recipe.shaping),
        advantage=init(recipe.advantage),
        penalty=init(recipe.penalty),
        surrogate=init(recipe.surrogate),
    )


def after_update(recipe: Choices, state: RecipeState, observation: Observation) -> RecipeState:
    """The state of a recipe after a step: the controllers have seen what the step measured.

    In the critic's warm-up, in which the policy stays where it is, the controllers wait.
    """
    state = replace(state, step=state.step + 1)
    if recipe.critic is not None and state.step <= recipe.critic.warmup:
        return state
    penalty = recipe.penalty.observe(observation, state.penalty) if recipe.penalty else state.penalty
    return replace(
        state,
        penalty=penalty,
        surrogate=surrogates.observe(recipe.surrogate, observation, state.surrogate),
    )


def restored_state(recipe: Choices, saved: dict[str, Any]) -> RecipeState:
    """The state that `RecipeState.to_dict` made, for the same recipe.

    Raises TutelageError when it was saved by another recipe or by pieces that remembered something else.
    """
    start = initial_state(recipe)
    names = [field.name for field in fields(RecipeState)]
    if saved.keys() != set(names):
        odd = ", ".join(sorted(set(names) ^ saved.keys()))
        raise TutelageError(
            f"The recipe's state in this checkpoint was written by another version of Tutelage: {odd} differ. Go on "
            "with the version that began the run."
        )
    slots = {name: _fitting(getattr(start, name), saved[name], name, recipe) for name in names[1:]}
    return RecipeState(step=int(saved["step"]), **slots)


def _fitting(start: State, saved: Any, slot: str, recipe: Choices) -> State:
    """The saved state of a slot. Raises TutelageError unless it has the shape of the piece's first state."""
    if not _fits(start, saved):
        raise TutelageError(
            f"The checkpoint does not fit the recipe {recipe.name}: its state of {slot} is {saved!r}, where the piece "
            f"begins with {start!r}. Go on with the recipe that the run was started with."
        )
    return _with_tuples(start, saved)


def _with_tuples(start: State, saved: Any) -> State:
    """The saved state with `()` again where a piece without a state has it; JSON made a list of it."""
    if isinstance(start, dict) and start:
        return {key: _with_tuples(start[key], value) for key, value in saved.items()}
    return () if start == () else saved


def _fits(start: State, saved: Any) -> bool:
    """Whether a state may have come from `start`: the same names and kinds; None and an empty dict or list are open."""
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
        f"The state of {path} holds a {type(state).__name__}, which a checkpoint cannot keep. Let its piece remember "
        "numbers, texts, lists, and dicts with texts as keys."
    )
