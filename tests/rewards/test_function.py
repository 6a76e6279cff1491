"""What a function is called with follows from its signature; what it does wrong is told with its line."""

import functools
import inspect
from collections.abc import Callable, Sequence

import pytest

from tutelage.base.errors import TutelageError
from tutelage.rewards.function import FunctionReward, argument_count
from tutelage.rewards.reward import Completion

from .made import TALK, completion

TWO = [completion("So.", level=3), completion("No.", messages=())]


def whole(completions: Sequence[Completion]) -> list[float]:
    return [float(len(one.messages)) for one in completions]


def texts(prompts: list[str], answers: list[str]) -> list[float]:
    return [float(len(prompt + answer)) for prompt, answer in zip(prompts, answers, strict=True)]


class Callables:
    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        return whole(completions)

    def method(self, prompts: list[str], answers: list[str]) -> list[float]:
        return texts(prompts, answers)

    @staticmethod
    def static(completions: Sequence[Completion]) -> list[float]:
        return whole(completions)


@pytest.mark.parametrize(
    "function",
    [
        whole,
        lambda completions, scale=2.0: whole(completions),
        lambda completions, *, scale=2.0, **more: whole(completions),
        Callables(),
        Callables.static,
        functools.partial(lambda scale, completions: whole(completions), 2.0),
    ],
)
def test_a_function_of_one_argument_gets_the_completions(function: Callable[..., object]) -> None:
    assert FunctionReward(function, "f")(TWO).tolist() == [4.0, 0.0]


@pytest.mark.parametrize(
    "function",
    [
        texts,
        lambda a, b: texts(a, b),
        lambda a, b, scale=1.0: texts(a, b),
        lambda a, b, *more, **named: texts(a, b),
        Callables().method,
        functools.partial(lambda scale, a, b: texts(a, b), 2.0),
        functools.lru_cache(texts).__wrapped__,
    ],
)
def test_a_function_of_two_arguments_gets_the_last_messages_and_the_answers(function: Callable[..., object]) -> None:
    """Lists of texts, as functions written for (prompts, answers) were always called."""
    assert FunctionReward(function, "f")(TWO).tolist() == [len("Why?So."), len("No.")]


def test_what_a_function_of_completions_sees() -> None:
    seen: list[Completion] = []

    def function(completions: Sequence[Completion]) -> list[float]:
        seen.extend(completions)
        return [0.0] * len(completions)

    FunctionReward(function, "f")(TWO)
    assert (seen[0].messages, seen[0].answer, seen[0].data) == (TALK, "So.", {"level": 3})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (list, "asks for nothing; it must take"),
        (lambda *completions: [], "asks for nothing; it must take"),
        (lambda a, b, c: [], "asks for a, b, c; it must take"),
        (lambda completions, *, scale: [], "asks for completions, scale; it must take"),
        (lambda prompts=None, answers=None: [], "asks for nothing"),
    ],
)
def test_any_other_signature_is_refused_before_it_is_called(function: Callable[..., object], told: str) -> None:
    with pytest.raises(TutelageError, match=f"The reward function f {told}"):
        FunctionReward(function, "f")


def test_a_signature_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object) -> object:
        raise ValueError("no signature found for builtin")

    monkeypatch.setattr(inspect, "signature", refuse)
    with pytest.raises(TutelageError, match="The parameters of the reward function f cannot be read"):
        argument_count(whole, "f")


def lookup(table: dict[str, float], key: str) -> float:
    return table[key]


def test_an_exception_keeps_its_innermost_line() -> None:
    def function(completions: Sequence[Completion]) -> list[float]:
        return [lookup({}, one.answer) for one in completions]

    line = inspect.getsourcelines(lookup)[1] + 1
    with pytest.raises(TutelageError, match=rf"f raised KeyError: 'So\.' \(test_function\.py:{line}\)"):
        FunctionReward(function, "f")(TWO)


def test_an_exception_in_a_library_is_told_with_the_functions_own_line() -> None:
    def function(completions: Sequence[Completion]) -> list[float]:
        return [float(inspect.getsource(type(one.answer)) != "") for one in completions]

    line = inspect.getsourcelines(function)[1] + 1
    with pytest.raises(TutelageError, match=rf"raised TypeError: .* \(test_function\.py:{line}\)"):
        FunctionReward(function, "f")(TWO)


def test_a_generator_is_run_where_its_errors_are_told() -> None:
    def function(completions: Sequence[Completion]) -> object:
        yield 1.0
        raise KeyError("second")

    with pytest.raises(TutelageError, match=r"f raised KeyError: 'second' \(test_function"):
        FunctionReward(function, "f")(TWO)


def test_a_refusal_of_the_function_itself_is_passed_on() -> None:
    def function(completions: Sequence[Completion]) -> object:
        raise TutelageError("Set the environment variable ANSWERS.")

    with pytest.raises(TutelageError, match=r"^Set the environment variable ANSWERS\.$"):
        FunctionReward(function, "f")(TWO)


def test_scores_that_are_none_are_told_with_the_functions_name() -> None:
    with pytest.raises(TutelageError, match=r"The reward function letters returned 1 score for 2 answers"):
        FunctionReward(lambda completions: [1.0], "letters")(TWO)
