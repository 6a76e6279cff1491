"""Critics: a linear head on the policy's own trunk, or a network of its own."""

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
"""The folder of a critic network, beside the files of its policy."""

CriticPlace = Literal["trunk", "network"]


class TrunkCritic:
    """V(s) = w · h(s) + b, where h is the policy's hidden state: one forward pass for the policy and the critic."""

    def __init__(self, policy: PolicyModel, head: nn.Linear) -> None:
        self.policy, self.head = policy, head

    @property
    def value_head(self) -> Callable[[Tensor], Tensor]:
        """The linear layer. Float[M, d] -> Float[M, 1]"""
        return self.head

    def parameters(self) -> list[nn.Parameter]:
        """The head's weight and bias."""
        return list(self.head.parameters())

    def values(self, rows: Rows) -> Tensor:
        """The value of the state before each response token, with no gradient into the trunk. Float[B, R]"""
        with torch.no_grad():
            states = self.policy.states(rows).to(self.head.weight.dtype)
        return spread(self.head(states).squeeze(-1), rows.mask)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the head."""
        loss.backward()


class NetworkCritic:
    """V(s) by a transformer of its own."""

    value_head = None

    def __init__(self, model: ScalarModel) -> None:
        self.model = model

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the network."""
        return self.model.parameters()

    def values(self, rows: Rows) -> Tensor:
        """The value of the state before each response token. Float[B, R]"""
        return self.model.values(rows)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the network."""
        self.model.backward(loss)


def make_critic(
    policy: Policy,
    place: CriticPlace,
    start: config.Model | None,
    *,
    seed: int,
    checkpointing: bool = False,
) -> TrunkCritic | NetworkCritic:
    """A critic for `policy`; `start` is the reward model (or language model) that a network begins as, and
    `checkpointing` computes its layers again in the backward pass.

    Raises TutelageError where the critic could not read the policy's states or tokens.
    """
    if place == "trunk":
        return TrunkCritic(policy, _head(policy))
    if start is None:
        raise ValueError("a critic network needs a model to begin as")
    return NetworkCritic(critic_network(start, policy, seed=seed, checkpointing=checkpointing))


def save_policy(policy: Policy, critic: TrunkCritic | NetworkCritic | None, folder: Path) -> None:
    """Write the policy, and a critic network in a folder of its own inside."""
    policy.save(folder)
    if isinstance(critic, NetworkCritic):
        critic.model.save(folder / CRITIC)


@contextmanager
def gathered_to_save(policy: Policy, critic: TrunkCritic | NetworkCritic | None) -> Iterator[None]:
    """The context in which `save_policy` has all weights on rank 0. Collective."""
    with policy.gathered_to_save():
        if isinstance(critic, NetworkCritic):
            with critic.model.gathered_to_save():
                yield
        else:
            yield


def _head(policy: Policy) -> nn.Linear:
    if not policy.head.is_known:
        raise TutelageError(
            "This architecture does not show its hidden states, so the critic cannot sit on the policy's trunk. Use "
            "--critic network."
        )
    head = nn.Linear(policy.width, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head.to(policy.device)


def critic_network(
    start: config.Model, policy: Policy, *, seed: int, checkpointing: bool = False
) -> ScalarModel:
    """The network of a critic, which begins as a reward model, or as a language model with a head of 0.

    Raises TutelageError where it could not read the policy's tokens.
    """
    if checkpointing:
        start = replace(start, engine="plain")
    if is_reward_model(start.path):
        critic = load_reward_model(start)
    else:
        critic = new_reward_model(start, config.Lora(rank=0), seed=seed)
        nn.init.zeros_(critic.head.weight)
    if not same_vocabulary(policy.tokenizer, critic.tokenizer):
        raise TutelageError(
            f"The critic would begin as {start.path!r}, whose vocabulary is not the policy's, so it could not read "
            "the policy's tokens. Name another model with --critic-from, or use --critic trunk."
        )
    critic.model.requires_grad_(True)
    backbone = Backbone(critic.model, critic.tokenizer, critic.device, policy.dtype, start.engine)
    return ScalarModel(checkpointed(backbone) if checkpointing else backbone)
