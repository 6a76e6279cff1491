"""The streaming client against an endpoint that sends exactly the bytes that a test says, in exactly these pieces."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from offenders import for_each
from scripted_chat import finished

from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.chat_stream import MOST_CALLS, ChatStream, ReplyPiece
from tutelage.data.json_values import DEEPEST
from tutelage.data.records import Message, ToolCall, user
from tutelage.data.transport import HttpRefusal, Unanswered
from tutelage.rollout.serving.protocol.request_fields import ChatFields, read_fields
from tutelage.rollout.serving.protocol.requests import read_conversation

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    delta = {"role": "assistant", "content": text}
    data = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} | more
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def ask(*parts: bytes | float, timeout: float = 5.0, key: str = "") -> tuple[list[ReplyPiece], bytes]:
    """The pieces of a reply, and the request. A number is a pause before the next bytes."""
    asked = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        asked.extend(head + await reader.readexactly(length))
        for part in parts:
            if isinstance(part, bytes):
                writer.write(part)
            await asyncio.sleep(part if isinstance(part, float) else 0)
        writer.close()

    async def scene() -> list[ReplyPiece]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/"
        stream = ChatStream(Endpoint(url, "tutor", key, timeout), {"temperature": 0.5})
        async with server:
            return [piece async for piece in stream.pieces((Message("system", "Be kind."), *user("Hi")), seed=3)]

    return finished(scene()), bytes(asked)


def cut(data: bytes, size: int) -> Iterable[bytes]:
    """The bytes in pieces of a size."""
    return (data[start : start + size] for start in range(0, len(data), size))


TEXTS = ["", "Sch", "ön ", "<img src", "=x onerror", "=…>", "\u2028\x85\x0b", "\n\n", "data: 😀"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_reply_is_the_same_however_its_bytes_are_cut(size: int) -> None:
    """Characters, lines and tags come in two; what Unicode calls the end of a line is none here."""
    body = b": a comment\n\n" + b"".join(map(event, TEXTS)) + event(None, "stop") + DONE
    pieces, request = ask(OK, *cut(body, size))
    assert [piece.text for piece in pieces] == [*TEXTS[1:], ""]
    assert [piece.ended for piece in pieces] == [*[""] * (len(TEXTS) - 1), "stop"]
    head, _, sent = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions ")
    assert json.loads(sent) == {
        "model": "tutor", "stream": True, "temperature": 0.5, "seed": 3,
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
    }  # fmt: skip


def test_lines_may_end_with_a_carriage_return_and_events_may_say_nothing_of_a_reply() -> None:
    body = (event("one") + event(choices=[]) + event("two", "length") + DONE).replace(b"\n", b"\r\n")
    assert ask(OK, body)[0] == [ReplyPiece("one"), ReplyPiece("two", "length")]


def call(index: int = 0, *, name: str | None = None, arguments: str | None = None, **more: Any) -> bytes:
    part = {"index": index, "function": {"name": name, "arguments": arguments}} | more
    return event(choices=[{"index": 0, "delta": {"content": None, "tool_calls": [part]}, "finish_reason": None}])


def test_calls_come_in_parts_and_unreadable_ones_are_text() -> None:
    parts = [call(name="add", arguments='{"a"', id="one"), call(arguments=": 1}"), call(1, name="now", arguments="")]
    pieces, _ = ask(OK, event("Wait."), *parts, event(None, "tool_calls"), DONE)
    calls = (ToolCall("add", '{"a": 1}', "one"), ToolCall("now", "{}", "call_1"))
    assert pieces == [ReplyPiece("Wait."), ReplyPiece("", "tool_calls", calls)]
    pieces, _ = ask(OK, call(name="add", arguments='{"a": 1'), event(None, "tool_calls"), DONE)
    assert pieces == [ReplyPiece('\nadd({"a": 1)', "tool_calls")]


def test_calls_without_an_index_are_calls_of_their_own() -> None:
    parts = [call(name="add", arguments="{}", **more) for more in ({"index": None, "id": "a"}, {"index": None})]
    (piece,), _ = ask(OK, *parts, event(None, "tool_calls"), DONE)
    assert piece.calls == (ToolCall("add", "{}", "a"), ToolCall("add", "{}", "call_1"))


@pytest.mark.parametrize("depth", [DEEPEST - 1, DEEPEST, 990, 100_000])
def test_arguments_that_are_nested_too_deep_to_be_read_again_are_text(depth: int) -> None:
    arguments = '{"a": ' + "[" * (depth - 1) + "0" + "]" * (depth - 1) + "}"
    (piece,), _ = ask(OK, call(name="add", arguments=arguments), event(None, "tool_calls"), DONE)
    assert bool(piece.calls) == (depth < DEEPEST)
    assert (piece.text == f"\nadd({arguments})") == (depth >= DEEPEST)


@for_each(['{"a": NaN}', '{"a": 1e999}', "[1]", "{"])
def test_arguments_that_are_no_object_of_json_are_text(arguments: str) -> None:
    (piece,), _ = ask(OK, call(name="add", arguments=arguments), event(None, "tool_calls"), DONE)
    assert piece == ReplyPiece(f"\nadd({arguments})", "tool_calls")


@for_each(
    [
        [call(name="add", arguments="1" * 600_000)] * 2,
        [call(name="add" * 200_000)] * 2,
        [call(index, name="add") for index in range(MOST_CALLS + 1)],
    ],
    name=lambda parts: f"{len(parts)} parts",
)
def test_calls_without_end_are_not_collected(parts: list[bytes]) -> None:
    with pytest.raises(Unanswered, match="calls"):
        ask(OK, *parts)


def test_a_conversation_with_tools_goes_out_as_endpoints_take_it() -> None:
    schema = json.dumps({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})
    messages = (
        Message("user", "1 + 1?", tools=(schema,)),
        Message("assistant", "", calls=(ToolCall("add", '{"a": 1}', "x"),)),
        Message("tool", "2", name="add", call_id="x"),
    )
    function = {"name": "add", "arguments": '{"a": 1}'}
    body = Endpoint("http://host/v1", "m").request_with_tools(messages, stream=True)
    assert read_conversation(read_fields(ChatFields, body)) == messages, "tutelage serve reads what was said"
    assert body == {
        "model": "m",
        "stream": True,
        "tools": [json.loads(schema)],
        "messages": [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "type": "function", "function": function}]},
            {"role": "tool", "content": "2", "name": "add", "tool_call_id": "x"},
        ],
    }


def test_the_first_piece_does_not_wait_for_the_second() -> None:
    async def scene() -> ReplyPiece:
        never = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OK + event("first"))
            await never.wait()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        pieces = ChatStream(Endpoint(url, "m")).pieces(user("Hi"))
        found = await anext(pieces)
        await pieces.aclose()
        never.set()
        server.close()
        return found

    assert finished(asyncio.wait_for(scene(), 5)) == ReplyPiece("first")


def test_a_key_is_sent_as_a_bearer_token() -> None:
    assert b"authorization: bearer sesame" in ask(OK, event("", "stop"), key="sesame")[1].lower()


@for_each(
    [
        ([OK, event("half")], Unanswered, "stopped"),
        ([OK, event("half"), DONE], Unanswered, "stopped"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", event("half")], Unanswered, "did not answer"),
        ([], Unanswered, "did not answer"),
        ([OK, event("half"), event(error={"message": "out of memory"})], Unanswered, "out of memory"),
        ([OK, b"data: {\n\n"], Unanswered, "else than replies"),
        ([OK, b"data: [1]\n\n"], Unanswered, "else than replies"),
        ([OK, b'data: {"choices": [{"delta": 1}]}\n\n'], Unanswered, "else than replies"),
        ([OK, call(1e400)], Unanswered, "else than replies"),  # type: ignore[arg-type]
        ([OK, b"data: " + b"[" * 100_000 + b"\n\n"], Unanswered, "else than replies"),
        ([b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"], Unanswered, "503"),
        ([b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n"], Unanswered, "429"),
        (
            [b'HTTP/1.1 400 Bad\r\nContent-Length: 35\r\n\r\n{"error": {"message": "too long."}}'],
            HttpRefusal,
            "too long",
        ),
        ([b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"], HttpRefusal, "401"),
    ]
)
def test_what_may_pass_is_told_from_what_is_refused(parts: list[bytes], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        ask(*parts)
    assert "The model tutor at http://127.0.0.1" in str(caught.value)


def test_silence_is_a_failure() -> None:
    with pytest.raises(Unanswered, match="did not answer"):
        ask(OK, event("half"), 1.0, event("late", "stop"), timeout=0.05)


def test_a_line_without_an_end_is_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.data.chat_stream.LONGEST_LINE", 1000)
    with pytest.raises(Unanswered, match="more than 1,000"):
        ask(OK, b"data: " + b"x" * 2000, 0.01, b"x" * 10)


def test_an_endpoint_that_is_not_there_has_not_answered() -> None:
    async def scene() -> None:
        async for _ in ChatStream(Endpoint("http://127.0.0.1:9/v1", "m")).pieces(user("Hi")):
            pass

    with pytest.raises(Unanswered, match="did not answer"):
        finished(scene())
