"""Models of live conversations, by their names in a study."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.chat_stream import ChatStream, ReplyPiece
from tutelage.data.records import Message, Messages, ToolCall
from tutelage.data.transport import Transport

SILENCE = 60.0
"""Timeout for output of a model, in seconds."""


class ChatModel(Protocol):
    """A model that responds to conversations."""

    def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """Stream the response in pieces; the last one has ended. Raises TutelageError like `ChatStream.pieces`."""


Models: TypeAlias = Callable[[str], ChatModel]
"""The model with a name. Raises TutelageError for an unknown name."""


class LiveTools(Protocol):
    """Tools that the models of live conversations call; `schemas` are those of their functions."""

    @property
    def schemas(self) -> tuple[str, ...]: ...

    def among(self, schemas: Sequence[str]) -> "LiveTools":
        """Those of the tools that a conversation with these schemas offers."""

    async def run(self, call: ToolCall) -> Message:
        """The result of a call, with what went wrong as its text, such as a tool that is not among these. Raises
        TutelageError for a fault outside."""


def is_address(name: str) -> bool:
    """Whether the name of a model is the URL of an endpoint rather than a folder."""
    return name.startswith(("http://", "https://"))


def endpoint_of(name: str, key: str = "") -> Endpoint:
    """The endpoint for `http://host:8000/v1#MODEL`; without #MODEL, the model is unspecified."""
    url, _, model = name.partition("#")
    return Endpoint(url, model, key, SILENCE)


@dataclass
class EndpointModel:
    """A model served by an endpoint. If unspecified, it is the only model that the endpoint lists."""

    endpoint: Endpoint
    _stream: ChatStream | None = field(default=None, init=False)

    async def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """See `ChatModel.pieces`."""
        if self._stream is None:
            if not self.endpoint.model:
                self.endpoint = replace(self.endpoint, model=await asyncio.to_thread(only_model, self.endpoint))
            self._stream = ChatStream(self.endpoint)
        async with aclosing(self._stream.pieces(messages, **options)) as pieces:
            async for piece in pieces:
                yield piece


def only_model(endpoint: Endpoint) -> str:
    """The only model served by an endpoint. Raises TutelageError if there are several, or none."""
    address = f"{endpoint.url.rstrip('/')}/models"
    answer = Transport(f"The endpoint {endpoint.url}", endpoint.key, SILENCE, retries=0).get(address)
    try:
        names = [str(each["id"]) for each in answer["data"]]
    except (KeyError, TypeError) as error:
        raise TutelageError(f"{address} does not list models; write the address as {endpoint.url}#MODEL.") from error
    if len(names) != 1:
        raise TutelageError(
            f"{endpoint.url} serves {len(names)} models ({', '.join(names[:5])}); write the address as "
            f"{endpoint.url}#MODEL."
        )
    return names[0]


def only_endpoints(name: str) -> ChatModel:
    """The model of an endpoint. Raises TutelageError if the name is not a URL."""
    if not is_address(name):
        raise TutelageError(f"The model {name} is a folder; use `tutelage collect serve` to serve it.")
    return EndpointModel(endpoint_of(name))
