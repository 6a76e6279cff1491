"""Protocols between a generator and its servers: requests, responses and weight transfer."""

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
    """Address of a server, without a path, and the transport of its requests."""

    url: str
    transport: Transport

    def get(self, path: str) -> Any:
        """JSON at a path."""
        return self.transport.get(self.url + path)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Decoded response to a JSON body."""
        return self.transport.post(self.url + path, body)

    def command(self, path: str, body: Mapping[str, object] | None = None) -> None:
        """Send a command whose response has no content."""
        self.transport.text(self.url + path, body or {})

    @property
    def once(self) -> "Connection":
        """The same connection for requests that must not have an effect twice: what the server may have received is not
        repeated, and every status but success is a refusal."""
        return replace(self, transport=replace(self.transport, repeats=False, busy=frozenset()))


@dataclass(frozen=True)
class TokenRequest:
    """Request for `n` completions of one prompt. `adapter` names a LoRA adapter of the model, "" for none."""

    tokens: tuple[int, ...]
    n: int
    seed: int
    sampling: config.Sampling
    end_ids: tuple[int, ...]
    model: str
    adapter: str = ""

    @property
    def settings(self) -> dict[str, object]:
        """Settings under the names that servers share. All are explicit, because a model's generation_config.json sets
        the others; `ignore_eos` leaves the end tokens to `stop_token_ids`, so that a completion ends as a local one
        does."""
        sampling = self.sampling
        settings: dict[str, object] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": list(self.end_ids),
            "ignore_eos": True,
        }
        return settings | ({"stop": list(sampling.stop)} if sampling.stop else {})


@dataclass(frozen=True)
class TokenResponse:
    """Completion from a server. `stopped` is false if it was truncated at the limit; `labels` names the weights that
    wrote each token, if the server reports them."""

    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    stopped: bool
    labels: tuple[str, ...] | None = None


class Api(Protocol):
    """Generation API of a kind of server."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> bool:
        """Whether it reports the weights that wrote each token, as they may change during a request."""
        ...

    def generate(self, connection: Connection, request: TokenRequest) -> list[TokenResponse]:
        """The `n` completions, in order. Raises Unanswered if the server fails or aborts, and TutelageError if it
        refuses or sends another format."""
        ...


class Handover(Protocol):
    """Weight transfer from a folder to a kind of server."""

    @property
    def adapters(self) -> bool:
        """Whether the folder holds an adapter, loaded in addition to the model, instead of a whole model."""
        ...

    @property
    def needs(self) -> str:
        """Options that the server must be started with."""
        ...

    @property
    def after_failure(self) -> str:
        """Action required after a server failed to load weights, "" for none."""
        ...

    def is_possible(self, connection: Connection) -> bool:
        """Whether the server was started with these options, as far as it reports them."""
        ...

    def give(self, connection: Connection, folder: Path, label: str, *, wait: bool) -> None:
        """Make the server load the weights in `folder` under the name `label`.

        With `wait`, running requests are finished first; otherwise they continue with the new weights.
        """
        ...

    def drop(self, connection: Connection, label: str) -> None:
        """Unload weights that are no longer requested."""
        ...


@dataclass(frozen=True)
class WholeModel:
    """Part of a handover of every weight, in which a version replaces the last."""

    adapters: bool = field(default=False, init=False)

    def drop(self, connection: Connection, label: str) -> None:
        """Do nothing: the next version replaces the last."""


def read_responses(
    api: Api, read: Callable[[Any], Iterable[TokenResponse]], connection: Connection, answer: Any, n: int
) -> list[TokenResponse]:
    """The `n` completions in the answer of a server, by `read`. Raises TutelageError for another format."""
    try:
        responses = list(read(answer))
        sound = len(responses) == n and all(
            one.tokens and len(one.tokens) == len(one.logp) and all(-1e38 < x < 1e38 for x in one.logp)
            for one in responses
        )
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        sound = False
    if not sound:
        raise TutelageError(
            f"The server {connection.url} did not answer as {api.name} does, with {counted(n, 'response')} of token "
            f"ids and a finite log-probability of each: {str(answer)[:200]}."
        )
    return responses
