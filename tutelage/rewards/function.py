"""A function of the user's own as a reward."""

import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.data.records import Messages
from tutelage.rewards.reward import Breakdown, Completion
from tutelage.rewards.scores import checked


@dataclass(frozen=True)
class FunctionReward:
    """A function as a reward; its signature says what it is called with.

        function(completions) -> scores          the completions: conversation, answer, own columns, tokens
        function(prompts, answers) -> scores     texts: the last message of each conversation, and the answer

    `name` is what messages call it. Raises TutelageError when the function asks for anything else, raises, or returns
    what are no scores (see `rewards.scores`).
    """

    function: Callable[..., object]
    name: str

    def __post_init__(self) -> None:
        argument_count(self.function, self.name)

    @property
    def made_of(self) -> tuple[object, ...]:
        """The function, which may be a reward with parts of its own."""
        return (self.function,)

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B]"""
        return self.breakdown(completions).total

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The scores of the function, and those of its parts where it is a reward that has parts."""
        try:
            scores = self._scores(completions)
        except TutelageError:
            raise
        except Exception as error:
            raise TutelageError(
                f"The reward function {self.name} raised {type(error).__name__}: {error}{_place(error, self.function)}."
            ) from error
        if isinstance(scores, Breakdown):
            return scores
        return Breakdown(checked(scores, completions, f"reward function {self.name}"))

    def _scores(self, completions: Sequence[Completion]) -> object:
        """What the function returns for the completions, or for their texts."""
        of_parts = getattr(self.function, "breakdown", None)
        if of_parts is not None:
            return of_parts(completions)
        arguments: tuple[Any, ...] = (completions,)
        if argument_count(self.function, self.name) == 2:
            arguments = [_question(one.messages) for one in completions], [one.answer for one in completions]
        scores = self.function(*arguments)
        return list(scores) if inspect.isgenerator(scores) else scores


def _question(messages: Messages) -> str:
    """The prompt that a function of texts is given: the last message of a conversation."""
    return messages[-1].content if messages else ""


def argument_count(function: Callable[..., object], name: str) -> int:
    """1 for a function of completions, 2 for one of prompts and answers: its positional parameters without a default.

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
        asked = ", ".join([one.name for one in positional] + keywords) or "nothing"
        raise TutelageError(
            f"The reward function {name} asks for {asked}; it must take (completions), or (prompts, answers) as texts."
        )
    return len(positional)


def _place(error: Exception, function: Callable[..., object]) -> str:
    """The line that raised an error: the innermost line in the function's own file, or else the innermost of all."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return place_of(error, code.co_filename if code is not None else "")


def place_of(error: Exception, file: str = "") -> str:
    """The innermost line that an error came through, in `file` where it came through that: " (rewards.py:9)"."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return ""
    own = [frame for frame in frames if frame.filename == file]
    frame = (own or frames)[-1]
    return f" ({Path(frame.filename).name}:{frame.lineno})"
