"""Models from their folders, ready to use."""

from collections.abc import Callable
from pathlib import Path

from tutelage.base import config
from tutelage.models import heads
from tutelage.models.backbone import load_backbone
from tutelage.models.heads import ScalarModel
from tutelage.models.policy import Policy
from tutelage.rewards.factory import make_reward
from tutelage.rewards.function import FunctionReward
from tutelage.rewards.reward import Reward


def load_policy(
    model: str | Path | config.Model,
    *,
    device: str = "auto",
    engine: config.EngineName = "auto",
    trainable: bool = False,
    lora: config.Lora | None = None,
    seed: int = 0,
) -> Policy:
    """A causal language model as a policy.

    Args:
        model: folder of a transformers model or of an adapter, a name on the hub, or the settings of a model.
        device: where a model that is given by its folder or name runs: auto (a GPU when there is one), cpu, cuda, ...
        engine: how a model that is given by its folder or name computes: plain, cpu, or auto.
        trainable: keep every weight ready to be trained; otherwise the policy is for sampling and scoring alone.
        lora: adapters to train instead of the weights.
        seed: seed of the new adapters.

    Raises:
        TutelageError: there is no such model, or it cannot be loaded.
    """
    adapters = lora or (config.Lora() if trainable else None)
    return Policy(load_backbone(_settings(model, device, engine), adapters, seed=seed))


def load_reward_model(
    model: str | Path | config.Model, *, device: str = "auto", engine: config.EngineName = "auto"
) -> ScalarModel:
    """A trained reward model, which scores an answer at its last token.

    Args:
        model: folder of a reward model, its name on the hub, or the settings of a model.
        device: where a model that is given by its folder or name runs: auto (a GPU when there is one), cpu, cuda, ...
        engine: how a model that is given by its folder or name computes: plain, cpu, or auto.

    Raises:
        TutelageError: there is no such model, or it is no reward model.
    """
    return heads.load_reward_model(_settings(model, device, engine))


def _settings(model: str | Path | config.Model, device: str, engine: config.EngineName) -> config.Model:
    if isinstance(model, config.Model):
        return model
    return config.Model(path=str(model), device=device, engine=engine)


def load_reward(
    source: str | Path | Callable[..., object], *, policy: Policy | None = None, device: str = "auto"
) -> Reward:
    """A reward for `tutelage.train.improve`.

    Args:
        source: a function of completions (or of prompts and answers as texts) to scores, its name as
            `module:function`, or the folder of a reward model.
        policy: the policy whose answers a reward model scores; with the same vocabulary it reads their tokens.
        device: where a reward model runs.

    Raises:
        TutelageError: there is no such reward.
    """
    if callable(source):
        return FunctionReward(source, getattr(source, "__name__", type(source).__name__))
    return make_reward([str(source)], policy, config.Model(path=str(source), device=device))
