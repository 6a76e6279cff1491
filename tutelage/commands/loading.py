"""Loading of policies, reward models and rewards."""

from collections.abc import Callable
from pathlib import Path

from tutelage.base import config
from tutelage.base.concurrency import WHOLE, Calls
from tutelage.base.errors import TutelageError
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
    """Load a causal language model as a policy.

    Args:
        model: folder of a transformers model or of an adapter, a hub name, or the settings of a model.
        device: device of a model given by folder or name: auto (a GPU if there is one), cpu, cuda, ...
        engine: engine of a model given by folder or name: plain, cpu, gpu, or auto.
        trainable: keep every weight trainable; by default the policy only samples and scores.
        lora: adapters to train instead of the weights.
        seed: seed of new adapters.

    Raises:
        TutelageError: the model does not exist or cannot be loaded.
    """
    adapters = lora or (config.Lora() if trainable else None)
    return Policy(load_backbone(_settings(model, device, engine), adapters, seed=seed))


def load_reward_model(
    model: str | Path | config.Model, *, device: str = "auto", engine: config.EngineName = "auto"
) -> ScalarModel:
    """Load a trained reward model, which scores a completion at its last token.

    Args:
        model: folder of a reward model, its hub name, or the settings of a model.
        device: device of a model given by folder or name: auto (a GPU if there is one), cpu, cuda, ...
        engine: engine of a model given by folder or name: plain, cpu, gpu, or auto.

    Raises:
        TutelageError: the model does not exist or is not a reward model.
    """
    return heads.load_reward_model(_settings(model, device, engine))


def _settings(model: str | Path | config.Model, device: str, engine: config.EngineName) -> config.Model:
    if isinstance(model, config.Model):
        return model
    return config.Model(path=str(model), device=device, engine=engine)


def load_reward(
    source: str | Path | Callable[..., object],
    *,
    policy: Policy | None = None,
    device: str = "auto",
    calls: Calls = WHOLE,
) -> Reward:
    """Load a reward for `tutelage.train.improve`.

    Args:
        source: a function of completions (or of prompt and completion texts) to scores, its name as
            `module:function`, or the folder of a reward model.
        policy: policy whose completions a reward model scores; with the same vocabulary it reads their tokens.
        device: device of a reward model.
        calls: concurrent calls of a function, with their time-outs and retries; a name has them as its settings,
            `module:function(workers=64, timeout=30)`.

    Raises:
        TutelageError: the reward does not exist, or is given by its name and `calls` beside it.
    """
    if callable(source):
        return FunctionReward(source, getattr(source, "__name__", type(source).__name__), calls)
    if calls != WHOLE:
        raise TutelageError(f"calls belong to a function; write the settings of {source} into its name.")
    return make_reward([str(source)], policy, config.Model(path=str(source), device=device))
