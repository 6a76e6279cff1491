"""The activations of one layer, and the cache that layers read them from and write them to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from jaxtyping import Float
from torch import Tensor


class LayerActivations(NamedTuple):
    """The activations of a layer for N tokens, in the order in which the compiled step stores them.

    All are float32 where products are. Where those are bfloat16, so are their operands and results: all but `lse`, `h`
    and `y`.
    """

    query: Float[Tensor, "N H w"]  # rotated
    key: Float[Tensor, "N K w"]  # rotated
    value: Float[Tensor, "N K w"]
    attended: Float[Tensor, "N H w"]
    lse: Float[Tensor, "N H"]  # the log-sum-exp of the scores
    h: Float[Tensor, "N d"]
    gate: Float[Tensor, "N m"]
    up: Float[Tensor, "N m"]
    y: Float[Tensor, "N d"]

    def map(self, change: Callable[[Float[Tensor, "..."]], Float[Tensor, "..."]]) -> Self:
        """The activations with `change` applied to each of them."""
        return type(self)(*map(change, self))


@runtime_checkable
class LayerCache(Protocol):
    """Cache of activations kept from another forward pass over the same tokens."""

    def lookup(self, layer: Any) -> LayerActivations | None:
        """The activations of `layer` for the tokens of this forward pass; None where they are not kept."""
        ...

    def record(self, layer: Any, activations: LayerActivations) -> None:
        """Keep the activations of `layer`. Called where no gradient is wanted and the log-sum-exp is known."""
        ...


_cache: ContextVar[LayerCache | None] = ContextVar("layer_cache", default=None)


@contextmanager
def using_layer_cache(cache: LayerCache) -> Iterator[None]:
    """Inside, layers in two steps take their activations from `cache`, or record them there."""
    token = _cache.set(cache)
    try:
        yield
    finally:
        _cache.reset(token)


def current_layer_cache() -> LayerCache | None:
    """The cache of the innermost `using_layer_cache`."""
    return _cache.get()
