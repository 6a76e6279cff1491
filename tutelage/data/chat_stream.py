"""Streamed replies of OpenAI-compatible chat endpoints: their text, and the calls of tools after it."""

import codecs
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from tutelage.base.nouns import counted
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.json_values import parse_json
from tutelage.data.records import Messages, ToolCall
from tutelage.data.transport import BUSY, HttpRefusal, Unanswered, client_options, reason_of

if TYPE_CHECKING:
    import httpx

LONGEST_LINE = 1 << 20
"""Maximum length of a line of a stream, and of all calls of a reply, in characters."""
MOST_CALLS = 128
"""Maximum number of calls in a reply."""
_DONE = "[DONE]"


@dataclass(frozen=True)
class ReplyPiece:
    """Piece of a reply. `ended` is set on the last one: "stop", or "length" if it was truncated at the limit. It also
    has the calls of tools; calls that cannot be read are part of its text."""

    text: str
    ended: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass
class _Call:
    """A call of a tool of which parts have come."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def __len__(self) -> int:
        return len(self.id) + len(self.name) + len(self.arguments)

    @property
    def is_readable(self) -> bool:
        try:
            arguments = parse_json(self.arguments or "{}")
            json.dumps(arguments, allow_nan=False)  # Python reads NaN and 1e999, which JSON cannot write
        except ValueError:
            return False
        return bool(self.name) and isinstance(arguments, dict)


@dataclass(frozen=True)
class ChatStream:
    """Model of an endpoint, for one event loop. It does not retry, because the caller has already shown earlier
    pieces; `timeout` of the endpoint is the longest silence."""

    endpoint: Endpoint
    options: Mapping[str, object] = field(default_factory=dict)
    """Sent with every request."""

    async def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """Stream the reply to a conversation piece by piece; only the last piece has `ended` set, and `calls`.

        Raises Unanswered if the endpoint cannot be reached, is busy, fails, times out or stops before the end (a
        retry may succeed), and HttpRefusal if it refuses.
        """
        import httpx

        body = self.endpoint.request_with_tools(messages, stream=True) | {**self.options, **options}
        calls: dict[int, _Call] = {}
        try:
            async with self._client.stream("POST", self.endpoint.address, json=body) as response:
                if not response.is_success:
                    await response.aread()
                    self._fail(response)
                async with aclosing(_events(response)) as events:
                    async for data in events:
                        piece = self._piece(data, calls)
                        if piece.ended:
                            yield _with_calls(piece, list(calls.values()))
                            return
                        if piece.text:
                            yield piece
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unanswered(f"{self.endpoint.name} did not answer: {error or type(error).__name__}.") from error
        raise Unanswered(f"{self.endpoint.name} stopped in the middle of its reply.")

    @cached_property
    def _client(self) -> "httpx.AsyncClient":
        import httpx

        secure = self.endpoint.url.startswith("https:")  # loading the certificates takes a while
        return httpx.AsyncClient(**client_options(self.endpoint.key, self.endpoint.timeout), verify=secure)

    def _fail(self, response: "httpx.Response") -> NoReturn:
        reason = reason_of(response)
        failure = f"{self.endpoint.name} refused the request: status {response.status_code}, {reason}."
        if response.status_code in BUSY:
            raise Unanswered(failure)
        raise HttpRefusal(failure, response.status_code, reason)

    def _piece(self, data: str, calls: dict[int, _Call]) -> ReplyPiece:
        """Piece of the reply in an event; parts of calls are added to `calls`."""
        try:
            event = parse_json(data)
            if event.get("error"):
                raise Unanswered(f"{self.endpoint.name} failed: {str(event['error'])[:300]}.")
            choices = event.get("choices") or []
            if not choices:
                return ReplyPiece("")
            delta = choices[0].get("delta") or {}
            for part in delta.get("tool_calls") or ():
                _add_part(part, calls)
            if len(calls) > MOST_CALLS or sum(map(len, calls.values())) > LONGEST_LINE:
                most = f"{counted(MOST_CALLS, 'call')} or {counted(LONGEST_LINE, 'character')}"
                raise Unanswered(f"{self.endpoint.name} streams calls beyond {most}.")
            return ReplyPiece(str(delta.get("content") or ""), str(choices[0].get("finish_reason") or ""))
        except (ValueError, AttributeError, TypeError, LookupError, ArithmeticError) as error:
            raise Unanswered(f"{self.endpoint.name} streams something else than replies: {data[:200]!r}.") from error


def _add_part(part: Mapping[str, Any], calls: dict[int, _Call]) -> None:
    index = part.get("index")
    call = calls.setdefault(len(calls) if index is None else int(index), _Call())
    function = part.get("function") or {}
    call.id = str(part.get("id") or call.id)
    call.name += str(function.get("name") or "")
    call.arguments += str(function.get("arguments") or "")


def _with_calls(last: ReplyPiece, calls: Sequence[_Call]) -> ReplyPiece:
    """The last piece of a reply with its calls, or with their text unless all can be read."""
    if not all(call.is_readable for call in calls):
        written = "\n".join(f"{call.name}({call.arguments})" for call in calls)
        return replace(last, text=f"{last.text}\n{written}")
    named = [ToolCall(one.name, one.arguments or "{}", one.id or f"call_{n}") for n, one in enumerate(calls)]
    return replace(last, calls=tuple(named))


async def _events(response: "httpx.Response") -> AsyncGenerator[str]:
    """Data of server-sent events. Only line feeds end a line, because a reply may contain other Unicode line
    separators. Characters may be split between chunks."""
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    async for chunk in response.aiter_bytes():
        rest += decoder.decode(chunk)
        *lines, rest = rest.split("\n")
        if len(rest) > LONGEST_LINE:
            raise Unanswered(f"{response.url} streams a line of more than {counted(LONGEST_LINE, 'character')}.")
        for line in lines:
            name, _, data = line.removesuffix("\r").partition(":")
            if name == "data" and data.strip() != _DONE:
                yield data.removeprefix(" ")
