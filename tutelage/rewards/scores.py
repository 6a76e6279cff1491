"""Validated scores of a reward as a tensor, one finite number per completion; counts as metrics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.data.chat_endpoint import EndpointUsage
from tutelage.rewards.reward import (
    Breakdown,
    Completion,
    CompositeReward,
    JudgingReward,
    Reward,
    device_of,
    made_of,
    reward_name,
)
from tutelage.rewards.sandbox import SandboxedRule, exceeded

SHOWN = 60
"""Characters of a completion or value shown in messages."""


@phase("score")
def scores_of(reward: Reward, completions: Sequence[Completion]) -> Tensor:
    """Validated scores of a reward, on the device of the completions' tokens. Float[B]

    Raises TutelageError, with the name of the reward and the completion, unless each completion has one finite
    score; see `breakdown_of` for rewards that do not apply to all.
    """
    scores = breakdown_of(reward, completions).total
    for row in scores.isnan().nonzero().flatten().tolist():
        raise _no_score(None, row, completions, f"reward {reward_name(reward)}")
    return scores


@phase("score")
def breakdown_of(reward: Reward, completions: Sequence[Completion]) -> Breakdown:
    """Validated scores of a reward, with those of its components by name, if any; NaN where it does not apply."""
    if isinstance(reward, CompositeReward):
        return reward.breakdown(completions)
    return Breakdown(checked(reward(completions), completions, f"reward {reward_name(reward)}"))


def checked(scores: object, completions: Sequence[Completion], name: str) -> Tensor:
    """Convert `scores` to a tensor. Float[B]; True and False count as 1 and 0, None is NaN. Messages start with `name`.

    Raises TutelageError unless each completion has one finite score or None.
    """
    if isinstance(scores, Iterable) and not isinstance(scores, Tensor | np.ndarray | str | bytes | Mapping):
        scores = list(scores)
    numbers = _as_tensor(scores, completions, name)
    if numbers.dim() != 1:
        raise TutelageError(
            f"The {name} returned scores of shape {tuple(numbers.shape)} for {counted(len(completions), 'answer')}; "
            "there must be one number for each answer."
        )
    if len(numbers) != len(completions):
        raise TutelageError(
            f"The {name} returned {counted(len(numbers), 'score')} for {counted(len(completions), 'answer')}; there "
            "must be one for each."
        )
    for row in (~numbers.isfinite()).nonzero().flatten().tolist():
        if not isinstance(scores, list | np.ndarray) or scores[row] is not None:
            raise _no_score(float(numbers[row]), row, completions, name)
    return numbers.to(device_of(completions))


def _as_tensor(scores: object, completions: Sequence[Completion], name: str) -> Tensor:
    """Any array or sequence of numbers as a float32 tensor of its shape."""
    if isinstance(scores, Tensor) and not scores.is_complex():
        return scores.detach().float()
    if isinstance(scores, np.ndarray) and scores.dtype.kind in "biuf":
        return torch.from_numpy(scores.astype(np.float64)).float()
    if isinstance(scores, str | bytes | Mapping | Tensor) or not isinstance(scores, Iterable):
        raise TutelageError(
            f"The {name} returned a value of type {type(scores).__name__}; "
            "it must return a list with one number for each answer."
        )
    values = list(scores)
    numbers = [_number(value) for value in values]
    if len(numbers) == len(completions):
        for row, (value, number) in enumerate(zip(values, numbers, strict=True)):
            if number is None and value is not None:
                raise _no_score(value, row, completions, name)
    return torch.tensor([math.nan if number is None else number for number in numbers], dtype=torch.float64).float()


def _number(value: object) -> float | None:
    """Element of a sequence of scores; None if it is not a real number."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def row_named(row: int, completions: Sequence[Completion]) -> str:
    """A completion in messages: its number, the beginning of its text, and its prompt."""
    one = completions[row]
    return f"answer {row + 1} of {len(completions)} ({one.answer[:SHOWN]!r}, to prompt {one.prompt_id})"


def _no_score(value: object, row: int, completions: Sequence[Completion], name: str) -> TutelageError:
    return TutelageError(
        f"The {name} returned {repr(value)[:SHOWN]} for {row_named(row, completions)}; it must be a finite number."
        + (" None means that the reward does not apply, which only improve and evaluate take." if value is None else "")
    )


def reward_metrics(reward: Reward) -> dict[str, float]:
    """Counts since the process started: usage of the judges in a reward, and completions beyond the limits of its
    rules.

    judge/requests (sent), judge/kept (answered from the cache), judge/tokens (input and output), judge/cost and
    judge/missing (verdicts on criteria); rules/over_limits (see `rewards.sandbox`). Empty without judges and rules.
    """
    parts = list(made_of(reward))
    metrics: dict[str, float] = {}
    if rules := {part.name for part in parts if isinstance(part, SandboxedRule)}:
        metrics["rules/over_limits"] = float(sum(map(exceeded, rules)))
    endpoints = [part.endpoint for part in parts if isinstance(part, JudgingReward)]
    if usages := [EndpointUsage() if endpoint is None else endpoint.usage for endpoint in endpoints]:
        metrics |= {
            "judge/requests": float(sum(usage.requests for usage in usages)),
            "judge/kept": float(sum(usage.kept for usage in usages)),
            "judge/tokens": float(sum(usage.read + usage.written for usage in usages)),
            "judge/cost": sum(usage.cost for usage in usages),
            "judge/missing": float(sum(usage.missing for usage in usages)),
        }
    return metrics
