"""The protocol of what continues prompts: a policy in this process, a server, a script."""

from typing import Protocol

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens

__all__ = ["Generator", "PromptTokens", "Rollout", "RolloutError"]


class RolloutError(TutelageError):
    """No rollout can be had, for a reason outside of this process. Raised before any weight moves, so that the state
    after the last finished step is good, and the run goes on from there when the reason is gone."""


class Generator(Protocol):
    """Prompts as token ids → `n` responses to each, as a `Rollout` whose row b answers prompt b // n.

    The rollout has the response's token ids, the log-probability of each under the distribution it was drawn from,
    `terminated`, the `texts`, and in `version` Int[B, R] the version of the weights that wrote each token (None where
    the generator has no weights). A row depends on the seed, the prompt's id and the number of the response alone, not
    on the rows beside it, as far as what stands behind the generator can promise that.
    """

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
    ) -> Rollout:
        """Draw the responses. `scored_first` are the ids of prompts whose rows a policy in this process scores with
        gradients next, each once, before any weight changes. Raises TutelageError where a prompt leaves no room for a
        response."""
        ...

    def sync(self, version: int) -> None:
        """Take over the weights of the policy as they are now. They are called `version` from here on."""
        ...
