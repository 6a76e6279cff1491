"""The models of live conversations, by the names under which a study keeps them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.chat_stream import ChatStream, ReplyPiece
from tutelage.data.records import Messages
from tutelage.data.transport import Transport

SILENCE = 60.0
"""Seconds without a word from a model after which its answer has failed."""


class ChatModel(Protocol):
    """A model that answers conversations."""

    def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """The answer, piece by piece; the last one has ended. Raises TutelageError as `ChatStream.pieces` does."""


Models: TypeAlias = Callable[[str], ChatModel]
"""The model of a name. Raises TutelageError for a name that it does not know."""


def is_address(name: str) -> bool:
    """Whether a model is named by the address of its endpoint, and not by its folder."""
    return name.startswith(("http://", "https://"))


def endpoint_of(name: str, key: str = "") -> Endpoint:
    """The endpoint that `http://host:8000/v1#MODEL` names; without #MODEL the model is left open."""
    url, _, model = name.partition("#")
    return Endpoint(url, model, key, SILENCE)


@dataclass
class EndpointModel:
    """A model behind an endpoint. Where the name leaves it open, the endpoint is asked which one it serves."""

    endpoint: Endpoint
    _stream: ChatStream | None = field(default=None, init=False)

    async def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """See `ChatModel.pieces`."""
        if self._stream is None:
            if not self.endpoint.model:
                self.endpoint = replace(
                    self.endpoint, model=await asyncio.to_thread(only_model, self.endpoint)
                )
            self._stream = ChatStream(self.endpoint)
        async with aclosing(self._stream.pieces(messages, **options)) as pieces:
            async for piece in pieces:
                yield piece


def only_model(endpoint: Endpoint) -> str:
    """The one model that an endpoint serves. Raises TutelageError where there are several, or none."""
    address = f"{endpoint.url.rstrip('/')}/models"
    answer = Transport(f"The endpoint {endpoint.url}", endpoint.key, SILENCE, retries=0).get(address)
    try:
        names = [str(each["id"]) for each in answer["data"]]
    except (KeyError, TypeError) as error:
        raise TutelageError(
            f"{address} does not list models; write the address as {endpoint.url}#MODEL."
        ) from error
    if len(names) != 1:
        raise TutelageError(
            f"{endpoint.url} serves {len(names)} models ({', '.join(names[:5])}); write the address as "
            f"{endpoint.url}#MODEL."
        )
    return names[0]


def only_endpoints(name: str) -> ChatModel:
    """The models that need nothing but an address."""
    if not is_address(name):
        raise TutelageError(f"The model {name} is a folder, which `tutelage collect serve` serves.")
    return EndpointModel(endpoint_of(name))
