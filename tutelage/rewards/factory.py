"""Rewards by their command-line names: models, functions, rules and judges; the columns that they read, and what their
judges will cost."""

import ast
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tutelage.base import config
from tutelage.base.concurrency import Calls
from tutelage.base.errors import TutelageError, did_you_mean
from tutelage.base.modules import LazyTable, function_named
from tutelage.base.nouns import counted
from tutelage.data.chat_endpoint import CHARACTERS, PaidEndpoint
from tutelage.data.formats import LoadedRecords
from tutelage.data.records import Prompt
from tutelage.data.tokenizer import same_vocabulary
from tutelage.models.heads import load_reward_model
from tutelage.models.policy import Policy
from tutelage.rewards.composite import WeightedReward
from tutelage.rewards.function import FunctionReward
from tutelage.rewards.model_reward import ModelReward, StepReward
from tutelage.rewards.names import names_model, split_fold, split_weight
from tutelage.rewards.reward import SYNONYMS, JudgingReward, Reward, columns_read, made_of

FILES: Mapping[str, Mapping[str, str]] = {
    "rules": {
        "exact": "ExactMatch",
        "regex": "PatternMatch",
        "format": "TagFormat",
        "json": "JsonFormat",
        "length": "LengthLimit",
        "repetition": "Repetition",
        "readability": "Readability",
    },
    "math_rules": {"number": "NumberMatch", "math": "MathMatch"},
}
"""Rules by file: names and classes."""

RULES: LazyTable[type] = LazyTable(
    {name: (f"tutelage.rewards.{file}", rule) for file, rules in FILES.items() for name, rule in rules.items()}
)
"""Rules by command-line name; their settings are the fields of the classes."""

MAKERS: LazyTable[Callable[[str], Reward]] = LazyTable(
    {"rule": ("tutelage.rewards.factory", "rule_named"), "judge": ("tutelage.rewards.judge", "judge_named")}
)
"""Functions that create a reward from the text after rule: and judge:."""

_CALL = re.compile(r"(\w*)(?:\((.*)\))?", re.DOTALL)
_FUNCTION = re.compile(r"([\w.]+:\w+)\((.*)\)", re.DOTALL)
S = TypeVar("S")


def rule_named(text: str) -> Reward:
    """Rule of a text such as `math` or `length(limit=200)`.

    Raises TutelageError for an unknown rule, an unknown setting, and a value of another type.
    """
    match = _CALL.fullmatch(text.strip())
    name = match[1] if match else text
    if match is None or name not in RULES:
        guess = did_you_mean(name.partition("(")[0], RULES)
        raise TutelageError(f"There is no rule {text!r}{guess} The rules are {', '.join(RULES)}.")
    return _settings(RULES[name], f"rule:{text}", match[2])


def _settings(cls: type[S], reward: str, text: str | None) -> S:
    """Settings of a reward, such as `limit=200, unit=words`. Raises TutelageError for invalid ones."""
    try:
        call = ast.parse(f"reward({text or ''})", mode="eval").body
    except SyntaxError as error:
        raise _unreadable(reward) from error
    if not isinstance(call, ast.Call) or call.args:
        raise _unreadable(reward)
    values = {keyword.arg or "": _value(keyword.value, reward) for keyword in call.keywords}
    try:
        return config.from_mapping(cls, values)
    except TutelageError as error:
        raise TutelageError(f"The reward {reward}: {error}") from error


def _value(node: ast.expr, reward: str) -> object:
    """Value of a setting: a number, a quoted text, a plain word, or a bracketed list of these."""
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}.get(node.id, node.id)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, reward) for item in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise _unreadable(reward) from error


def _unreadable(reward: str) -> TutelageError:
    return TutelageError(
        f"The settings of {reward} cannot be read: write them as in rule:length(limit=200, unit=words) or "
        "my_rewards:correct(workers=64), with quotation marks around texts that are not plain words, as in "
        "rule:regex(pattern='[A-D]')."
    )


def make_reward(names: Sequence[str], policy: Policy | None, model: config.Model) -> Reward:
    """Create a reward from names: folders of reward models, `module:function`, `rule:name` or `judge:file`, each with
    an optional `=weight`; functions and rules may have settings in parentheses, and `min:folder` (see `FOLDS`) says how
    a process reward model folds the scores of steps.

    Reward models with the vocabulary of `policy` read sampled tokens, others the text of the completions.
    """
    parts = [(weight, _one_reward(name, policy, model)) for name, weight in map(_weighted, names)]
    if not parts:
        raise TutelageError(
            "No reward was given: name a reward-model folder, module:function, rule:name or judge:file with --reward."
        )
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1.0 else WeightedReward(tuple(parts))


def columns_by_name(names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Columns read by rules and functions, by name of the reward; does not load reward models."""
    return {name: columns_read(reward) for name, reward in rewards_without_model(names).items()}


def rewards_without_model(names: Sequence[str]) -> Mapping[str, Reward]:
    """Rules, judges and functions among rewards, by name; does not load reward models."""
    rewards = {name: _without_model(name) for name, _ in map(_weighted, names)}
    return {name: reward for name, reward in rewards.items() if reward is not None}


def _weighted(spec: str) -> tuple[str, float]:
    name, text = split_weight(spec)
    if text is None:
        return name, 1.0
    try:
        weight = float(text)
    except ValueError as error:
        raise TutelageError(f"The weight of the reward {spec!r} is not a number.") from error
    if not math.isfinite(weight) or not weight:
        raise TutelageError(f"The weight of the reward {spec!r} must be a finite number other than 0.")
    return name, weight


def _one_reward(name: str, policy: Policy | None, model: config.Model) -> Reward:
    reward = _without_model(name)
    if reward is not None:
        return reward
    if name.partition("(")[0] in RULES and not os.path.exists(name):
        raise TutelageError(f"There is no reward model {name!r}; the rule of this name is rule:{name}.")
    folder, fold = split_fold(name)
    scalar = load_reward_model(replace(model, path=folder))
    readable = policy is not None and same_vocabulary(policy.tokenizer, scalar.tokenizer)
    if scalar.separator is not None:
        return StepReward(scalar, same_tokens=readable, name=Path(folder).name, fold=fold or "last")
    if fold:
        raise TutelageError(
            f"{name} folds the scores of steps, and {folder!r} is a reward model of whole completions: leave {fold}: "
            "out, or train one with `tutelage reward --steps`."
        )
    return ModelReward(scalar, same_tokens=readable, name=Path(folder).name)


def _without_model(name: str) -> Reward | None:
    """Rule, judge or function of a name; None for the folder of a model."""
    if names_model(name):
        return None
    kind, _, rest = name.partition(":")
    if kind in MAKERS:
        return MAKERS[kind](rest)
    match = _FUNCTION.fullmatch(name)
    function, settings = (match[1], match[2]) if match else (name, None)
    return FunctionReward(function_named(function), function, _settings(Calls, name, settings))


def require_columns(names: Sequence[str], prompts: LoadedRecords[Any]) -> None:
    """Check that every prompt has the columns that these rewards read.

    Raises TutelageError with the reward, the column and the first row that lacks it.
    """
    for name, columns in columns_by_name(names).items():
        for column in columns:
            rows = zip(prompts.places, prompts.records, strict=True)
            names_of_it = SYNONYMS.get(column, (column,))
            lacking = [
                (place, prompt) for place, prompt in rows if all(prompt.data.get(each) is None for each in names_of_it)
            ]
            if lacking:
                place, prompt = lacking[0]
                count = f"{len(lacking):,} of {counted(len(prompts.records), 'row', 'lacks')} it"
                raise TutelageError(
                    f"The reward {name} reads the column {column!r}, which {place} of {prompts.source} does not have "
                    f"({count}); the own columns of that row are: {', '.join(prompt.data) or 'none'}."
                )


def judging_costs(names: Sequence[str], prompts: Sequence[Prompt], completions: int) -> Iterator[str]:
    """A sentence for each judge among the rewards: what `completions` of every prompt cost, cached replies excepted.

    Tokens are those of the requests without the completions, with `CHARACTERS` characters each. Raises TutelageError
    for a row that the judge cannot read.
    """
    for name, reward in rewards_without_model(names).items():
        for part in made_of(reward):
            if isinstance(part, JudgingReward) and part.endpoint is not None:
                yield f"{name}: {_cost(part, part.endpoint, prompts, completions)}"


def _cost(judge: JudgingReward, endpoint: PaidEndpoint, prompts: Sequence[Prompt], completions: int) -> str:
    requests = [each for prompt in prompts for each in judge.questions(prompt, completions)]
    tokens = sum(number * math.ceil(len(request) / CHARACTERS) for request, number in requests)
    price = endpoint.prices.read
    cost = f", {tokens * price / 1e6:.2f} at the price of reading" if price else ""
    each = counted(completions, "completion")
    return (
        f"{each} of each of {counted(len(prompts), 'prompt')} take {counted(sum(n for _, n in requests), 'request')} "
        f"to {endpoint.endpoint.model}: {counted(tokens, 'token')} to read{cost}, besides the completions and its "
        "replies"
    )
