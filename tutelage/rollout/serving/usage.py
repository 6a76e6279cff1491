"""What a server records of its use: completions that users may give feedback on, and which of two models each got."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.routing import BaseRoute

from tutelage.data.records import Messages


@dataclass(frozen=True)
class Outcome:
    """What became of a request: the id and the conversation, the text (None if no model completed it: it failed, or the
    client left), whether it ended by itself, the model that wrote it, whether the user's own model failed, and seconds
    until it was complete or the client left."""

    key: str
    messages: Messages
    text: str | None
    finished: bool
    sampler: str
    failed: bool
    seconds: float


class Use(Protocol):
    """An admitted request. `candidate`: its user gets the second of two models."""

    @property
    def candidate(self) -> bool: ...

    def record(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Record what became of it, in any thread. Returns what the client learns: None unless the completion was
        kept."""


class Usage(Protocol):
    """The record of the use of a server. `routes` are added to it; those below `open_paths` need no key."""

    @property
    def routes(self) -> Sequence[BaseRoute]: ...

    @property
    def open_paths(self) -> Sequence[str]: ...

    async def admit(self, body: object, address: str) -> Use | None:
        """Admit the body of a chat request from a client address; None if there is nothing to record. Raises
        RequestError if it is refused."""

    def limit(self, body: object, address: str) -> None:
        """Count a request of any other kind. Raises RequestError if its user, or its address without one, has sent too
        many."""

    def close(self) -> None:
        """Release what the record holds."""
