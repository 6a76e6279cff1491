"""Answers of a function: for tests, for trying out a loop, and for models that are none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tutelage import config
from tutelage.data.records import Messages
from tutelage.rollout.sampler import Reply


@dataclass(frozen=True)
class ScriptedSampler:
    """`script(messages, number)` is the reply with this number (counted from 0) to a conversation."""

    script: Callable[[Messages, int], str]
    name: str = "script"

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[Reply]]:
        """The sampling settings and the seed have no say."""
        return [[Reply(self.script(messages, number)) for number in range(n)] for messages in conversations]
