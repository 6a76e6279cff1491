"""Streamed replies of OpenAI-compatible chat endpoints."""

import codecs
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from tutelage.base.nouns import counted
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.records import Messages
from tutelage.data.transport import BUSY, HttpRefusal, Unanswered, client_options, reason_of

if TYPE_CHECKING:
    import httpx

LONGEST_LINE = 1 << 20
"""Maximum length of a line of a stream, in characters."""
_DONE = "[DONE]"


@dataclass(frozen=True)
class ReplyPiece:
    """Piece of a reply. `ended` is set on the last one: "stop", or "length" if it was truncated at the limit."""

    text: str
    ended: str = ""


@dataclass(frozen=True)
class ChatStream:
    """Model of an endpoint, for one event loop. It does not retry, because the caller has already shown earlier
    pieces; `timeout` of the endpoint is the longest silence."""

    endpoint: Endpoint
    options: Mapping[str, object] = field(default_factory=dict)
    """Sent with every request."""

    async def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """Stream the reply to a conversation piece by piece; only the last piece has `ended` set.

        Raises Unanswered if the endpoint cannot be reached, is busy, fails, times out or stops before the end (a
        retry may succeed), and HttpRefusal if it refuses.
        """
        import httpx

        body = self.endpoint.request(messages, stream=True) | {**self.options, **options}
        try:
            async with self._client.stream("POST", self.endpoint.address, json=body) as response:
                if not response.is_success:
                    await response.aread()
                    self._fail(response)
                async with aclosing(_events(response)) as events:
                    async for data in events:
                        piece = self._piece(data)
                        if piece.text or piece.ended:
                            yield piece
                        if piece.ended:
                            return
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

    def _piece(self, data: str) -> ReplyPiece:
        """Piece of the reply in an event."""
        try:
            event: Any = json.loads(data)
            if event.get("error"):
                raise Unanswered(f"{self.endpoint.name} failed: {str(event['error'])[:300]}.")
            choices = event.get("choices") or []
            if not choices:
                return ReplyPiece("")
            text = choices[0].get("delta", {}).get("content") or ""
            return ReplyPiece(str(text), str(choices[0].get("finish_reason") or ""))
        except (ValueError, AttributeError, TypeError, LookupError) as error:
            raise Unanswered(f"{self.endpoint.name} streams something else than replies: {data[:200]!r}.") from error


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
