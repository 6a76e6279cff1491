"""What answers conversations, whatever stands behind it."""

from collections.abc import Sequence
from typing import Protocol

from tutelage import config
from tutelage.data.endpoint import Reply
from tutelage.data.records import Messages

__all__ = ["Reply", "Sampler"]


class Sampler(Protocol):
    """Conversations → n replies to each, in their order. `name` says who answers.

    The same seed gives the same replies where what stands behind it can promise that.
    """

    @property
    def name(self) -> str: ...

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[Reply]]: ...
