"""The policy with its critic: what the update asks for tokens, probabilities and values in one forward pass."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from tutelage import config
from tutelage.core.batch import Rows, TokenScores
from tutelage.core.rows import spread
from tutelage.data.tokenizer import same_vocabulary
from tutelage.engines.cpu.states import micro_batches
from tutelage.engines.network import Backbone
from tutelage.errors import TutelageError
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel, is_reward_model, load_reward_model, new_reward_model
from tutelage.models.policy import Policy

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
            if not policy.head.is_known:
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

    def critic_network(self) -> tuple[ScalarModel, ...]:
        """The critic where it is a network of its own."""
        return (self.critic,) if isinstance(self.critic, ScalarModel) else ()

    def scores(
        self,
        rows: Rows,
        *,
        temperature: float,
        entropy: bool = False,
        exact_kl: bool = False,
        critic_only: bool = False,
    ) -> TokenScores:
        """Log-probabilities and, where asked, entropies and KL to the reference of every response token.

        Where the critic is a head on the policy's trunk its values come with them; a network of its own is asked for by
        `values`, so that the activations of both need not exist at once. With `critic_only` the values carry no
        gradient into the policy's trunk.
        """
        head: Callable[[Tensor], Tensor] | None = (
            None if isinstance(self.critic, ScalarModel) else self.critic
        )
        if critic_only and head is not None:
            head = _behind_a_wall(head)
        return self.policy.scores(
            rows, temperature=temperature, entropy=entropy, value_head=head, exact_kl=exact_kl
        )

    def values(self, rows: Rows) -> Tensor:
        """The critic's values, with no gradient into the policy's trunk. Float[B, R]"""
        if self.critic is None:
            raise ValueError("there is no critic to ask")
        if isinstance(self.critic, ScalarModel):
            return self.critic.values(rows)
        with torch.no_grad():
            states = self.policy.states(rows).float()
        return spread(self.critic(states).squeeze(-1), rows.mask)

    def scores_of_all(
        self, rows: Rows, *, temperature: float, budget: int | Budget
    ) -> tuple[Tensor, Tensor | None]:
        """`scores` of any number of rows, by micro-batches: log-probabilities and values, each Float[B, R]"""

        def ask(part: Rows) -> list[Tensor]:
            scores = self.scores(part, temperature=temperature)
            if self.critic is None:
                return [scores.logp]
            return [scores.logp, self.values(part) if scores.value is None else scores.value]

        logp, *values = self._of_all(rows, ask, 1 if self.critic is None else 2, Budget.of(budget))
        return logp, values[0] if values else None

    def values_of_all(self, rows: Rows, *, budget: int | Budget) -> Tensor:
        """`values` of any number of rows, by micro-batches. Float[B, R]"""
        return self._of_all(rows, lambda part: [self.values(part)], 1, Budget.of(budget))[0]

    @torch.no_grad()
    def _of_all(
        self, rows: Rows, ask: Callable[[Rows], list[Tensor]], count: int, budget: Budget
    ) -> list[Tensor]:
        """What `ask` says about each response token, `count` numbers, 0 where there is none. Float[B, R] each"""

        def asked() -> list[Tensor]:
            found = [torch.zeros(rows.mask.shape, device=rows.mask.device) for _ in range(count)]
            for index in budget.parts(partial(micro_batches, self.policy.model, rows)):
                part = rows.rows(index).trimmed()
                for whole, told in zip(found, ask(part), strict=True):
                    whole[index, : part.mask.shape[1]] = told
            return found

        return budget.spend(asked)

    def save(self, folder: Path) -> None:
        """Write the policy, and the critic beside it in a folder of its own."""
        self.policy.save(folder)
        if isinstance(self.critic, ScalarModel):
            self.critic.save(folder / CRITIC)


def _behind_a_wall(head: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda states: head(states.detach())


def _network(start: config.Model, policy: Policy, seed: int) -> ScalarModel:
    if is_reward_model(start.path):
        critic = load_reward_model(start)
    else:
        critic = new_reward_model(start, config.Lora(rank=0), seed=seed)
        nn.init.zeros_(critic.head.weight)
    if not same_vocabulary(policy.tokenizer, critic.tokenizer):
        raise TutelageError(
            f"The critic would begin as {start.path!r}, whose vocabulary is not the policy's, so it could not read "
            "what the policy says. Name another model with --critic-from, or use --critic trunk."
        )
    critic.model.requires_grad_(True)
    return ScalarModel(Backbone(critic.model, critic.tokenizer, policy.device, policy.dtype))
