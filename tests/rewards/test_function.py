"""What a function is called with follows from its signature; what it does wrong is told with its line."""

import asyncio
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
from offenders import for_each

from tutelage.base.concurrency import Calls
from tutelage.base.errors import TutelageError
from tutelage.rewards.composite import WeightedReward
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


@for_each(
    [
        whole,
        lambda completions, scale=2.0: whole(completions),
        lambda completions, *, scale=2.0, **more: whole(completions),
        Callables(),
        Callables.static,
        functools.partial(lambda scale, completions: whole(completions), 2.0),
    ]
)
def test_a_function_of_one_argument_gets_the_completions(function: Callable[..., object]) -> None:
    assert FunctionReward(function, "f")(TWO).tolist() == [4.0, 0.0]


@for_each(
    [
        texts,
        lambda a, b: texts(a, b),
        lambda a, b, scale=1.0: texts(a, b),
        lambda a, b, *more, **named: texts(a, b),
        Callables().method,
        functools.partial(lambda scale, a, b: texts(a, b), 2.0),
        functools.lru_cache(texts).__wrapped__,
    ]
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


@for_each(
    [
        (list, "asks for nothing; it must take"),
        (lambda *completions: [], "asks for nothing; it must take"),
        (lambda a, b, c: [], "asks for a, b, c; it must take"),
        (lambda completions, *, scale: [], "asks for completions, scale; it must take"),
        (lambda prompts=None, answers=None: [], "asks for nothing"),
    ]
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


MANY = [completion(f"{i}", f"p{i // 2}") for i in range(6)]


def numbers(completions: Sequence[Completion]) -> list[float | None]:
    return [None if one.answer == "3" else float(one.answer) for one in completions]


async def numbers_later(completions: Sequence[Completion]) -> list[float | None]:
    await asyncio.sleep(0)
    return numbers(completions)


class Later:
    async def __call__(self, prompts: list[str], answers: list[str]) -> list[float | None]:
        return [None if answer == "3" else float(answer) for answer in answers]


@for_each(
    product(
        [numbers, numbers_later, Later(), functools.partial(numbers_later)],
        [Calls(), Calls(1), Calls(4, timeout=20, retries=1), Calls(100)],
    )
)
def test_the_scores_depend_neither_on_async_nor_on_the_workers(function: Callable[..., object], calls: Calls) -> None:
    scores = FunctionReward(function, "f", calls)(MANY)
    assert scores.nan_to_num(-1).tolist() == [0.0, 1.0, 2.0, -1.0, 4.0, 5.0]
    assert not len(FunctionReward(function, "f", calls)([]))


def test_a_function_computes_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_process.py").write_text(
        "import os\n\ndef score(completions):\n    if completions[0].answer == '5':\n        os._exit(3)\n"
        "    return [os.getpid() / int(one.answer) for one in completions]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    reward = FunctionReward(importlib.import_module("own_process").score, "score", Calls(1, processes=True))
    first, second = reward([MANY[1], MANY[2]]).tolist(), reward([MANY[1]]).tolist()
    assert first == [second[0], second[0] / 2]  # one process, kept for the next rollout
    assert second[0] != os.getpid()
    with pytest.raises(TutelageError, match=r"score raised ZeroDivisionError.*own_process\.py:6.*answer 2 of 2 \('0'"):
        reward([MANY[1], MANY[0]])
    with pytest.raises(TutelageError, match=r"score failed.* 3 for answer 2 of 2 \('5', to prompt p2\)"):
        reward([MANY[1], MANY[5]])


def test_a_time_out_does_not_include_the_imports_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch takes a second or two; the CPU time does not depend on what else the machine computes."""
    (tmp_path / "own_time.py").write_text(
        "import time\nSTART = time.process_time()\n\ndef score(completions):\n"
        "    return [time.process_time() - START for one in completions]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    score = importlib.import_module("own_time").score
    assert float(FunctionReward(score, "score", Calls(1, processes=True))([MANY[1]])) < 0.3


@pytest.mark.parametrize("function", [lambda completions: [], numbers_later])
def test_functions_that_processes_cannot_call(function: Callable[..., object]) -> None:
    with pytest.raises(TutelageError, match=r"f (cannot be imported|is async)"):
        FunctionReward(function, "f", Calls(2, processes=True))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_fault_of_a_concurrent_call_names_the_row(asynchronous: bool) -> None:
    def function(completions: Sequence[Completion]) -> list[float]:
        return [lookup({str(i): 1.0 for i in range(6) if i != 4}, one.answer) for one in completions]

    async def later(completions: Sequence[Completion]) -> list[float]:
        return function(completions)

    with pytest.raises(TutelageError, match=r"f raised KeyError: '4' .*answer 5 of 6 \('4', to prompt p2\), .*2 att"):
        FunctionReward(later if asynchronous else function, "f", Calls(3, retries=1))(MANY)


def test_a_score_beyond_its_time_out_is_refused_and_never_zero() -> None:
    async def later(completions: Sequence[Completion]) -> list[float]:
        await asyncio.sleep(30 if completions[0].answer == "2" else 0)
        return [1.0]

    with pytest.raises(TutelageError, match=r"f took more than 0.05 seconds for answer 3 of 6 \('2', to prompt p1\)"):
        FunctionReward(later, "f", Calls(6, timeout=0.05))(MANY)


def test_a_composite_reward_keeps_its_parts_under_workers() -> None:
    whole = WeightedReward(((1.0, FunctionReward(numbers, "a")), (2.0, FunctionReward(whole_length, "b"))))
    alone, together = FunctionReward(whole, "f").breakdown(MANY), FunctionReward(whole, "f", Calls(3)).breakdown(MANY)
    assert alone.total.tolist() == together.total.tolist()
    assert {name: part.nan_to_num().tolist() for name, part in alone.parts.items()} == {
        name: part.nan_to_num().tolist() for name, part in together.parts.items()
    }


def whole_length(completions: Sequence[Completion]) -> list[float]:
    return [float(len(one.answer)) for one in completions]
