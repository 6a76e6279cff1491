"""Noise of the policy gradient for every Ψ of the literature, on the same rollouts.

    ∇J = E[ Σ_t ∇ log π(a_t|s_t) · Ψ_t ]

All are measured at one policy, on one set of batches, with PPO's rewards: the score on the last token, and a KL
penalty on every token. Nothing is whitened or standardised, so all unbiased estimates have one mean, and the traces
of their covariances are comparable.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tutelage.base import config
from tutelage.commands.display import progress
from tutelage.core.advantages import (
    ActionValue,
    Advantage,
    Gae,
    RewardToGo,
    StatefulAdvantage,
    TotalReturn,
    ValueBaseline,
)
from tutelage.core.baselines import BatchMean, MinimumVariance, MovingAverage, TimeDependent, score_norm_bound
from tutelage.core.batch import ScoredRollout
from tutelage.core.groups import Greedy, Group
from tutelage.core.kl import kl_estimate
from tutelage.core.pieces import Context, apply, init
from tutelage.core.reduce import at_last_token, token_weights
from tutelage.core.returns import returns_to_go
from tutelage.core.values import explained_variance
from tutelage.demo.lab import advantages_page
from tutelage.demo.lab.experiment import Cell, Experiment, ExperimentSetting, Seed
from tutelage.demo.lab.measurements import BUDGET, Sketch, save_sketches
from tutelage.demo.lab.start import Start, between
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Reward
from tutelage.rollout.generator import EncodedPrompt
from tutelage.rollout.local import LocalGenerator
from tutelage.train.learner import Learner
from tutelage.train.rl.critic import NetworkCritic, make_critic
from tutelage.train.rl.rollouts import complete, score_references
from tutelage.train.supervised.batches import Order

BETA = 0.1
GROUP = 4
"""Completions of each prompt of a batch, to compare groups on the same rollouts."""
LAMBDAS = (0.97, 0.95, 0.9, 0.8, 0.5, 0.0)

CRITIC_FREE: Mapping[str, Advantage | StatefulAdvantage] = {
    "REINFORCE": TotalReturn(),
    "reward-to-go": RewardToGo(),
    "batch mean": RewardToGo(BatchMean()),
    "moving average": RewardToGo(MovingAverage()),
    "min. variance": RewardToGo(MinimumVariance()),
    "mean per token": RewardToGo(TimeDependent()),
    "greedy answer": Greedy(),
    "leave one out": Group(leave_one_out=True),
}
"""Ψ without a critic, in textbook order."""
WITH_CRITIC: Mapping[str, Advantage] = {
    "value": ValueBaseline(),
    **{f"GAE {lam:g}": Gae(lam=lam, whiten=False) for lam in LAMBDAS},
    "Q(s, a)": ActionValue(),
}
CRITICS = ("fresh", "trained")
"""Critics: initialised as the reward model, and then fitted to this policy's returns."""
PLAIN, TRUE = "REINFORCE", "value/trained"
"""Unit of noise, and the unbiased estimate of least noise, the reference for bias."""


@dataclass(frozen=True, kw_only=True)
class AdvantagesSize:
    """Numbers of samples."""

    prompts: int = 16
    """Prompts of a batch, with GROUP completions each."""
    batches: int = 6
    """Batches of one cell."""
    cells: int = 4
    pool: int = 1024
    """Completions that the critic is fitted to."""
    epochs: int = 3


def cells(setting: ExperimentSetting[AdvantagesSize]) -> list[Cell]:
    """The critic first, then the gradients, in independent parts."""
    decided = (setting.size, Seed(setting.seed))
    critic = Cell("critic", "a critic for the policy", decided, partial(_critic, setting))
    parts = range(setting.size.cells)
    return [
        critic,
        *(Cell(f"gradients-{part}", "gradients", decided, partial(_gradients, setting, part)) for part in parts),
    ]


# Rollouts and their rewards ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PolicySampler:
    """Policy and the reward of its completions."""

    policy: Policy
    reward: Reward
    sampling: config.Sampling

    @classmethod
    def of(cls, start: Start) -> "PolicySampler":
        """Policy and reward model of the demonstration."""
        policy = between(start, 1.0)
        return cls(policy, start.score(policy), start.sampling)

    def rollout(self, questions: Sequence[EncodedPrompt], seed: int) -> ScoredRollout:
        """GROUP scored completions of each question, with the reference's log-probabilities."""
        answers = complete(LocalGenerator(self.policy), questions, GROUP, self.sampling, self.reward, seed=seed)
        temperature = self.sampling.temperature
        return score_references(self.policy, answers, temperature=temperature, budget=Budget(BUDGET))

    def greedy(self, questions: Sequence[EncodedPrompt]) -> Tensor:
        """Score of the greedy completion of each row's prompt. Float[B]"""
        likeliest = replace(self.sampling, temperature=0.0)
        generator = LocalGenerator(self.policy)
        score = complete(generator, questions, 1, likeliest, self.reward, seed=0).score
        return score.repeat_interleave(GROUP)


def rewards(scored: ScoredRollout) -> Tensor:
    """The score on the last token, −β k1 on every token. Float[B, R]"""
    kl = kl_estimate(scored.logp, scored.ref_logp, "k1")
    return torch.where(scored.mask, at_last_token(scored.score, scored.mask) - BETA * kl, 0.0)


# The critic ----------------------------------------------------------------------------------------------------------


def _fresh_critic(start: Start, policy: Policy, seed: int) -> ScalarModel:
    critic = make_critic(policy, "network", start.model("reward"), seed=seed)
    assert isinstance(critic, NetworkCritic)
    return critic.model


def _critic(setting: ExperimentSetting[AdvantagesSize], folder: Path) -> Mapping[str, Any]:
    """Fit a critic to the returns of a pool of completions; saves its weights in the folder."""
    size, seed = setting.size, setting.seed
    sampler = PolicySampler.of(setting.start)
    critic = _fresh_critic(setting.start, sampler.policy, seed)
    order = Order(setting.start.questions("train", sampler.policy), max(1, size.pool // GROUP), seed)
    pool, unseen = sampler.rollout(order(0), seed), sampler.rollout(order(1), seed + 1)
    before = _explained(critic, unseen)
    _fit(critic, pool, size, seed, setting.quiet)
    torch.save(critic.model.state_dict(), folder / "critic.pt")
    after = _explained(critic, unseen)
    return {
        "explained/fresh": before,
        "explained/trained": after,
        "return/mean": float(rewards(pool).sum(1).mean()),
        "kl": float(((unseen.logp - unseen.ref_logp) * unseen.mask).sum(1).mean()),
    }


def _fit(critic: ScalarModel, pool: ScoredRollout, size: AdvantagesSize, seed: int, quiet: bool) -> None:
    """Fit by least squares to the returns-to-go."""
    target = returns_to_go(rewards(pool), pool.mask)
    rows = size.prompts * GROUP
    order = Order(list(range(len(pool))), rows, seed)
    steps = size.epochs * order.steps_per_epoch
    optimiser = config.Optimiser(lr=5e-4, warmup=0.1)
    learner = Learner({"critic": critic.parameters()}, optimiser, steps, critic.total_norm)
    with progress("critic", steps, show=("loss",), quiet=quiet) as advance:
        for step in range(steps):
            index = torch.tensor(order(step))
            part, goal = pool.rows(index), target[index]
            weight = token_weights(part.mask, "token_mean")
            loss = (weight * (critic.values(part) - goal) ** 2).sum()
            critic.backward(loss)
            learner.update()
            learner.step += 1
            advance(step + 1, {"loss": float(loss.detach())})


@torch.no_grad()
def _values(critic: ScalarModel, scored: ScoredRollout) -> Tensor:
    """V before each token. Float[B, R]"""
    parts = [critic.values(scored.rows(index)) for index in torch.arange(len(scored)).split(64)]
    return torch.cat(parts)


def _explained(critic: ScalarModel, scored: ScoredRollout) -> float:
    target = returns_to_go(rewards(scored), scored.mask)
    return float(explained_variance(_values(critic, scored), target, scored.mask))


# The gradients -------------------------------------------------------------------------------------------------------


def estimates(
    scored: ScoredRollout, values: Mapping[str, Tensor], context: Context, earlier: float
) -> dict[str, Tensor]:
    """Every Ψ of one rollout, by name; those with a critic as name/critic. Float[B, R] each

    `earlier` is the mean return of earlier batches, for the moving average.
    """
    reward, mask = rewards(scored), scored.mask
    states = {"moving average": {"sum": earlier, "weight": 1.0}}

    def psi(piece: Advantage | StatefulAdvantage, value: Tensor | None, name: str) -> Tensor:
        state = states.get(name, init(piece))
        (values_of, _), _ = apply(piece, reward, mask, value, scored.group, context, state=state)
        return values_of

    values_of = {name: psi(piece, None, name) for name, piece in CRITIC_FREE.items()}
    for critic, value in values.items():
        for name, piece in WITH_CRITIC.items():
            values_of[f"{name}/{critic}"] = psi(piece, value, name)
    return values_of


def _gradients(setting: ExperimentSetting[AdvantagesSize], part: int, folder: Path) -> Mapping[str, Any]:
    """Sketch the gradient by every Ψ on every batch of a part: sketches.pt, one [batches, width] each."""
    size, seed, sampler = setting.size, setting.seed, PolicySampler.of(setting.start)
    policy, fitted = sampler.policy, folder.parent / "critic"
    critics = {name: _fresh_critic(setting.start, policy, seed) for name in CRITICS}
    critics["trained"].model.load_state_dict(torch.load(fitted / "critic.pt", weights_only=True))
    earlier = float(json.loads((fitted / "summary.json").read_text())["return/mean"])
    order = Order(setting.start.questions("train", policy), size.prompts, seed + 1)
    sketch = Sketch(policy.parameters())
    gradients: dict[str, list[Tensor]] = {}
    with progress("gradients", size.batches, quiet=setting.quiet) as advance:
        for done, batch in enumerate(range(part * size.batches, (part + 1) * size.batches), 1):
            scored, greedy = sampler.rollout(order(batch), seed + 10 + batch), sampler.greedy(order(batch))
            context = Context(score_norm=score_norm_bound(scored.logp), greedy=greedy)
            values = {name: _values(critic, scored) for name, critic in critics.items()}
            psis = estimates(scored, values, context, earlier)
            for name, row in _sketched(sampler, scored, psis, sketch).items():
                gradients.setdefault(name, []).append(row)
            advance(done, {})
    save_sketches(folder, gradients)
    return {"batches": size.batches, "answers": size.prompts * GROUP}


def _sketched(
    sampler: PolicySampler, scored: ScoredRollout, psis: Mapping[str, Tensor], sketch: Sketch
) -> dict[str, Tensor]:
    """∇ of the mean over completions of Σ_t log π · Ψ, for every Ψ, from one forward pass."""
    weight = token_weights(scored.mask, "sequence_sum")
    logp = sampler.policy.scores(scored, temperature=sampler.sampling.temperature).logp
    return {name: sketch.gradient((weight * logp * psi).sum()) for name, psi in psis.items()}


EXPERIMENT = Experiment(
    size=AdvantagesSize(),
    cells=cells,
    page=lambda done, size, command: advantages_page.page(done, command, plain=PLAIN, true=TRUE),
)
