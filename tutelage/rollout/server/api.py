"""The protocols between a generator and the servers that it asks: what is asked for, what comes back, how weights get
there."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.transport import Transport


@dataclass(frozen=True)
class Connection:
    """A server's address, without a path, and the transport of the requests to it."""

    url: str
    transport: Transport

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        return self.transport.get(self.url + path)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The decoded answer to a JSON body."""
        return self.transport.post(self.url + path, body)

    def command(self, path: str, body: Mapping[str, object] | None = None) -> None:
        """Send a command, whose answer says nothing, and send it once: what failed half-way is not repeated."""
        self.transport.text(self.url + path, body or {})

    @property
    def once(self) -> "Connection":
        """The same connection without retries, for which every status but success is a refusal."""
        return replace(self, transport=replace(self.transport, retries=0, busy=frozenset()))


@dataclass(frozen=True)
class TokenRequest:
    """What `n` responses to one prompt are asked for with. `adapter` names a LoRA adapter of the model, "" none."""

    tokens: tuple[int, ...]
    n: int
    seed: int
    sampling: config.Sampling
    end_ids: tuple[int, ...]
    model: str
    adapter: str = ""


@dataclass(frozen=True)
class TokenResponse:
    """One response as a server gave it. `stopped` is false where it was cut at the limit; `labels` names the weights
    that wrote each token, where the server says so."""

    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    stopped: bool
    labels: tuple[str, ...] | None = None


class Api(Protocol):
    """How a kind of server is asked for tokens."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> bool:
        """Whether it says which weights wrote each token, where they change meanwhile."""
        ...

    def generate(self, connection: Connection, request: TokenRequest) -> list[TokenResponse]:
        """The `n` responses, in their order. Raises Unanswered where the server fails or gives up, and TutelageError
        where it refuses or answers in another form."""
        ...


class Handover(Protocol):
    """How new weights, written into a folder, reach a kind of server."""

    @property
    def adapters(self) -> bool:
        """Whether the folder holds an adapter, which stands beside the model, instead of a whole model."""
        ...

    @property
    def needs(self) -> str:
        """What the server has to be started with."""
        ...

    @property
    def after_failure(self) -> str:
        """What has to be done with a server that could not load weights, "" for nothing."""
        ...

    def is_possible(self, connection: Connection) -> bool:
        """Whether the server was started with it, as far as it can be seen."""
        ...

    def give(self, connection: Connection, folder: Path, label: str, *, wait: bool) -> None:
        """Have the server load the weights in `folder`, which are called `label` from here on.

        With `wait`, responses that are being written are finished first; else they go on with the new weights.
        """
        ...

    def drop(self, connection: Connection, label: str) -> None:
        """Unload weights that are requested no longer."""
        ...


@dataclass(frozen=True)
class Form:
    """Reads the answers of a server, and says what is wrong with one in another form."""

    name: str
    read: Callable[[Any], Iterable[TokenResponse]] = field(repr=False)

    def responses(self, connection: Connection, answer: Any, n: int) -> list[TokenResponse]:
        """The responses in an answer, checked."""
        try:
            responses = list(self.read(answer))
            sound = len(responses) == n and all(
                one.tokens and len(one.tokens) == len(one.logp) and all(-1e38 < x < 1e38 for x in one.logp)
                for one in responses
            )
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            sound = False
        if not sound:
            raise TutelageError(
                f"The server {connection.url} did not answer as {self.name} does, with {counted(n, 'response')} of "
                f"token ids and a finite log-probability of each: {str(answer)[:200]}."
            )
        return responses
