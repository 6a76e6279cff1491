"""What answers are worth: their scores by every judge, one by one, and how sure their means are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

import torch

from tutelage.base import config
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Reward
from tutelage.rewards.scores import scores_of
from tutelage.rollout.generator import EncodedPrompt
from tutelage.rollout.local import LocalGenerator
from tutelage.train.rl.batch_scores import score_rows
from tutelage.train.rl.rollouts import ScoredCompletions, complete

Z95 = 1.96
BUDGET = 8192
"""Padded tokens of one forward pass."""

Row = dict[str, str | float]


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error."""

    value: float
    error: float = float("nan")

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval."""
        return self.value - Z95 * self.error

    @property
    def high(self) -> float:
        """The upper end."""
        return self.value + Z95 * self.error

    @property
    def written(self) -> str:
        """As text: 1.23 ± 0.04, where the second number is half of the 95 % interval."""
        return f"{self.value:.2f} ± {Z95 * self.error:.2f}".replace("-", "\N{MINUS SIGN}")


def mean(values: Sequence[float]) -> Mean:
    """The mean of independent values."""
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else float("nan")
    return Mean(fmean(values), error)


def measure(
    policy: Policy,
    questions: Sequence[EncodedPrompt],
    judges: Mapping[str, Reward],
    sampling: config.Sampling,
    *,
    seed: int,
) -> list[Row]:
    """One answer of the policy to each question: prompt, completion, what each judge says, kl (log π − log π_ref of the
    whole answer, whose mean is KL(π‖ref) in nats), length in tokens and whether it ended by itself."""
    judge = next(iter(judges.values()))
    answers = complete(LocalGenerator(policy), questions, 1, sampling, judge, seed=seed)
    kl = answer_kl(policy, answers, sampling.temperature)
    columns = {name: told(answers, reward) for name, reward in judges.items()}
    return [
        {
            "prompt": prompt.messages[-1].content,
            "completion": answers.texts[row],
            **{name: values[row] for name, values in columns.items()},
            "kl": kl[row],
            "length": float(answers.rollout.mask[row].sum()),
            "ended": float(answers.rollout.terminated[row]),
        }
        for row, prompt in enumerate(answers.row_prompts)
    ]


def told(answers: ScoredCompletions, judge: Reward) -> list[float]:
    """What a judge says about each answer."""
    scores: list[float] = scores_of(judge, answers.completions).tolist()
    return scores


@torch.no_grad()
def answer_kl(policy: Policy, answers: ScoredCompletions, temperature: float) -> list[float]:
    """Σ_t log π − log π_ref of each answer, at the sampling temperature."""
    rollout = answers.rollout
    with policy.reference():
        ref_logp = score_rows(policy, rollout, temperature=temperature, budget=Budget(BUDGET)).logp
    found: list[float] = ((rollout.logp - ref_logp) * rollout.mask).sum(1).tolist()
    return found


def averages(rows: Sequence[Row]) -> dict[str, float]:
    """The mean of every number of the rows under its name, with its standard error as name_error and its standard
    deviation as name_std."""
    figures: dict[str, float] = {}
    for name in rows[0]:
        values = [value for row in rows if isinstance(value := row[name], float)]
        if values:
            found = mean(values)
            figures |= {name: found.value, f"{name}_error": found.error}
            figures[f"{name}_std"] = stdev(values) if len(values) > 1 else float("nan")
    return figures
