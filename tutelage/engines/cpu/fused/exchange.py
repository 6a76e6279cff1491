"""What layers compute of tokens, between them and somebody who keeps it or knows it already (see `activations`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor


class Computed(NamedTuple):
    """What a layer computes of N tokens. Each [N, …]"""

    query: Tensor  # [N, H, w], turned
    key: Tensor  # [N, K, w], turned
    value: Tensor  # [N, K, w]
    attended: Tensor  # [N, H, w]
    ends: Tensor  # [N, H], the log-sum-exp of the scores
    h: Tensor  # [N, d]
    gate: Tensor  # [N, m]
    up: Tensor  # [N, m]
    y: Tensor  # [N, d]

    def apply(self, change: Any) -> Self:
        """Each of them changed alike."""
        return type(self)(*map(change, self))


class Exchange(Protocol):
    """Somebody who keeps what layers compute, or knows it already."""

    def given(self, layer: Any) -> Computed | None:
        """What `layer` computes of the tokens that it reads now, as far as it is known."""
        ...

    def note(self, layer: Any, computed: Computed) -> None:
        """What `layer` computed, where no gradient is wanted and the attention tells its log-sum-exp."""
        ...


_exchange: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


@contextmanager
def exchanging(exchange: Exchange) -> Iterator[None]:
    """Inside, layers in two steps take what `exchange` knows, and tell it what they compute."""
    token = _exchange.set(exchange)
    try:
        yield
    finally:
        _exchange.reset(token)


def current_exchange() -> Exchange | None:
    """Whoever takes part now."""
    return _exchange.get()
