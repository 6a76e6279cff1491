"""KL estimators compared with the exact KL: as numbers, as gradients, and in training.

    k1 = x    k2 = x²/2    k3 = e^−x − 1 + x    abs = |x|        x = log π(a|s) − log π_ref(a|s),  a ~ π

The exact KL is that of the whole next-token distribution at each state that π visits: its sum over a completion has
the same mean as that of k1, the KL of completions, without the noise of the token.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tutelage.commands.display import progress
from tutelage.core.batch import ScoredRollout, TokenScores
from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import masked_mean, token_weights
from tutelage.core.returns import returns_to_go
from tutelage.data.record_files import write_jsonl
from tutelage.demo.lab import estimators_page
from tutelage.demo.lab.experiment import Cell, Experiment, ExperimentSetting
from tutelage.demo.lab.measurements import BUDGET, Sketch, save_sketches
from tutelage.demo.lab.policy_training import LabPlan, training_cell
from tutelage.demo.lab.start import between, gold_reward
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rollout.generator import EncodedPrompt
from tutelage.rollout.local import LocalGenerator
from tutelage.train.rl.rollouts import complete, score_references
from tutelage.train.supervised.batches import Order

KINDS = ("k1", "k2", "k3", "abs")
EXACT = "exact"


@dataclass(frozen=True, kw_only=True)
class EstimatorsSize:
    """Numbers of samples and training steps."""

    shares: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 1.5)
    """Measured policies, as fractions of the way from SFT to the demonstration's policy."""
    answers: int = 768
    """Completions of each policy."""
    batches: int = 16
    """Batches of gradients, each of 64 completions, at the demonstration's policy."""
    coef: float = 0.2
    plan: LabPlan = LabPlan(recipe="rloo", steps=40)  # noqa: RUF009 - frozen


@dataclass(frozen=True)
class Measuring:
    """Settings of a measurement."""

    share: float
    answers: int
    seed: int


def cells(setting: ExperimentSetting[EstimatorsSize]) -> list[Cell]:
    """Numbers at several distances, gradients at one, and a run for every estimator in every place."""
    size, seed = setting.size, setting.seed
    parts = []
    for share in size.shares:
        plan = Measuring(share, size.answers, seed)
        parts.append(Cell(f"at-{share:g}", f"estimates at {share:g}", (plan,), partial(_numbers, setting, plan)))
    steep = Measuring(1.0, size.batches, seed)
    parts.append(Cell("gradients", "gradients", (steep,), partial(_gradients, setting, steep)))
    plan_of = replace(size.plan, seed=seed)
    for where, kinds in (("reward", KINDS), ("loss", (*KINDS, EXACT))):
        for kind in kinds:
            changes = (f"penalty.kind={kind}", f"penalty.where={where}", f"penalty.coef={size.coef:g}")
            parts.append(_training(setting, f"{kind}-{where}", replace(plan_of, set=changes)))
    return [*parts, _training(setting, "none", replace(plan_of, set=("penalty=none",)))]


def _training(setting: ExperimentSetting[EstimatorsSize], name: str, plan: LabPlan) -> Cell:
    return training_cell(setting, name, name.replace("-", " in the "), plan)


def _rollout(
    setting: ExperimentSetting[EstimatorsSize], policy: Policy, questions: Sequence[EncodedPrompt], n: int, seed: int
) -> ScoredRollout:
    sampling = setting.start.sampling
    answers = complete(LocalGenerator(policy), questions, n, sampling, gold_reward(), seed=seed)
    return score_references(policy, answers, temperature=sampling.temperature, budget=Budget(BUDGET))


# Numbers -------------------------------------------------------------------------------------------------------------


def _numbers(setting: ExperimentSetting[EstimatorsSize], plan: Measuring, folder: Path) -> Mapping[str, Any]:
    """Every estimate of every completion's KL, one line of metrics.jsonl each."""
    policy = between(setting.start, plan.share)
    order = Order(setting.start.questions("held_out", policy), 64, plan.seed)
    rows: list[dict[str, float]] = []
    with progress("answers", plan.answers, quiet=setting.quiet) as advance:
        for batch in range(-(-plan.answers // 64)):
            scored = _rollout(setting, policy, order(batch), 1, plan.seed + batch)
            rows += _estimates(policy, scored, setting.start.sampling.temperature)
            advance(min(len(rows), plan.answers), {})
    write_jsonl(folder / "metrics.jsonl", ({"answer": number, **row} for number, row in enumerate(rows, 1)))
    return {"answers": len(rows)}


@torch.no_grad()
def _estimates(policy: Policy, scored: ScoredRollout, temperature: float) -> list[dict[str, float]]:
    """KL of each completion by every estimator, and its number of tokens."""
    exact = policy.scores(scored, temperature=temperature, divergence=1.0).divergence
    assert exact is not None
    columns = {kind: kl_estimate(scored.logp, scored.ref_logp, kind) for kind in KINDS} | {EXACT: exact}
    sums = {name: torch.where(scored.mask, value, 0.0).sum(1).tolist() for name, value in columns.items()}
    sums["length"] = scored.mask.sum(1).tolist()
    return [{name: value[row] for name, value in sums.items()} for row in range(len(scored))]


# Gradients -----------------------------------------------------------------------------------------------------------

Term = Callable[[ScoredRollout, TokenScores], Tensor]
"""(rollout, the policy's scores of it) -> term to differentiate, per token [B, R]"""


def in_the_loss(kind: str) -> Term:
    """The estimate itself, differentiated."""
    return lambda scored, now: kl_estimate(now.logp, scored.ref_logp, kind)


def in_the_reward(kind: str) -> Term:
    """∇ log π times the remaining sum of the estimate, less its mean."""

    def term(scored: ScoredRollout, now: TokenScores) -> Tensor:
        going = returns_to_go(kl_estimate(scored.logp, scored.ref_logp, kind), scored.mask)
        return now.logp * (going - masked_mean(going, scored.mask))

    return term


def exact_in_the_loss(scored: ScoredRollout, now: TokenScores) -> Tensor:
    """Exact KL of each state, differentiated; ignores that the policy also determines its states."""
    assert now.divergence is not None
    return now.divergence


def truth(scored: ScoredRollout, now: TokenScores) -> Tensor:
    """Full gradient of KL(π‖π_ref) over completions, with minimal sampling noise: that of each state's exact KL, and
    ∇ log π times the exact KL of the remaining states."""
    assert now.divergence is not None
    exact = now.divergence.detach()
    coming = returns_to_go(exact, scored.mask) - exact
    coming = torch.where(scored.mask, coming - masked_mean(coming, scored.mask), 0.0)
    return now.divergence + now.logp * coming


TERMS: Mapping[str, Term] = {
    "truth": truth,
    **{f"{kind} in the reward": in_the_reward(kind) for kind in KINDS},
    **{f"{kind} in the loss": in_the_loss(kind) for kind in KINDS},
    "exact in the loss": exact_in_the_loss,
}


def _gradients(setting: ExperimentSetting[EstimatorsSize], plan: Measuring, folder: Path) -> Mapping[str, Any]:
    """Sketch the gradient of the penalty by every estimator in every place."""
    policy, temperature = between(setting.start, plan.share), setting.start.sampling.temperature
    sketch, order = (Sketch(policy.parameters()), Order(setting.start.questions("train", policy), 64, plan.seed))
    gradients: dict[str, list[Tensor]] = {name: [] for name in TERMS}
    with progress("gradients", plan.answers, quiet=setting.quiet) as advance:
        for batch in range(plan.answers):
            scored = _rollout(setting, policy, order(batch), 1, plan.seed + batch)
            weight = token_weights(scored.mask, "sequence_sum")
            now = policy.scores(scored, temperature=temperature, divergence=1.0)
            for name, term in TERMS.items():
                value = torch.where(scored.mask, weight * term(scored, now), 0.0).sum()
                gradients[name].append(sketch.gradient(value))
            advance(batch + 1, {})
    save_sketches(folder, gradients)
    return {"batches": plan.answers}


EXPERIMENT = Experiment(
    size=EstimatorsSize(),
    cells=cells,
    page=lambda done, size, command: estimators_page.page(done, size.coef, size.plan, command),
)
