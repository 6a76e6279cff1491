"""Answers on their way: what is shown of them, what is kept, and what happens where a model or a page goes away."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from scripted_chat import Scripted, echoing, finished, saying
from served import serving

from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Messages, ToolCall
from tutelage.data.transport import HttpRefusal, Unanswered
from tutelage.people import (
    Assignment,
    Plan,
    Store,
    Unavailable,
    add_rater,
    create_study,
    list_notices,
    list_questions,
    list_votes,
    start_session,
)
from tutelage.people.live_conversation import next_step, only_endpoints, say
from tutelage.people.store.conversations import LiveModels, Turn, set_live_models
from tutelage.people.web import create_app, streams
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.site import cookie_name
from tutelage.people.web.streams import ResponseStream, ResponseStreams, _Response
from tutelage.rollout.tools.builtin import load_tools
from tutelage.rollout.tools.tool import Tool, Toolbox

from .conftest import URL

ALONE = Plan(overlap=1, gold_rate=0.0, repeat_rate=0.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before a model is asked again."""
    monkeypatch.setattr(streams, "WAIT", 0.0)


def said(store: Store, text: str = "Hello", tools: Sequence[str] = ()) -> Turn:
    """A rater's first message to the models "one" and "two"."""
    study = create_study(store, "talks", plan=ALONE, secret="5a" * 32)
    set_live_models(store, study.id, LiveModels("one", "two", sampling={"temperature": 0.5}))
    return say(store, add_rater(store, study.id, "anna").id, None, text, "key", tools=tools)


def events(chunks: bytes) -> list[dict[str, Any]]:
    """The data of server-sent events."""
    lines = chunks.decode().split("\n\n")
    assert lines.pop() == ""
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def everything(running: ResponseStreams, turn: Turn) -> list[dict[str, Any]]:
    """All events of a turn, as one page sees them."""
    return events(b"".join([chunk async for chunk in running.events(turn)]))


def texts(seen: list[dict[str, Any]]) -> list[str]:
    """What stands in both cards before it is HTML."""
    found = ["", ""]
    for event in seen:
        if "side" in event:
            found[event["side"]] = event.get("whole", found[event["side"]] + event.get("text", ""))
    return found


def sides(turn: Turn, one: object, two: object) -> list[object]:
    """What belongs to the two models, from left to right."""
    return [(one, two)[model] for model in turn.order]


def show(store: Store, turn: Turn, models: Scripted) -> list[dict[str, Any]]:
    return finished(everything(ResponseStreams(store, models), turn))


def test_pieces_go_out_as_they_come_and_the_turn_becomes_a_question(lite: Store) -> None:
    turn = said(lite, "Why?")
    models = Scripted.of(one=saying("On", 0.001, "e *says* ", 0.001, "<b", 0.001, ">so</b>"), two=echoing("Two"))
    seen = show(lite, turn, models)
    assert texts(seen) == sides(turn, "One *says* <b>so</b>", "Two says: Why?")
    html = {event["side"]: event["html"] for event in seen if "html" in event}
    assert html[turn.order.index(0)] == '<p dir="ltr">One <em>says</em> &lt;b&gt;so&lt;/b&gt;</p>\n'
    assert seen[-1] == {"ready": True}
    pieces = [e for e in seen if e.get("side") == turn.order.index(0) and ("text" in e or e.get("whole"))]
    assert len(pieces) >= 4  # not held back until the answer was complete
    question = next_step(lite, turn.rater_id)
    assert isinstance(question, Assignment)
    assert list(question.texts) == texts(seen)
    assert [model.asked for model in models.models.values()] == [[turn.messages]] * 2
    (one,), (two,) = (model.options for model in models.models.values())
    assert one["temperature"] == two["temperature"] == 0.5
    assert one["seed"] != two["seed"]  # the same model twice would else say the same


def test_a_page_that_goes_away_loses_nothing_and_one_that_comes_sees_everything(lite: Store) -> None:
    turn = said(lite)
    steps = [part for n in range(20) for part in (f"{n} ", 0.002)]
    models = Scripted.of(one=saying(*steps), two=saying("short"))

    async def scene() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        running = ResponseStreams(lite, models)
        first: AsyncGenerator[bytes] = running.events(turn)
        async for chunk in first:
            if b'"text"' in chunk:
                break
        await first.aclose()  # the connection broke
        joined = await asyncio.gather(*(everything(running, turn) for _ in range(2)))
        return joined[0], joined[1]

    for seen in finished(scene()):
        whole = "".join(f"{n} " for n in range(20))
        assert texts(seen)[turn.order.index(0)] == whole
        assert seen[-1] == {"ready": True}
    assert [len(model.asked) for model in models.models.values()] == [1, 1]
    late = show(lite, turn, models)  # a new process, long afterwards
    assert sorted(event["side"] for event in late if "html" in event) == [0, 1]
    assert late[-1] == {"ready": True}
    assert [len(model.asked) for model in models.models.values()] == [1, 1]


@pytest.mark.parametrize(
    "fault", [Unanswered("gone"), TutelageError("odd"), "   "], ids=["unanswered", "odd", "nothing but space"]
)
def test_a_model_that_fails_in_the_middle_is_asked_again(lite: Store, fault: Exception | str) -> None:
    turn = said(lite)
    tries: list[int] = []

    def stumbling(messages: object) -> list[Any]:
        tries.append(1)
        return (
            ["half an ans", 0.001, fault]
            if isinstance(fault, Exception) and len(tries) < 3
            else ([fault] if len(tries) < 3 else ["whole"])
        )

    models = Scripted.of(one=stumbling, two=saying("fine"))
    seen = show(lite, turn, models)
    assert texts(seen) == sides(turn, "whole", "fine")
    assert seen[-1] == {"ready": True}
    assert len({options["seed"] for options in models.models["one"].options}) == 3
    assert len(models.models["two"].asked) == 1
    assert list_notices(lite, turn.study_id) == ()


def test_a_dead_model_costs_nothing_but_time(lite: Store) -> None:
    """After all attempts a sentence that names nobody; the other answer is kept, and only what is missing is asked for
    again."""
    turn = said(lite)
    dead = [Unanswered("The model one at http://secret:8000 did not answer")]
    models = Scripted.of(one=lambda messages: dead or ["back again"], two=saying("fine"))
    seen = show(lite, turn, models)
    assert seen[-1] == {"failed": streams.SILENT}
    show(lite, turn, models)
    (notice,) = list_notices(lite, turn.study_id)  # once, however often it fails
    assert (notice.kind, notice.text) == ("model", "one: The model one at http://secret:8000 did not answer")
    assert "secret" not in json.dumps(seen)
    step = next_step(lite, turn.rater_id)
    assert getattr(step, "writing", None) == turn.id
    dead.clear()
    seen = show(lite, turn, models)
    assert seen[-1] == {"ready": True}
    assert [len(model.asked) for model in models.models.values()] == [7, 1]
    question = next_step(lite, turn.rater_id)
    assert isinstance(question, Assignment)
    assert list(question.texts) == sides(turn, "back again", "fine")


def test_answers_that_end_while_news_go_out_are_told_before_the_question() -> None:
    """The first answer ends between its own news and those of the second, with which the turn is over."""

    async def look() -> bytes:
        turn: Any = SimpleNamespace(turn=SimpleNamespace(order=(0, 1)))
        stream = ResponseStream(turn, (_Response("a"), _Response("b")))
        news = stream.events()
        found = await anext(news)
        for answer in stream.responses:
            answer.html = answer.text.upper()
        stream.over = True
        stream.tell()
        return found + b"".join([event async for event in news])

    with ThreadPoolExecutor(1) as thread:  # a browser's event loop may run in this one
        seen = thread.submit(asyncio.run, look()).result()
    assert events(seen) == [
        {"side": 0, "whole": "a"},
        {"side": 1, "html": "B"},
        {"side": 0, "html": "A"},
        {"ready": True},
    ]


def test_a_model_that_refuses_is_not_asked_again(lite: Store) -> None:
    turn = said(lite)
    refusal = HttpRefusal("too long", 400, "context_length_exceeded")
    models = Scripted.of(one=saying(refusal), two=saying("fine"))
    assert show(lite, turn, models)[-1] == {"failed": streams.REFUSED}
    assert len(models.models["one"].asked) == 1


def test_a_model_that_is_not_there_or_breaks_is_told_as_silence(lite: Store, caplog: pytest.LogCaptureFixture) -> None:
    turn = said(lite)
    assert show(lite, turn, Scripted.of(two=saying("fine")))[-1] == {"failed": streams.SILENT}
    assert "There is no model one here" in caplog.text
    defect = Scripted.of(one=saying(ZeroDivisionError("a defect")), two=saying("fine"))
    assert show(lite, turn, defect)[-1] == {"failed": streams.SILENT}
    assert "Traceback" in caplog.text


def test_what_no_database_stores_is_replaced_and_what_never_ends_is_cut(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LONGEST", 50)
    turn = said(lite)
    odd = saying("zero \x00, half \ud83d", 0.0, " and whole \ud83d", 0.0, "\ude00 \u2028 ")
    seen = show(lite, turn, Scripted.of(one=odd, two=lambda messages: ("word " for _ in range(10_000))))
    assert seen[-1] == {"ready": True}
    (question,) = list_questions(lite, turn.study_id)
    kept = {completion.sampler: completion for completion in question.completions}
    assert kept["one"].text == "zero \ufffd, half \ufffd and whole \U0001f600"
    assert kept["one"].finished
    assert len(kept["two"].text) < 70
    assert not kept["two"].finished


def test_a_busy_database_is_asked_again_before_an_answer_is_given_up(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = said(lite)
    kept, busy = streams.keep_answer, [2]

    def sometimes(*values: Any, **more: Any) -> bool:
        if busy[0]:
            busy[0] -= 1
            raise Unavailable("locked")
        return kept(*values, **more)

    monkeypatch.setattr(streams, "keep_answer", sometimes)
    models = Scripted.of(one=saying("one"), two=saying("two"))
    assert show(lite, turn, models)[-1] == {"ready": True}
    assert [len(model.asked) for model in models.models.values()] == [1, 1]


def test_a_silent_connection_carries_signs_of_life(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.01)
    turn = said(lite)

    async def scene() -> list[bytes]:
        running = ResponseStreams(lite, Scripted.of(one=saying(0.1, "late"), two=saying("fine")))
        return [chunk async for chunk in running.events(turn)]

    assert finished(scene()).count(b":\n\n") >= 3


SCHEMA = json.dumps({"type": "function", "function": {"name": "add"}})


class OfferedAlways:
    """Tools that every conversation offers."""

    schemas = (SCHEMA,)

    def among(self, schemas: Sequence[str]) -> Self:
        return self


class Adder(OfferedAlways):
    """A tool for live conversations; `at_once` is the most calls that ran at the same time."""

    def __init__(self, result: str = "3") -> None:
        self.result, self.running, self.at_once = result, 0, 0

    async def run(self, call: ToolCall) -> Message:
        self.running += 1
        self.at_once = max(self.at_once, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        if call.name != "add":
            raise Unanswered("the tool's host is away")
        return Message("tool", self.result, name=call.name, call_id=call.id)


def adding(count: int, then: str = "So 3.") -> Any:
    """An answer that calls the tool so often, all at once, and then says something."""

    def script(messages: Messages) -> list[Any]:
        if messages[-1].role == "tool":
            return [then]
        return ["Let me *add*.", *(ToolCall("add", "{}", f"c{n}") for n in range(count))]

    return script


def test_tools_run_and_their_results_are_shown_as_they_come(lite: Store) -> None:
    turn = said(lite)
    models, tools = Scripted.of(one=adding(1), two=saying("four")), Adder("3 <script>\x00")
    seen = finished(everything(ResponseStreams(lite, models, tools), turn))
    side = turn.order.index(0)
    messages = [event["message"] for event in seen if event.get("side") == side and "message" in event]
    assert len(messages) == 2
    assert "<em>add</em>" in messages[0]
    assert "3 &lt;script&gt;" in messages[1]
    whole = next(event["html"] for event in seen if event.get("side") == side and "html" in event)
    assert whole == "".join(messages) + '<p dir="ltr">So 3.</p>\n'
    assert seen[-1] == {"ready": True}
    again = finished(everything(ResponseStreams(lite, models, tools), turn))
    assert {"side": side, "html": whole} in again
    question = next_step(lite, turn.rater_id)
    assert isinstance(question, Assignment)
    called, result, last = (
        message for step in question.steps[side] for message in step if not isinstance(message, str)
    )
    assert (called.calls, result.content, last.content) == ((ToolCall("add", "{}", "c0"),), "3 <script>\ufffd", "So 3.")
    assert models.models["one"].asked[1] == (*turn.messages, called, result)


@pytest.mark.parametrize("calls", [streams.MOST_CALLS, streams.MOST_CALLS + 1])
def test_a_response_that_calls_too_often_is_cut(lite: Store, calls: int) -> None:
    turn = said(lite)
    finished(everything(ResponseStreams(lite, Scripted.of(one=adding(calls), two=adding(1)), tools := Adder()), turn))
    (question,) = list_questions(lite, turn.study_id)
    one = next(completion for completion in question.completions if completion.sampler == "one")
    assert one.finished == (calls == streams.MOST_CALLS)
    results = [m.content for step in one.steps if not isinstance(step, str) for m in step if m.role == "tool"]
    assert [result.startswith("error") for result in results].count(True) == calls - streams.MOST_CALLS
    assert tools.at_once <= streams.CALLS_AT_ONCE


def test_results_and_calls_without_end_are_cut(lite: Store) -> None:
    def endless(messages: Messages) -> list[Any]:
        return [ToolCall("add", "{}")]

    turn, long = said(lite), Adder("x" * (streams.LONGEST // 2 - 10))
    finished(everything(ResponseStreams(lite, Scripted.of(one=endless, two=saying("x")), long), turn))
    (question,) = list_questions(lite, turn.study_id)
    one = next(completion for completion in question.completions if completion.sampler == "one")
    assert (len(one.steps), one.finished) == (3, False)


def test_calls_of_any_characters_are_kept(lite: Store) -> None:
    """Halves of surrogate pairs and zero characters, also where JSON escapes them."""
    calls = (
        ToolCall("add", r'{"a": "\ud83d \ud83d\ude00 \u0000"}', "x\x00"),
        ToolCall("a\ud83d", '{"\ud83d": 1}', "y"),
    )

    class Repeating(OfferedAlways):
        async def run(self, call: ToolCall) -> Message:
            return Message("tool", call.arguments, name=call.name, call_id=call.id)

    models = Scripted.of(one=lambda messages: ["So."] if messages[-1].role == "tool" else calls, two=saying("x"))
    turn = said(lite)
    assert finished(everything(ResponseStreams(lite, models, Repeating()), turn))[-1] == {"ready": True}
    (question,) = list_questions(lite, turn.study_id)
    one = next(completion for completion in question.completions if completion.sampler == "one")
    called = one.steps[0][0]
    assert isinstance(called, Message)
    assert [json.loads(call.arguments) for call in called.calls] == [{"a": "\ufffd \U0001f600 \0"}, {"\ufffd": 1}]
    assert [(call.name, call.id) for call in called.calls] == [("add", "x\ufffd"), ("a\ufffd", "y")]


def test_arguments_without_end_are_cut(lite: Store) -> None:
    arguments = json.dumps({"text": "x" * streams.LONGEST})
    models = Scripted.of(one=lambda messages: [ToolCall("add", arguments)], two=saying("x"))
    finished(everything(ResponseStreams(lite, models, Adder()), said(lite)))
    assert len(models.models["one"].asked) == 1


def test_a_call_is_made_once_though_its_model_and_the_host_of_another_tool_fail(lite: Store) -> None:
    """The first attempt ends with the second call, the second one in the text after both results."""
    turn, faults, tools = said(lite), [Unanswered("the tool's host is away")], Adder()

    class Ledger(OfferedAlways):
        """Writes down what it is called for."""

        def __init__(self) -> None:
            self.entries = list[str]()

        async def run(self, call: ToolCall) -> Message:
            self.entries.append(call.id)
            if call.id == "second" and self.entries.count("second") == 1:
                raise Unanswered("the tool's host is away")
            return await tools.run(call)

    def script(messages: Messages) -> list[Any]:
        if messages[-1].role != "tool":
            return ["Paying.", ToolCall("add", "{}", "first"), ToolCall("add", "{}", "second")]
        return ["half ", 0.001, faults.pop()] if faults else ["Paid."]

    models, ledger = Scripted.of(one=script, two=saying("fine")), Ledger()
    seen = finished(everything(ResponseStreams(lite, models, ledger), turn))
    assert ledger.entries == ["first", "second", "second"]
    assert seen[-1] == {"ready": True}
    question = next_step(lite, turn.rater_id)
    assert isinstance(question, Assignment)
    whole = [message for step in question.steps[turn.order.index(0)] for message in step]
    assert [message.content for message in whole if isinstance(message, Message)] == ["Paying.", "3", "3", "Paid."]
    shown: list[str] = []  # in the card of a page that was there from the beginning
    for event in seen:
        if event.get("side") == turn.order.index(0):
            shown = [] if "whole" in event else shown
            shown += [event["message"]] if "message" in event else []
    assert next(e["html"] for e in seen if e.get("side") == turn.order.index(0) and "html" in e).startswith(
        "".join(shown)
    )
    assert len(shown) == 3


def test_a_tool_that_the_conversation_does_not_offer_is_unknown(lite: Store) -> None:
    """A conversation that began before the server had the second tool."""
    (calculator,), added = load_tools(["calculator"]).tools, Tool("add", SCHEMA, lambda: 3)
    turn, tools = said(lite, tools=[calculator.schema]), Toolbox([calculator, added])
    called = (ToolCall("calculator", '{"expression": "6*7"}', "c1"), ToolCall("add", "{}", "c2"))

    def script(messages: Messages) -> list[Any]:
        return ["Done."] if messages[-1].role == "tool" else list(called)

    finished(everything(ResponseStreams(lite, Scripted.of(one=script, two=saying("fine")), tools), turn))
    question = next_step(lite, turn.rater_id)
    assert isinstance(question, Assignment)
    steps = question.steps[turn.order.index(0)]
    results = [each.content for step in steps for each in step if isinstance(each, Message) and each.role == "tool"]
    assert results == ["42", "error: there is no tool 'add'; the tools are: calculator"]
    assert (tools.calls["calls"], tools.calls["unknown"]) == (2, 1)


@pytest.mark.parametrize("tools", [None, Adder()])
def test_a_fault_of_a_tool_and_a_server_without_any_are_told_to_the_owner(lite: Store, tools: Adder | None) -> None:
    turn = said(lite)
    models = Scripted.of(one=saying(ToolCall("elsewhere", "{}")), two=saying("fine"))
    seen = finished(everything(ResponseStreams(lite, models, tools), turn))
    assert "failed" in seen[-1]
    assert len(models.models["one"].asked) == (streams.ATTEMPTS if tools is None else 1)
    (notice,) = list_notices(lite, turn.study_id)
    assert ("--tools" if tools is None else "away") in str(notice)


def test_an_endpoint_calls_the_calculator(lite: Store) -> None:
    def answer(body: dict[str, Any], number: int) -> str:
        function = {"name": "calculator", "arguments": '{"expression": "6*7"}'}
        delta: dict[str, Any] = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
        if body["messages"][-1]["role"] == "tool":
            delta = {"content": f"It is {body['messages'][-1]['content']}."}
        return f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': 'stop'}]})}\n\n"

    tools = load_tools(["calculator"])
    study = create_study(lite, "talks", plan=ALONE, secret="5a" * 32)
    with serving(answer) as served:
        set_live_models(lite, study.id, LiveModels(f"{served.url}#one", f"{served.url}#two"))
        turn = say(lite, add_rater(lite, study.id, "anna").id, None, "6*7?", "key", tools=tools.schemas)
        assert finished(everything(ResponseStreams(lite, only_endpoints, tools), turn))[-1] == {"ready": True}
    assert [[each["function"]["name"] for each in body["tools"]] for body in served.asked] == [["calculator"]] * 4
    (question,) = list_questions(lite, study.id)
    assert all(completion.text.endswith("It is 42.") for completion in question.completions)
    assert tools.calls["calls/calculator"] == 2


class Page:
    """A rater's page in the same event loop as the application."""

    def __init__(self, app: Any, cookie: str, session: str) -> None:
        self.app = app
        self.headers = {
            "host": URL.removeprefix("http://"), "origin": URL, "content-type": "application/json",
            "cookie": f"{cookie}={session}", "x-csrf-token": csrf_token(session),
        }  # fmt: skip

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, list[tuple[float, bytes]]]:
        """The status, and each piece of the body with the time at which it came."""
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in self.headers.items()],
            "client": ("127.0.0.1", 1), "server": ("site.test", 80), "scheme": "http", "asgi": {"version": "3.0"},
        }  # fmt: skip
        sent, never = [False], asyncio.Event()
        status, pieces = 0, []

        async def receive() -> dict[str, Any]:
            if sent[0]:
                await never.wait()
            sent[0] = True
            return {"type": "http.request", "body": body}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            if message.get("body"):
                pieces.append((time.perf_counter(), message["body"]))

        await self.app(scope, receive, send)
        return status, pieces

    async def post(self, path: str, data: object) -> dict[str, Any]:
        status, pieces = await self.request("POST", path, json.dumps(data).encode())
        assert status == 200, pieces
        reply: dict[str, Any] = json.loads(b"".join(piece for _, piece in pieces))
        return reply


def test_fifty_raters_talk_at_once(folder: Path) -> None:
    """Every one of them gets both answers to each message and is asked about nothing else; no reply names a model. Ten
    of them say a second one."""
    from tutelage.people import consent, open_store

    store = open_store(folder / "study.sqlite")
    study = create_study(store, "talks", plan=ALONE)
    set_live_models(store, study.id, LiveModels("SECRET-ONE", "SECRET-TWO", turns=2))
    models = Scripted.of(**{"SECRET-ONE": echoing("Alpha"), "SECRET-TWO": echoing("Beta")})
    app, cookie = create_app(store, models=models), cookie_name(store, secure=False)
    pages = []
    for number in range(50):
        rater = add_rater(store, study.id, f"rater {number}")
        consent(store, rater.id)
        pages.append(Page(app, cookie, start_session(store, rater.id)))
    bodies: list[bytes] = []

    async def talk(page: Page, number: int) -> None:
        conversation = None
        for turn in range(2 if number < 10 else 1):
            text = f"message {turn} of {number}"
            sent = await page.post("/rate/messages", {"conversation": conversation, "text": text, "key": text})
            conversation = sent["conversation"]
            status, pieces = await page.request("GET", f"/rate/turns/{sent['turn']}")
            bodies.extend(piece for _, piece in pieces)
            assert status == 200
            assert events(b"".join(piece for _, piece in pieces))[-1] == {"ready": True}
            reply = await page.post("/rate/next", {"besides": []})
            question = reply["question"]
            bodies.append(json.dumps(reply).encode())
            assert sorted(r["text"] for r in question["responses"]) == [f"Alpha says: {text}", f"Beta says: {text}"]
            side = ["left", "right"][question["responses"][1]["text"].startswith("Alpha")]
            answer = {"assignment": question["id"], "choice": side, "strength": 1, "key": f"vote {text}"}
            await page.post("/rate/answers", answer)

    async def scene() -> None:
        await asyncio.gather(*(talk(page, number) for number, page in enumerate(pages)))

    finished(scene())
    votes = list_votes(store, study.id)
    assert Counter(vote.rater for vote in votes) == {f"rater {n}": 2 if n < 10 else 1 for n in range(50)}
    questions = {question.key: question for question in list_questions(store, study.id)}
    for vote in votes:
        better = questions[vote.item].completions["ab".index(vote.verdict)]
        assert (better.sampler, better.text.startswith("Alpha")) == ("SECRET-ONE", True)
    assert not [body for body in bodies if b"SECRET" in body]
    store.close()
