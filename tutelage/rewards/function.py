"""Reward from a user-defined function."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.base.functions import place_of
from tutelage.rewards.reward import Breakdown, BreakdownReward, Completion
from tutelage.rewards.scores import checked


@dataclass(frozen=True)
class FunctionReward(BreakdownReward):
    """Reward from a function; its signature determines the arguments.

        function(completions) -> scores          the completions: conversation, text, own columns, tokens
        function(prompts, answers) -> scores     texts: the last message of each conversation, and the completion

    A score of None means that the reward does not apply to the completion (see `train.rl.rollouts.collect`).
    `name` is used in messages. Raises TutelageError if the function has another signature, raises, or returns
    invalid scores (see `rewards.scores`).
    """

    function: Callable[..., object]
    name: str

    def __post_init__(self) -> None:
        argument_count(self.function, self.name)

    @property
    def made_of(self) -> tuple[object, ...]:
        """The function, which may be a composite reward."""
        return (self.function,)

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """Scores of the function, and those of its components if it is a composite reward."""
        try:
            scores = self._scores(completions)
        except TutelageError:
            raise
        except Exception as error:
            code = getattr(inspect.unwrap(self.function), "__code__", None)
            place = place_of(error, code.co_filename if code is not None else "")
            raise TutelageError(
                f"The reward function {self.name} raised {type(error).__name__}: {error}{place}."
            ) from error
        if isinstance(scores, Breakdown):
            return scores
        return Breakdown(checked(scores, completions, f"reward function {self.name}"))

    def _scores(self, completions: Sequence[Completion]) -> object:
        """Call the function with the completions, or with their texts."""
        of_parts = getattr(self.function, "breakdown", None)
        if of_parts is not None:
            return of_parts(completions)
        arguments: tuple[Any, ...] = (completions,)
        if argument_count(self.function, self.name) == 2:
            questions = [one.messages[-1].content if one.messages else "" for one in completions]
            arguments = questions, [one.answer for one in completions]
        scores = self.function(*arguments)
        return list(scores) if inspect.isgenerator(scores) else scores


def argument_count(function: Callable[..., object], name: str) -> int:
    """Number of positional parameters without a default: 1 for a function of completions, 2 for one of prompts and
    completions.

    Raises TutelageError for any other signature.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError) as error:
        raise TutelageError(
            f"The parameters of the reward function {name} cannot be read; wrap it in one of (completions)."
        ) from error
    required = [one for one in parameters if one.default is one.empty]
    positional = [one for one in required if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    keywords = [one.name for one in required if one.kind is one.KEYWORD_ONLY]
    if len(positional) not in (1, 2) or keywords:
        names = ", ".join([one.name for one in positional] + keywords) or "nothing"
        raise TutelageError(
            f"The reward function {name} asks for {names}; it must take (completions), or (prompts, answers) as texts."
        )
    return len(positional)
