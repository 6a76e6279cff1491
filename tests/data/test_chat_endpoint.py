"""The client of chat endpoints: what it sends, what it understands, when it asks again and what it says."""

import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import CHARACTERS, Endpoint, EndpointReply, EndpointUsage, PaidEndpoint, Prices
from tutelage.data.records import Message, user
from tutelage.data.transport import Transport, Unanswered

QUESTION = (Message("system", "Be brief."), *user("Why?"))


def endpoint(url, **changes):
    return Endpoint(url, "m", **{"wait": 0.0} | changes)


def test_a_conversation_goes_out_and_replies_come_back():
    with serving(lambda body, number: choices("So.", "Thus.")) as served:
        found = endpoint(served.url, key="secret").ask(QUESTION, n=2, temperature=0.5, max_tokens=9)
    assert found == [EndpointReply("So."), EndpointReply("Thus.")]
    assert served.keys == ["Bearer secret"]
    assert served.asked == [
        {
            "path": "/v1/chat/completions",
            "model": "m",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
            "temperature": 0.5,
            "max_tokens": 9,
            "n": 2,
        }
    ]
    assert "secret" not in repr(endpoint("http://x", key="secret"))


def test_a_server_that_gives_one_reply_at_a_time_is_asked_until_there_are_enough():
    with serving(lambda body, number: choices(f"{body['seed']}")) as served:
        found = endpoint(served.url).ask(QUESTION, n=3, seed=7)
    assert [reply.text for reply in found] == ["7", "8", "9"], "with one seed the three would be one"
    assert [asked.get("n") for asked in served.asked] == [3, 2, None]


def test_more_replies_than_asked_for_are_left():
    with serving(lambda body, number: choices("a", "b")) as served:
        assert endpoint(served.url).ask(QUESTION) == [EndpointReply("a")]


def test_a_reply_that_was_cut_is_not_finished():
    with serving(lambda body, number: choices("So it", cut=True)) as served:
        assert endpoint(served.url).ask(QUESTION) == [EndpointReply("So it", finished=False)]


@for_each([429, 500, 503])
def test_what_passes_is_tried_again(status):
    with serving(lambda body, number: status if number < 2 else choices("So.")) as served:
        assert endpoint(served.url).ask(QUESTION) == [EndpointReply("So.")]
    assert len(served.asked) == 3


def test_what_lasts_is_told_after_the_last_attempt():
    told = "did not answer after 3 attempts: status 503, told about 503"
    with serving(lambda body, number: 503) as served, pytest.raises(TutelageError, match=told):
        endpoint(served.url, retries=2).ask(QUESTION)
    assert len(served.asked) == 3


def test_what_a_server_may_have_received_is_not_repeated_on_request():
    once = Transport("The server", retries=2, wait=0.0, repeats=False)
    with serving(lambda body, number: 503) as served:
        with pytest.raises(Unanswered, match="did not answer after 1 attempt"):
            once.post(served.url, {})
        assert len(served.asked) == 1
    with pytest.raises(Unanswered, match="did not answer after 3 attempts"):
        once.post(served.url, {})


def test_a_server_that_names_a_time_is_given_it():
    with serving(lambda body, number: 429 if number == 0 else choices("So.")) as served:
        served.headers = {"Retry-After": "0.2"}
        began = time.monotonic()
        endpoint(served.url).ask(QUESTION)
        assert time.monotonic() - began > 0.2


@for_each([400, 401, 404])
def test_a_refusal_is_told_at_once_with_the_servers_own_words(status):
    told = f"refused the request: status {status}, told about {status}"
    with serving(lambda body, number: status) as served, pytest.raises(TutelageError, match=told):
        endpoint(served.url).ask(QUESTION)
    assert len(served.asked) == 1


@for_each(
    [
        ("<html>", "with JSON"),
        ({}, "without choices"),
        ({"choices": []}, "empty list"),
        ({"choices": [{"text": "old form"}]}, "without choices.*old form"),
        ({"choices": None}, "without choices"),
    ]
)
def test_what_is_no_answer_is_said_so(said, told):
    with serving(lambda body, number: said) as served, pytest.raises(TutelageError, match=told):
        endpoint(served.url).ask(QUESTION)


def test_nobody_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    with pytest.raises(TutelageError, match=r"m at .*/v1/chat/completions did not answer.*Is it running"):
        endpoint(url, retries=1).ask(QUESTION)


def test_too_slow():
    def slow(body, number):
        time.sleep(0.5)
        return choices("at last")

    with serving(slow) as served, pytest.raises(TutelageError, match="timed out"):
        endpoint(served.url, timeout=0.1, retries=0).ask(QUESTION)


@for_each(["localhost:8000/v1", "/models/mine", ""])
def test_an_address_that_is_none(url):
    with pytest.raises(TutelageError, match=r"not an endpoint.*http://localhost:8000/v1"):
        Endpoint(url, "m")


@for_each(["http://", "http://localhost:port/v1", "http://[::1"])
def test_an_address_without_a_place(url):
    with pytest.raises(TutelageError, match=r"not an endpoint.*http://localhost:8000/v1"):
        endpoint(url).ask(QUESTION)


@for_each(["secret\n", "sécret", "sec\x00ret"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_repeated(key):
    with pytest.raises(TutelageError, match="no HTTP header") as caught:
        Endpoint("http://localhost", "m", key=key)
    assert "ret" not in str(caught.value)


def test_half_a_character_is_sent_as_json_writes_it():
    with serving(lambda body, number: choices("So.")) as served:
        endpoint(served.url).ask(user("\ud800"))
    assert served.asked[0]["messages"][0]["content"] == "\ud800"


def test_pauses_double_and_a_longer_one_is_granted_up_to_a_minute(monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    wishes = iter(["0", "2.5", "3600", "soon", "", ""])

    def busy(body, number):
        served.headers = {"Retry-After": next(wishes)}
        return 503

    with serving(busy) as served, pytest.raises(TutelageError, match="after 6 attempts"):
        endpoint(served.url, wait=1.0, retries=5).ask(QUESTION)
    assert pauses == [1.0, 2.5, 60.0, 8.0, 16.0]


def test_an_answer_that_breaks_off_is_asked_for_again():
    with serving(lambda body, number: choices("So.")) as served:
        served.headers = {"Content-Length": "1000", "Connection": "close"}
        with pytest.raises(TutelageError, match="2 attempts"):
            endpoint(served.url, retries=1).ask(QUESTION)
    assert len(served.asked) == 2


def test_requests_share_a_connection_and_do_not_wait_for_each_others_packets():
    """Headers and body leave in two packets. Without TCP_NODELAY the second waits until the first is acknowledged, 40
    ms and more at each request on an open connection; a busy machine delays some requests, never all."""
    with serving(lambda body, number: choices("So.")) as served:
        model, seconds = endpoint(served.url), []
        for _ in range(15):
            began = time.monotonic()
            model.ask(QUESTION)
            seconds.append(time.monotonic() - began)
        assert served.connections == 1
    assert min(seconds[1:]) < 0.03


def said(text: str, read: int, written: int) -> dict[str, Any]:
    return choices(text) | {"usage": {"prompt_tokens": read, "completion_tokens": written}}


def word(reply: str) -> str | None:
    return reply if reply.isalpha() else None


def test_equal_questions_are_sent_once_and_everything_is_counted() -> None:
    with serving(lambda body, number: said("yes", 100, 10)) as served:
        paid = PaidEndpoint(Endpoint(served.url, "m"), 0.5, Prices(read=2.0, written=30.0))
        assert [paid.ask(text, word, "word") for text in ("a", "b", "a")] == ["yes"] * 3
        assert paid.usage == EndpointUsage(2, 1, 200, 20, pytest.approx(2 * (200 + 300) / 1e6))
        warmer = replace(paid, temperature=1.0)
        warmer.ask("a", word, "word")
    assert [asked["temperature"] for asked in served.asked] == [0.5, 0.5, 1.0]


def test_replies_of_another_model_or_temperature_are_not_taken(tmp_path: Path) -> None:
    with serving(lambda body, number: choices("abc"[number])) as served:
        first = PaidEndpoint(Endpoint(served.url, "m"), 0.0, file=tmp_path / "replies.jsonl")
        warm = replace(first, temperature=1.0)
        other = replace(first, endpoint=Endpoint(served.url, "n"))
        assert [each.ask("?", word, "word") for each in (first, warm, other, replace(first))] == ["a", "b", "c", "a"]


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
        with pytest.raises(TutelageError, match=r"judge m gave no word: '2!'"):
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
        assert second.usage == EndpointUsage(1, 2, 1000, 0, pytest.approx(3e-3)), "the cost of all runs"
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
            with pytest.raises(TutelageError, match=r"budget of 0.0025"):
                again.ask("d", word, "word")
    assert len(served.asked) == 3


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Dear diary,\n")
    paid = PaidEndpoint(Endpoint("http://localhost:1/v1", "m"), file=file)
    with pytest.raises(TutelageError, match="judge's replies"):
        paid.ask("a", word, "word")
    assert file.read_text() == "Dear diary,\n"
    unwritable = PaidEndpoint(Endpoint("http://localhost:1/v1", "m"), file=tmp_path)
    with pytest.raises(TutelageError, match="cannot be read"):
        unwritable.ask("a", word, "word")


@for_each([{"read": -1.0}, {"budget": 5.0}, {"written": float("inf")}])
def test_prices_that_are_none(prices: dict[str, float]) -> None:
    with pytest.raises(TutelageError, match=r"0 or more|needs the prices"):
        Prices(**prices)
