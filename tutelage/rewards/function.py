"""Reward from a user-defined function."""

import inspect
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from tutelage.base.concurrency import WHOLE, Call, CallError, Calls, awaited, concurrent, mapped, threaded
from tutelage.base.errors import TutelageError
from tutelage.base.modules import place_of
from tutelage.base.nouns import counted
from tutelage.rewards.reward import Breakdown, BreakdownReward, Completion, device_of
from tutelage.rewards.sandbox import SandboxWorker
from tutelage.rewards.scores import checked, row_named


class FunctionFault(Exception):
    """Raised if a reward function raises; the message is what it raised, and where."""


@dataclass(frozen=True)
class FunctionReward(BreakdownReward):
    """Reward from a function; its signature determines the arguments.

        function(completions) -> scores          the completions: conversation, text, own columns, tokens
        function(prompts, answers) -> scores     texts: the last message of each conversation, and the completion

    A score of None means that the reward does not apply to the completion (see `train.rl.rollouts.collect`).
    `name` is used in messages. The function may be `async`; all such functions share one event loop, in a thread.

    With `calls.workers` it is called with single completions, that many at once: a coroutine on the event loop, another
    function in threads or, with `calls.processes`, in processes, which import its module. Otherwise it is called once
    with all of them. The scores have the order of the completions either way.

    Raises TutelageError if the function has another signature, or cannot be sent to a process; if it raises, or exceeds
    its time-out, in its last attempt, with the completion if it was called with one; or if it returns invalid scores
    (see `rewards.scores`).
    """

    function: Callable[..., object]
    name: str
    calls: Calls = WHOLE
    _idle: deque[SandboxWorker] = field(default_factory=deque, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        argument_count(self.function, self.name)
        if self.calls.processes:
            self._check_processes()

    @property
    def made_of(self) -> tuple[object, ...]:
        """The function, which may be a composite reward."""
        return (self.function,)

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """Scores of the function, and those of its components if it is a composite reward."""
        single = bool(self.calls.workers and len(completions))
        try:
            if not single and not is_async(self.function):
                return self.scored(completions)
            if self.calls.processes:
                self._warm(min(self.calls.workers, len(completions)))
            parts = concurrent(self._start, [[one] for one in completions] if single else [completions], self.calls)
        except FunctionFault as fault:
            raise TutelageError(f"The reward function {self.name} {fault}.") from fault
        except CallError as error:
            if not isinstance(error.__cause__, FunctionFault | TimeoutError):  # a refusal of its own, or Ctrl-C
                raise error.__cause__ or error from None
            place = f" for {row_named(error.index, completions)}" if single else ""
            times = f", in each of {counted(self.calls.retries + 1, 'attempt')}" if self.calls.retries else ""
            advice = " Give it more time with timeout." if isinstance(error.__cause__, TimeoutError) else ""
            raise TutelageError(f"The reward function {self.name} {error.__cause__}{place}{times}.{advice}") from error
        device = device_of(completions)
        columns = {name: torch.cat([part.parts[name] for part in parts]).to(device) for name in parts[0].parts}
        return Breakdown(torch.cat([part.total for part in parts]).to(device), columns)

    def scored(self, completions: Sequence[Completion]) -> Breakdown:
        """Scores of one call. Raises FunctionFault if it raises."""
        try:
            scores = self._called(completions)
            scores = list(scores) if inspect.isgenerator(scores) else scores
        except TutelageError:
            raise
        except Exception as error:
            raise self._fault(error) from error
        return self._checked(scores, completions)

    async def _awaited(self, completions: Sequence[Completion]) -> Breakdown:
        """Scores of one call of an asynchronous function, as `scored`."""
        try:
            scores = await self._called(completions)
        except TutelageError:
            raise
        except Exception as error:
            raise self._fault(error) from error
        return self._checked(scores, completions)

    def _called(self, completions: Sequence[Completion]) -> Any:
        """Call the function with the completions, or with their texts."""
        of_parts = getattr(self.function, "breakdown", None)
        if of_parts is not None:
            return of_parts(completions)
        arguments: tuple[Any, ...] = (completions,)
        if argument_count(self.function, self.name) == 2:
            questions = [one.messages[-1].content if one.messages else "" for one in completions]
            arguments = questions, [one.answer for one in completions]
        return self.function(*arguments)

    def _checked(self, scores: object, completions: Sequence[Completion]) -> Breakdown:
        if isinstance(scores, Breakdown):
            return scores
        return Breakdown(checked(scores, completions, f"reward function {self.name}"))

    def _fault(self, error: Exception) -> FunctionFault:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        place = place_of(error, code.co_filename if code is not None else "")
        return FunctionFault(f"raised {type(error).__name__}: {error}{place}")

    def _start(self, completions: Sequence[Completion]) -> Call[Breakdown]:
        """Start a call of the function: on the event loop, in a process, or in a thread."""
        if is_async(self.function):
            return awaited(self._awaited(completions))
        if not self.calls.processes:
            return threaded(self.scored, completions)
        if not self._idle:  # one was killed after a time-out
            self._warm(1)
        worker = self._idle.pop()
        return replace(threaded(partial(self._computed, worker), completions), stop=worker.kill)

    def _computed(self, worker: SandboxWorker, completions: Sequence[Completion]) -> Breakdown:
        """Scores of one call in a process, which is kept for the next unless it ended."""
        try:
            scores = worker.computed(replace(self, calls=WHOLE).scored, (completions,))
        except RuntimeError as error:
            raise FunctionFault(f"failed: {error}") from error
        except BaseException:
            self._idle.append(worker)
            raise
        self._idle.append(worker)
        return scores

    def _warm(self, count: int) -> None:
        """Have `count` idle processes that have imported this file and the function, which no time-out should
        include."""
        workers = [SandboxWorker() for _ in range(count - len(self._idle))]
        try:
            mapped(lambda worker: worker.computed(callable, (replace(self, calls=WHOLE).scored,)), workers, count)
        except RuntimeError as error:
            raise FunctionFault(f"cannot be imported by a process: {error}") from error
        self._idle.extend(workers)

    def _check_processes(self) -> None:
        """Raise TutelageError unless processes can import the function."""
        if is_async(self.function):
            raise TutelageError(
                f"The reward function {self.name} is async: it waits on an event loop, without processes. Leave "
                "processes out, or write it as a plain function."
            )
        try:
            pickle.dumps(self.function)
            importable = getattr(self.function, "__module__", None) != "__main__"
        except (pickle.PicklingError, AttributeError, TypeError):
            importable = False
        if not importable:
            raise TutelageError(
                f"The reward function {self.name} cannot be imported by processes: define it by its name in a module, "
                "neither in the main program nor inside a function."
            )


def is_async(function: Callable[..., object]) -> bool:
    """Whether a call of the function returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


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
