"""The policy with its critic: what the update asks for tokens, probabilities and values in one forward pass."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from tutelage import config
from tutelage.core.batch import Rows
from tutelage.errors import TutelageError
from tutelage.models.backbone import Backbone
from tutelage.models.heads import ScalarModel, load_reward_model, new_reward_model
from tutelage.models.logprobs import TokenScores
from tutelage.models.policy import Policy
from tutelage.models.rows import by_tokens

CRITIC = "critic"
CriticPlace = Literal["trunk", "network"]


class Actor:
    """A policy and, where the recipe wants values, a critic: a linear head on the policy's own hidden states
    ("trunk", one forward pass for both), or a network of its own."""

    def __init__(self, policy: Policy, critic: nn.Linear | ScalarModel | None = None) -> None:
        self.policy, self.critic = policy, critic

    @classmethod
    def with_critic(
        cls, policy: Policy, place: CriticPlace, start: config.Model | None, *, seed: int
    ) -> "Actor":
        """Give the policy a critic. `start` is a reward model (or language model) that a network begins as."""
        if place == "trunk":
            if policy.head.weight is None and policy.head.module is None:
                raise TutelageError(
                    "This architecture does not show its hidden states, so the critic cannot sit on the policy's "
                    "trunk. Use --critic network."
                )
            head = nn.Linear(policy.width, 1)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
            return cls(policy, head.to(policy.device))
        if start is None:
            raise ValueError("a critic network needs a model to begin as")
        return cls(policy, _network(start, policy, seed))

    def critic_parameters(self) -> list[nn.Parameter]:
        """What the critic adds to the policy's parameters."""
        return [] if self.critic is None else [p for p in self.critic.parameters() if p.requires_grad]

    def scores(
        self, rows: Rows, *, temperature: float, entropy: bool = False, critic_only: bool = False
    ) -> TokenScores:
        """Log-probabilities, values and, where asked, entropies of every response token.

        With `critic_only` the values carry no gradient into the policy's trunk.
        """
        if isinstance(self.critic, ScalarModel):
            of_policy = self.policy.scores(rows, temperature=temperature, entropy=entropy)
            return TokenScores(of_policy.logp, of_policy.entropy, self.critic.values(rows))
        head: Callable[[Tensor], Tensor] | None = self.critic
        if critic_only and self.critic is not None:
            head = _behind_a_wall(self.critic)
        return self.policy.scores(rows, temperature=temperature, entropy=entropy, value_head=head)

    @torch.no_grad()
    def scores_of_all(self, rows: Rows, *, temperature: float, budget: int) -> tuple[Tensor, Tensor | None]:
        """`scores` of any number of rows, by micro-batches: log-probabilities and values, each Float[B, R]"""
        logp = torch.zeros(rows.mask.shape, device=rows.mask.device)
        value = None if self.critic is None else torch.zeros_like(logp)
        for index in by_tokens(rows.lengths(), budget):
            part = rows.rows(index).trimmed()
            scores = self.scores(part, temperature=temperature)
            width = part.mask.shape[1]
            logp[index, :width] = scores.logp
            if value is not None and scores.value is not None:
                value[index, :width] = scores.value
        return logp, value

    def save(self, folder: Path) -> None:
        """Write the policy, and the critic beside it in a folder of its own."""
        self.policy.save(folder)
        if isinstance(self.critic, ScalarModel):
            self.critic.save(folder / CRITIC)


def _behind_a_wall(head: nn.Linear) -> Callable[[Tensor], Tensor]:
    return lambda states: head(states.detach())


def _network(start: config.Model, policy: Policy, seed: int) -> ScalarModel:
    try:
        critic = load_reward_model(start)
    except TutelageError:
        critic = new_reward_model(start, config.Lora(rank=0), seed=seed)
        nn.init.zeros_(critic.head.weight)
    critic.model.requires_grad_(True)
    return ScalarModel(Backbone(critic.model, critic.tokenizer, policy.device, policy.dtype))
