"""Answers of a model in this process."""

from collections.abc import Sequence
from dataclasses import dataclass

from tutelage import config
from tutelage.data.chat import encode
from tutelage.data.identity import prompt_id
from tutelage.data.records import Messages
from tutelage.engines.sampling import PromptTokens, answers
from tutelage.models.policy import Policy
from tutelage.rollout.sampler import Reply


@dataclass(frozen=True)
class LocalSampler:
    """A policy as a sampler."""

    policy: Policy
    name: str

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[Reply]]:
        """Raises TutelageError when a conversation leaves no room for an answer."""
        if not conversations:
            return []
        tokens = tuple(tuple(encode(messages, None, self.policy.tokenizer)[0]) for messages in conversations)
        ids = tuple(prompt_id(messages) for messages in conversations)
        rollout = self.policy.generate(PromptTokens(tokens, ids), n, sampling, seed=seed)
        ended = rollout.terminated.tolist()
        said = [Reply(text, end) for text, end in zip(answers(self.policy, rollout), ended, strict=True)]
        return [said[start : start + n] for start in range(0, len(said), n)]
