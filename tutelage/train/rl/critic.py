"""Critics: a linear head on the policy's trunk, or a separate network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rows
from tutelage.core.rows import spread
from tutelage.data.tokenizer import same_vocabulary
from tutelage.engines.network import Backbone, checkpointed
from tutelage.models.heads import ScalarModel, is_reward_model, load_reward_model, new_reward_model
from tutelage.models.policy import Policy
from tutelage.train.rl.setup import PolicyModel

CRITIC = "critic"
"""Folder of a critic network, next to the files of its policy."""

CriticPlace = Literal["trunk", "network"]


class TrunkCritic:
    """V(s) = w · h(s) + b with the policy's hidden state h: one forward pass for policy and critic."""

    def __init__(self, policy: PolicyModel, head: nn.Linear) -> None:
        self.policy, self.head = policy, head

    @property
    def value_head(self) -> Callable[[Tensor], Tensor]:
        """Linear layer of the head. Float[M, d] -> Float[M, 1]"""
        return self.head

    def parameters(self) -> list[nn.Parameter]:
        """Weight and bias of the head."""
        return list(self.head.parameters())

    def values(self, rows: Rows) -> Tensor:
        """Value of the state before each response token; no gradient reaches the trunk. Float[B, R]"""
        with torch.no_grad():
            states = self.policy.states(rows).to(self.head.weight.dtype)
        return spread(self.head(states).squeeze(-1), rows.mask)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the head."""
        loss.backward()


class NetworkCritic:
    """V(s) by a separate transformer."""

    value_head = None

    def __init__(self, model: ScalarModel) -> None:
        self.model = model

    def parameters(self) -> list[nn.Parameter]:
        """Parameters of the network."""
        return self.model.parameters()

    def values(self, rows: Rows) -> Tensor:
        """Value of the state before each response token. Float[B, R]"""
        return self.model.values(rows)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the network."""
        self.model.backward(loss)


def make_critic(
    policy: Policy, place: CriticPlace, start: config.Model | None, *, seed: int, checkpointing: bool = False
) -> TrunkCritic | NetworkCritic:
    """Create a critic for `policy`. `start` is the reward or language model that initialises a network; `checkpointing`
    recomputes its layers in the backward pass.

    Raises TutelageError if the critic cannot read the policy's states or tokens.
    """
    if place == "trunk":
        return TrunkCritic(policy, _head(policy))
    if start is None:
        raise ValueError("a critic network needs a model to start from")
    return NetworkCritic(critic_network(start, policy, seed=seed, checkpointing=checkpointing))


def save_policy(policy: Policy, critic: TrunkCritic | NetworkCritic | None, folder: Path) -> None:
    """Save the policy, and a critic network in a subfolder."""
    policy.save(folder)
    if isinstance(critic, NetworkCritic):
        critic.model.save(folder / CRITIC)


@contextmanager
def gathered_to_save(policy: Policy, critic: TrunkCritic | NetworkCritic | None) -> Iterator[None]:
    """Context in which `save_policy` has all weights on rank 0. Collective."""
    with policy.gathered_to_save():
        if isinstance(critic, NetworkCritic):
            with critic.model.gathered_to_save():
                yield
        else:
            yield


def _head(policy: Policy) -> nn.Linear:
    if not policy.head.is_known:
        raise TutelageError(
            "This architecture does not expose its hidden states, so the critic cannot share the policy's trunk. Use "
            "--critic network."
        )
    head = nn.Linear(policy.width, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head.to(policy.device)


def critic_network(start: config.Model, policy: Policy, *, seed: int, checkpointing: bool = False) -> ScalarModel:
    """Critic network initialised from a reward model, or from a language model with a zero head.

    Raises TutelageError if its tokens differ from the policy's.
    """
    loading = replace(start, engine="plain")  # an engine may prepare weights for inference; the critic's is set below
    if is_reward_model(start.path):
        critic = load_reward_model(loading)
    else:
        critic = new_reward_model(loading, config.Lora(rank=0), seed=seed)
        nn.init.zeros_(critic.head.weight)
    if not same_vocabulary(policy.tokenizer, critic.tokenizer):
        raise TutelageError(
            f"The critic would begin as {start.path!r}, whose vocabulary is not the policy's, so it could not read "
            "the policy's tokens. Name another model with --critic-from, or use --critic trunk."
        )
    critic.model.requires_grad_(True)
    backbone = Backbone(critic.model, critic.tokenizer, critic.device, policy.dtype, start.engine)
    return ScalarModel(checkpointed(backbone) if checkpointing else backbone)
