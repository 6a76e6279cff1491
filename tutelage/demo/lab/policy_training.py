"""Training of one policy by one recipe against one reward."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.recipe_state import restored_state
from tutelage.algorithms.registry import recipe_named
from tutelage.base import config
from tutelage.commands.terminal import follow
from tutelage.data.record_files import write_jsonl
from tutelage.data.records import Prompt, user
from tutelage.demo.lab.experiment import Cell, ExperimentSetting
from tutelage.demo.lab.measurements import BUDGET, averages, measure
from tutelage.demo.lab.start import Start, gold_reward
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Completion, Completions, Reward, Scores, rows_of
from tutelage.rewards.scores import scores_of
from tutelage.rollout.generator import EncodedPrompt
from tutelage.rollout.local import LocalGenerator
from tutelage.train.learner import Learner, Step
from tutelage.train.rl.critic import NetworkCritic, TrunkCritic, make_critic, save_policy
from tutelage.train.rl.improve import improve
from tutelage.train.rl.rollouts import complete
from tutelage.train.rl.setup import RolloutSettings
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Loop, Monitor, load_state, recipe_state
from tutelage.train.supervised.batches import Order


@dataclass(frozen=True)
class StandardisedReward:
    """(score − mean) / std over the initial policy's completions."""

    reward: Reward
    mean: float
    std: float

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        return (scores_of(self.reward, completions) - self.mean) / self.std


class CountedReward:
    """Reward that counts the tokens of all scored completions, including greedy ones and those discarded by dynamic
    sampling."""

    def __init__(self, reward: Reward, tokens: int = 0) -> None:
        self.reward, self.tokens = reward, tokens

    def __call__(self, completions: Sequence[Completion]) -> Scores:
        rows = rows_of(completions)
        self.tokens += 0 if rows is None else int(rows.mask.sum())
        return self.reward(completions)


FOLLOWED = 2
"""Held-out prompts whose completions are tracked during training."""


@dataclass(frozen=True, kw_only=True)
class LabPlan:
    """Training and measurement of a policy."""

    recipe: str = "ppo"
    set: tuple[str, ...] = ()
    """Overrides of the recipe."""
    steps: int = 60
    answers: int = 32
    """Completions of one step; a recipe with G per prompt uses answers / G prompts."""
    tokens: int = 0
    """Stop after the step that reaches this number of sampled tokens; 0 to use only the number of steps."""
    lr: float = 3e-4
    critic_lr: float = 3e-3
    """Learning rate of the critic; at the policy's, it would predict nothing in so few steps."""
    seed: int = 0
    reference: bool = True
    """Compute the reference in training; False for recipes without a penalty."""
    tested: int = 160
    """Held-out prompts for the final policy."""
    every: int = 10
    """Steps between recorded completions."""


@dataclass(frozen=True)
class Goal:
    """Reward to maximise, and further judges of the completions, by name. "gold" is among them."""

    reward: Reward
    judges: Mapping[str, Reward] = field(default_factory=dict)


def train_policy(
    folder: Path, start: Start, plan: LabPlan, policy: Policy, goal: Goal, *, quiet: bool
) -> dict[str, Any]:
    """Train `policy` (which becomes its own reference) by the plan, or resume.

    metrics.jsonl has, in addition to the metrics of `improve`, <judge>/mean and <judge>/std of the step's
    completions, kl/std, and tokens, those sampled so far. answers.jsonl has the completions of held-out prompts.
    Returns their averages.
    """
    recipe = override(recipe_named(plan.recipe), plan.set)
    policy.freeze_reference()
    with Run.open(folder, plan, resume=True, keep=1) as run:
        critic = make_critic(policy, "trunk", None, seed=plan.seed) if recipe.critic is not None else None
        held_out = start.questions("held_out", policy)
        _train(run, policy, critic, recipe, plan, start, goal, held_out[:FOLLOWED], quiet)
        rows = measure(
            policy, held_out[: plan.tested], {"score": goal.reward, **goal.judges}, start.sampling, seed=plan.seed
        )
        write_jsonl(folder / "answers.jsonl", rows)
        figures = averages(rows)
        run.finish(figures)
    shutil.rmtree(folder / "checkpoints")  # finished cells are only read for their measurements; saves disk space
    return figures


def _train(
    run: Run,
    policy: Policy,
    critic: TrunkCritic | NetworkCritic | None,
    recipe: Recipe,
    plan: LabPlan,
    start: Start,
    goal: Goal,
    followed: Sequence[EncodedPrompt],
    quiet: bool,
) -> None:
    learner = _learner(policy, critic, plan)
    extra = load_state(run, learner)
    reward = CountedReward(goal.reward, int(extra["tokens"]) if extra else 0)
    prompts = Order(start.questions("train", policy), max(1, plan.answers // recipe.samples), plan.seed)
    steps = improve(
        policy,
        LocalGenerator(policy),
        prompts,
        reward,
        recipe,
        learner,
        RolloutSettings(start.sampling, Budget(BUDGET), plan.seed, reference=plan.reference),
        critic=critic,
        state=restored_state(recipe, extra["recipe"]) if extra else None,
    )

    def look(step: Step) -> dict[str, float]:
        if step.index == 1 or step.index % plan.every == 0 or step.index == plan.steps:
            _keep_answers(run, step.index, policy, followed, goal, start.sampling)
        return {"tokens": float(reward.tokens)} | _told(step, goal.judges)

    loop = Loop(
        run=run,
        learner=learner,
        steps=steps,
        label=run.path.name,
        save=partial(save_policy, policy, critic),
        extra_state=lambda step: recipe_state(step) | {"tokens": int(step.metrics["tokens"])},
        checkpoints=config.Checkpoints(every=25, keep=1),
        show=("score/mean", "gold/mean", "kl/reference"),
        monitor=Monitor(look, enough=lambda: 0 < plan.tokens <= reward.tokens),
    )
    follow(loop, quiet=quiet)


def _learner(policy: Policy, critic: TrunkCritic | NetworkCritic | None, plan: LabPlan) -> Learner:
    """Constant learning rate, so that longer runs extend shorter ones."""
    groups = {"policy": policy.parameters()}
    if critic is not None:
        groups["critic"] = critic.parameters()
    settings = config.Optimiser(lr=plan.lr, eps=config.POLICY_EPS, warmup=2, schedule="constant")
    return Learner(groups, settings, plan.steps, policy.total_norm, critic=plan.critic_lr)


def _told(step: Step, judges: Mapping[str, Reward]) -> dict[str, float]:
    """Scores of a step's completions by all judges, and the spread of their KLs."""
    sample = step.sample
    assert sample is not None
    kl = ((sample.logp - sample.ref_logp) * sample.mask).sum(1)
    figures = {"kl/std": float(kl.std(correction=0))}
    prompts = [Prompt(str(row), user(question)) for row, (question, _) in enumerate(step.texts)]
    completions = Completions(prompts, [text for _, text in step.texts], sample)
    for name, judge in judges.items():
        scores = scores_of(judge, completions)
        figures |= {f"{name}/mean": float(scores.mean()), f"{name}/std": float(scores.std(correction=0))}
    return figures


def _keep_answers(
    run: Run, step: int, policy: Policy, prompts: Sequence[EncodedPrompt], goal: Goal, sampling: config.Sampling
) -> None:
    answers = complete(LocalGenerator(policy), prompts, 1, sampling, goal.reward, seed=0)
    gold = scores_of(goal.judges["gold"], answers.completions).tolist()
    run.samples(
        step,
        [
            {"prompt": p.messages[-1].content, "completion": text, "score": float(score), "gold": worth}
            for p, text, score, worth in zip(answers.row_prompts, answers.texts, answers.score, gold, strict=True)
        ],
    )


def training_cell(setting: ExperimentSetting[Any], name: str, title: str, plan: LabPlan) -> Cell:
    """Cell of a training on the reward model of the demonstration, measured by the gold reward."""

    def run(folder: Path) -> Mapping[str, Any]:
        policy = setting.start.policy()
        goal = Goal(setting.start.score(policy), {"gold": gold_reward()})
        return train_policy(folder, setting.start, plan, policy, goal, quiet=setting.quiet)

    return Cell(name, title, (plan,), run)
