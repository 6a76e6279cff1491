"""Replies are kept by what was asked, counted, and paid for out of a budget."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.data.endpoint import Endpoint
from tutelage.data.paid_endpoint import CHARACTERS, PaidEndpoint, Prices, Usage


def said(text: str, read: int, written: int) -> dict[str, Any]:
    return choices(text) | {"usage": {"prompt_tokens": read, "completion_tokens": written}}


def word(reply: str) -> str | None:
    return reply if reply.isalpha() else None


def test_equal_questions_are_sent_once_and_everything_is_counted() -> None:
    with serving(lambda body, number: said("yes", 100, 10)) as served:
        paid = PaidEndpoint(Endpoint(served.url, "m"), 0.5, Prices(read=2.0, written=30.0))
        assert [paid.ask(text, word, "word") for text in ("a", "b", "a")] == ["yes"] * 3
        assert paid.usage == Usage(2, 1, 200, 20, pytest.approx(2 * (200 + 300) / 1e6))
        warmer = replace(paid, temperature=1.0)
        warmer.ask("a", word, "word")
    assert [asked["temperature"] for asked in served.asked] == [0.5, 0.5, 1.0]


def test_replies_of_another_model_or_temperature_are_not_taken(tmp_path: Path) -> None:
    with serving(lambda body, number: choices("abc"[number])) as served:
        first = PaidEndpoint(Endpoint(served.url, "m"), 0.0, file=tmp_path / "replies.jsonl")
        warm = replace(first, temperature=1.0)
        other = replace(first, endpoint=Endpoint(served.url, "n"))
        assert [each.ask("?", word, "word") for each in (first, warm, other, replace(first))] == [
            "a",
            "b",
            "c",
            "a",
        ]


def test_tokens_are_estimated_where_the_endpoint_does_not_count_them() -> None:
    with serving(lambda body, number: choices("y" * 4 * CHARACTERS)) as served:
        paid = PaidEndpoint(Endpoint(served.url, "m"))
        paid.ask("x" * (2 * CHARACTERS + 1), word, "word")
    assert (paid.usage.read, paid.usage.written) == (3, 4)


def test_a_reply_that_cannot_be_read_is_asked_for_once_more_and_then_refused() -> None:
    replies = ["1!", "fine", "1!", "2!"]
    with serving(lambda body, number: said(replies[number], 1, 1)) as served:
        paid = PaidEndpoint(Endpoint(served.url, "m"))
        assert paid.ask("a", word, "word") == "fine"
        assert paid.ask("a", word, "word") == "fine"
        with pytest.raises(TutelageError, match=r"The judge m gave no word: '2!'"):
            paid.ask("b", word, "word")
    assert len(served.asked) == 4, "both replies to a question are kept"


def test_a_file_of_replies_is_read_by_later_runs(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    with serving(lambda body, number: said(f"yes{'abc'[number]}", 1000, 0)) as served:
        first = PaidEndpoint(Endpoint(served.url, "m"), prices=Prices(read=1.0), file=file)
        assert [first.ask(text, word, "word") for text in "xy"] == ["yesa", "yesb"]
        with file.open("a") as cut:
            cut.write('{"asked": "12')
        second = replace(first)
        assert [second.ask(text, word, "word") for text in "xyz"] == ["yesa", "yesb", "yesc"]
        assert second.usage == Usage(1, 2, 1000, 0, pytest.approx(3e-3)), "the cost of all runs"
    assert len(served.asked) == 3
    assert [json.loads(line)["reply"] for line in file.read_text().splitlines()] == ["yesa", "yesb", "yesc"]


def test_nothing_is_sent_when_the_budget_is_spent(tmp_path: Path) -> None:
    prices = Prices(read=1.0, budget=0.0025)
    with serving(lambda body, number: said("yes", 1000, 0)) as served:
        paid = PaidEndpoint(Endpoint(served.url, "m"), prices=prices, file=tmp_path / "replies.jsonl")
        for text in "abc":
            paid.ask(text, word, "word")
        for again in (paid, replace(paid)):
            assert again.ask("a", word, "word") == "yes"
            with pytest.raises(TutelageError, match=r"The budget of 0.0025 for the judge m is spent"):
                again.ask("d", word, "word")
    assert len(served.asked) == 3


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Dear diary,\n")
    paid = PaidEndpoint(Endpoint("http://localhost:1/v1", "m"), file=file)
    with pytest.raises(TutelageError, match="no file of a judge's replies"):
        paid.ask("a", word, "word")
    assert file.read_text() == "Dear diary,\n"
    unwritable = PaidEndpoint(Endpoint("http://localhost:1/v1", "m"), file=tmp_path)
    with pytest.raises(TutelageError, match="cannot be read"):
        unwritable.ask("a", word, "word")


@pytest.mark.parametrize("prices", [{"read": -1.0}, {"budget": 5.0}, {"written": float("inf")}])
def test_prices_that_are_none(prices: dict[str, float]) -> None:
    with pytest.raises(TutelageError, match=r"0 or more|needs the prices"):
        Prices(**prices)
