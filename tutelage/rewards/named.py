"""Rewards from the words of the command line."""

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tutelage import config
from tutelage.data.tokenizer import same_vocabulary
from tutelage.errors import TutelageError
from tutelage.models.heads import load_reward_model
from tutelage.models.policy import Policy
from tutelage.rewards.function import FunctionReward
from tutelage.rewards.model import ModelReward
from tutelage.rewards.reward import Reward
from tutelage.rewards.weighted import WeightedReward


def make_reward(names: Sequence[str], policy: Policy | None, model: config.Model) -> Reward:
    """A reward from its names: folders of reward models, or `module:function`, each with an optional `=weight`.

    Reward models read the tokens that `policy` samples where they have its vocabulary, else the text of the answers.
    """
    parts = []
    for given in names:
        name, equals, text = given.partition("=")
        parts.append((_weight(given, text) if equals else 1.0, _one_reward(name, policy, model)))
    if not parts:
        raise TutelageError(
            "No reward was given: name a reward-model folder or module:function with --reward."
        )
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1.0 else WeightedReward(tuple(parts))


def _weight(given: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError as error:
        raise TutelageError(f"The weight of the reward {given!r} is not a number.") from error
    if not math.isfinite(weight) or not weight:
        raise TutelageError(f"The weight of the reward {given!r} must be a finite number other than 0.")
    return weight


def _one_reward(name: str, policy: Policy | None, model: config.Model) -> Reward:
    if ":" in name and "/" not in name.partition(":")[0]:
        return FunctionReward(function_named(name), name)
    scalar = load_reward_model(replace(model, path=name))
    readable = policy is not None and same_vocabulary(policy.tokenizer, scalar.tokenizer)
    return ModelReward(scalar, same_tokens=readable)


def function_named(name: str) -> Callable[..., object]:
    """The function, or other callable, that `module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise TutelageError(f"The module of {name!r} cannot be imported: {error}.") from error
    except AttributeError as error:
        raise TutelageError(f"The module {module!r} has no function {attribute!r}.") from error
    if not callable(function):
        raise TutelageError(f"{name!r} is not a function.")
    return function
