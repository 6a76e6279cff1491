"""Rewards from the words of the command line."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.lazy import LazyTable
from tutelage.data.tokenizer import same_vocabulary
from tutelage.models.heads import load_reward_model
from tutelage.models.policy import Policy
from tutelage.rewards.function import FunctionReward, place_of
from tutelage.rewards.model import ModelReward
from tutelage.rewards.named_rules import RULES
from tutelage.rewards.names import names_model, split_weight
from tutelage.rewards.reward import Reward, columns_read
from tutelage.rewards.weighted import WeightedReward

MAKERS: LazyTable[Callable[[str], Reward]] = LazyTable(
    {
        "rule": ("tutelage.rewards.named_rules", "rule_named"),
        "judge": ("tutelage.rewards.named_judge", "judge_named"),
    }
)
"""What makes a reward of the words behind rule: and judge:."""


def make_reward(names: Sequence[str], policy: Policy | None, model: config.Model) -> Reward:
    """A reward from its names: folders of reward models, `module:function`, `rule:name` or `judge:file`, each with an
    optional `=weight`.

    Reward models read the tokens that `policy` samples where they have its vocabulary, else the text of the answers.
    """
    parts = [(weight, _one_reward(name, policy, model)) for name, weight in map(_weighted, names)]
    if not parts:
        raise TutelageError(
            "No reward was given: name a reward-model folder, module:function, rule:name or judge:file with --reward."
        )
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1.0 else WeightedReward(tuple(parts))


def columns_by_name(names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """The columns that rules and functions read, by the name of each; no reward model is loaded."""
    return {name: columns_read(reward) for name, reward in rewards_without_model(names).items()}


def rewards_without_model(names: Sequence[str]) -> Mapping[str, Reward]:
    """The rules, judges and functions among rewards, by name; no reward model is loaded."""
    known = {name: _without_model(name) for name, _ in map(_weighted, names)}
    return {name: reward for name, reward in known.items() if reward is not None}


def _weighted(given: str) -> tuple[str, float]:
    name, weight = split_weight(given)
    return name, 1.0 if weight is None else _weight(given, weight)


def _weight(given: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError as error:
        raise TutelageError(f"The weight of the reward {given!r} is not a number.") from error
    if not math.isfinite(weight) or not weight:
        raise TutelageError(f"The weight of the reward {given!r} must be a finite number other than 0.")
    return weight


def _one_reward(name: str, policy: Policy | None, model: config.Model) -> Reward:
    found = _without_model(name)
    if found is not None:
        return found
    if name.partition("(")[0] in RULES and not Path(name).exists():
        raise TutelageError(f"There is no reward model {name!r}; the rule of this name is rule:{name}.")
    scalar = load_reward_model(replace(model, path=name))
    readable = policy is not None and same_vocabulary(policy.tokenizer, scalar.tokenizer)
    return ModelReward(scalar, same_tokens=readable, name=Path(name).name)


def _without_model(name: str) -> Reward | None:
    """The rule, judge or function that a name names; None for the folder of a model."""
    if names_model(name):
        return None
    kind, _, rest = name.partition(":")
    return MAKERS[kind](rest) if kind in MAKERS else FunctionReward(function_named(name), name)


def function_named(name: str) -> Callable[..., object]:
    """The function, or other callable, that `module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(_imported(module, name), attribute)
    except AttributeError as error:
        raise TutelageError(f"The module {module!r} has no function {attribute!r}.") from error
    if not callable(function):
        raise TutelageError(f"{name!r} is not a function.")
    found: Callable[..., object] = function
    return found


def _imported(module: str, name: str) -> ModuleType:
    """The module of the function `name`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        file = Path(*module.split(".")).with_suffix(".py")
        hint = ", where Python does not look: set PYTHONPATH=. before the command"
        lies = (
            f". {file} lies in this folder{hint}"
            if file.is_file() and f"{module}.".startswith(f"{error.name}.")
            else ""
        )
        raise TutelageError(f"The module of {name!r} cannot be imported: {error}{lies}.") from error
    except Exception as error:  # whatever the module does while it is imported
        line = (
            "" if isinstance(error, SyntaxError) else place_of(error)
        )  # the message of a SyntaxError has it
        what = f"{type(error).__name__}: {error}{line}"
        raise TutelageError(f"The module of {name!r} cannot be imported: {what}.") from error
