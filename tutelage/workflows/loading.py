"""Models from their folders, ready to use."""

from pathlib import Path
from typing import Literal

from tutelage import config
from tutelage.models import heads
from tutelage.models.backbone import load_backbone
from tutelage.models.heads import ScalarModel
from tutelage.models.policy import Policy
from tutelage.models.rewards import FunctionReward, Reward, TextReward, make_reward

Dtype = Literal["float32", "bf16"]


def load_policy(
    path: str | Path,
    *,
    dtype: Dtype = "float32",
    device: str = "auto",
    trainable: bool = False,
    lora: config.Lora | None = None,
    seed: int = 0,
) -> Policy:
    """A causal language model as a policy.

    Args:
        path: folder of a transformers model or of an adapter, or a name on the hub.
        dtype: precision of the weights.
        device: auto (a GPU when there is one), cpu, cuda, ...
        trainable: keep every weight ready to be trained; otherwise the policy is for sampling and scoring alone.
        lora: adapters to train instead of the weights.
        seed: seed of the new adapters.

    Raises:
        TutelageError: there is no such model, or it cannot be loaded.
    """
    model = config.Model(path=str(path), dtype=dtype, device=device)
    adapters = lora or (config.Lora() if trainable else None)
    return Policy(load_backbone(model, adapters, seed=seed))


def load_reward_model(path: str | Path, *, dtype: Dtype = "float32", device: str = "auto") -> ScalarModel:
    """A trained reward model, which scores an answer at its last token.

    Args:
        path: folder of a reward model, or a name on the hub.
        dtype: precision of the weights.
        device: auto (a GPU when there is one), cpu, cuda, ...

    Raises:
        TutelageError: there is no such model, or it is no reward model.
    """
    return heads.load_reward_model(config.Model(path=str(path), dtype=dtype, device=device))


def load_reward(
    source: str | Path | TextReward, *, policy: Policy | None = None, device: str = "auto"
) -> Reward:
    """A reward for `tutelage.train.improve`.

    Args:
        source: a function (prompts, answers) -> scores, its name as `module:function`, or the folder of a reward model.
        policy: the policy whose answers a reward model scores; with the same vocabulary it reads their tokens.
        device: where a reward model runs.

    Raises:
        TutelageError: there is no such reward.
    """
    if callable(source):
        return FunctionReward(source, getattr(source, "__name__", type(source).__name__))
    return make_reward([str(source)], policy, config.Model(path=str(source), device=device))
