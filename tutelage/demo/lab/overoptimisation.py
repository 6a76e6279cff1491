"""Over-optimisation of reward models from few and many pairs, by best-of-n and by PPO (Gao et al. 2022).

Scores, those of gold included, are standardised over the SFT model's completions. Larger sets of pairs contain the
smaller ones. One size also tests the remedies of Coste et al. 2023 (2310.02743): ensembles of reward models with
different heads and orders of pairs, and a KL penalty.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from tutelage.base import config
from tutelage.base.config.files import write_atomically
from tutelage.base.nouns import counted
from tutelage.commands.display import progress
from tutelage.commands.reward.run import prepare_reward
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.terminal import complete
from tutelage.data.pairing import pair_completions
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import CompletionRecord, Preference, Prompt, Split
from tutelage.data.tokenizer import same_vocabulary
from tutelage.data.worlds import gold
from tutelage.demo.lab import overoptimisation_page
from tutelage.demo.lab.experiment import Cell, Experiment, ExperimentSetting
from tutelage.demo.lab.measurements import mean
from tutelage.demo.lab.policy_training import Goal, LabPlan, StandardisedReward, train_policy
from tutelage.demo.lab.start import gold_reward
from tutelage.demo.rounds.round import AGREEMENT
from tutelage.models.heads import load_reward_model
from tutelage.models.policy import Policy
from tutelage.people.simulated_raters import calibrated_tau, panel
from tutelage.rewards.composite import Combination, Ensemble, combine
from tutelage.rewards.model_reward import ModelReward
from tutelage.rewards.reward import Reward
from tutelage.rewards.scores import scores_of
from tutelage.rollout.inference.best_of_n import best_of_n_kl
from tutelage.rollout.inference.completion_records import records_of, sample_completions
from tutelage.stats.scaling_laws import best_of_n
from tutelage.stats.vote_codes import Floats
from tutelage.train.run.json_lines import json_text

PAIRS, SCALES, SAMPLES = "pairs", "scales.json", "best-of-n"
FREE = ("update.epochs=2", "update.minibatches=2", "penalty=none")
"""Overrides of PPO that leave policies free to move away from the reference."""
HOW: tuple[Combination, ...] = ("mean", "worst", "lower")


@dataclass(frozen=True, kw_only=True)
class OveroptimisationSize:
    """Numbers of pairs, reward models, samples and steps."""

    pairs: tuple[int, ...] = (250, 1000, 4000, 16000)
    epochs: tuple[float, ...] = (4.0, 2.0, 1.0, 1.0)
    """Epochs over the pairs, for each number of them."""
    answers: int = 10
    """Completions of each training prompt, from which pairs are formed."""
    test_pairs: int = 500
    """Held-out pairs for testing the reward models."""
    ensemble: int = 4
    """Reward models of an ensemble."""
    remedied: int = 1000
    """Number of pairs at which the remedies are tested."""
    variance: float = 0.5
    """Weight of the variance in mean − λ · variance."""
    coefs: tuple[float, ...] = (0.05, 0.2)
    prompts: int = 40
    """Held-out prompts of best-of-n."""
    samples: int = 256
    """Completions of each of them."""
    plan: LabPlan = LabPlan(set=FREE, steps=50)  # noqa: RUF009

    @property
    def tried(self) -> tuple[int, ...]:
        """The n of best-of-n: powers of two up to the number of samples."""
        return tuple(2**k for k in range(self.samples.bit_length()) if 2**k <= self.samples)


@dataclass(frozen=True)
class ProxyJudge:
    """Reward model to train: the first `pairs` of the pairs, and its replicate."""

    pairs: int
    epochs: float
    member: int = 0

    @property
    def name(self) -> str:
        """Folder of its cell."""
        return f"judge-{self.pairs}" + (f"-{self.member}" if self.member else "")


@dataclass(frozen=True)
class PairPlan:
    """Settings of pairs and samples."""

    answers: int
    pairs: int
    test_pairs: int
    seed: int


@dataclass(frozen=True)
class SamplePlan:
    """Settings of best-of-n."""

    prompts: int
    samples: int
    tried: tuple[int, ...]
    variance: float
    judges: tuple[ProxyJudge, ...]
    seed: int


@dataclass(frozen=True)
class Aim:
    """Reward models to maximise, and their combination."""

    judges: tuple[ProxyJudge, ...]
    how: Combination = "mean"
    variance: float = 0.0


def judges_of(size: OveroptimisationSize) -> list[ProxyJudge]:
    """One for every number of pairs, then the rest of the ensemble."""
    single = [ProxyJudge(pairs, epochs) for pairs, epochs in zip(size.pairs, size.epochs, strict=True)]
    (first,) = [judge for judge in single if judge.pairs == size.remedied]
    return [*single, *(replace(first, member=member) for member in range(1, size.ensemble))]


def ensemble_of(size: OveroptimisationSize) -> tuple[ProxyJudge, ...]:
    """Reward models for the remedies."""
    return tuple(judge for judge in judges_of(size) if judge.pairs == size.remedied)


def cells(setting: ExperimentSetting[OveroptimisationSize]) -> list[Cell]:
    """Pairs, reward models, best-of-n by all of them, then a policy for each."""
    size, seed = setting.size, setting.seed
    plan_of_pairs = PairPlan(size.answers, max(size.pairs), size.test_pairs, seed)
    parts = [Cell(PAIRS, "pairs and votes", (plan_of_pairs,), partial(_pairs, setting, plan_of_pairs))]
    judges = judges_of(size)
    for judge in judges:
        title = f"reward model from {counted(judge.pairs, 'pair')}" + (
            f", again ({judge.member})" if judge.member else ""
        )
        parts.append(Cell(judge.name, title, (plan_of_pairs, judge), partial(_judge, setting, judge)))
    sampled = SamplePlan(size.prompts, size.samples, size.tried, size.variance, tuple(judges), seed)
    parts.append(Cell(SAMPLES, "best-of-n", (plan_of_pairs, sampled), partial(_best_of_n, setting, sampled)))
    return parts + [
        _training(setting, name, title, aim, plan) for name, title, aim, plan in _training_plans(size, seed)
    ]


def _training_plans(size: OveroptimisationSize, seed: int) -> list[tuple[str, str, Aim, LabPlan]]:
    """PPO against each single reward model; against the ensembles and with a penalty, at the size of the remedies."""
    plan = replace(size.plan, seed=seed)
    trainings = [
        (f"ppo-{judge.pairs}", counted(judge.pairs, "pair"), Aim((judge,)), plan)
        for judge in judges_of(size)
        if not judge.member
    ]
    together = ensemble_of(size)
    for how in HOW:
        aim = Aim(together, how, size.variance if how == "lower" else 0.0)
        trainings.append((f"ppo-{how}", f"{how} of {len(together)}", aim, plan))
    for coef in size.coefs:
        rest = tuple(change for change in plan.set if not change.startswith("penalty"))
        dear = replace(plan, set=(*rest, f"penalty.coef={coef:g}"))
        trainings.append((f"ppo-beta-{coef:g}", f"β = {coef:g}", Aim(together[:1]), dear))
    return trainings


# Pairs ---------------------------------------------------------------------------------------------------------------


def _pairs(setting: ExperimentSetting[OveroptimisationSize], plan: PairPlan, folder: Path) -> Mapping[str, Any]:
    """preferences.jsonl and test.jsonl: one attentive rater's vote on each pair of the SFT model's completions; and
    the spread of gold over those completions."""
    policy = setting.start.policy()
    train = _answers(setting, policy, "train", plan.answers, plan.seed)
    held_out = _answers(setting, policy, "held_out", 4, plan.seed + 1)
    questions, values = _gold(train)
    pairs = pair_completions(train.answers, pairs_per_prompt=4, rng_seed=plan.seed)
    tau = calibrated_tau([values[pair.a_id] - values[pair.b_id] for pair in pairs], AGREEMENT)
    votes = _votes(train, values, tau, plan.pairs, plan.seed)
    tests = _votes(held_out, _gold(held_out)[1], tau, plan.test_pairs, plan.seed + 1)
    write_jsonl(folder / "preferences.jsonl", map(to_row, votes))
    write_jsonl(folder / "test.jsonl", map(to_row, tests))
    return {
        "answers": len(questions),
        "pairs": len(votes),
        "tau": tau,
        "gold/mean": float(np.mean(list(values.values()))),
        "gold/std": float(np.std(list(values.values()))),
    }


@dataclass(frozen=True)
class PromptAnswers:
    """Prompts and their completions."""

    prompts: Mapping[str, Prompt]
    answers: Sequence[CompletionRecord]


def _answers(
    setting: ExperimentSetting[OveroptimisationSize], policy: Policy, split: Split, n: int, seed: int
) -> PromptAnswers:
    start = setting.start
    questions = start.questions(split, policy)
    prompts = [question.prompt for question in questions]
    answered: list[CompletionRecord] = []
    with progress(f"answers ({split})", len(prompts), quiet=setting.quiet) as advance:
        for at in range(0, len(prompts), 50):
            part = sample_completions(policy, prompts[at : at + 50], n, start.sampling, seed=seed)
            answered += records_of(part, "sft", start.sampling)
            advance(min(at + 50, len(prompts)), {})
    return PromptAnswers({prompt.id: prompt for prompt in prompts}, answered)


def _gold(data: PromptAnswers) -> tuple[list[str], dict[str, float]]:
    """Texts of the prompts row by row, and gold by id of the completion."""
    questions = [data.prompts[answer.prompt_id].messages[-1].content for answer in data.answers]
    values = gold(questions, [answer.text for answer in data.answers])
    return questions, {answer.id: value for answer, value in zip(data.answers, values, strict=True)}


def _votes(data: PromptAnswers, values: Mapping[str, float], tau: float, count: int, seed: int) -> list[Preference]:
    """`count` pairs in random order, each judged by one attentive rater of a panel; ties are replaced."""
    per_prompt = -(-count * 5 // (4 * len(data.prompts))) + 1
    answered = [answer for answer in data.answers if answer.text.strip()]
    pairs = pair_completions(answered, pairs_per_prompt=per_prompt, rng_seed=seed)
    rng = Random(f"lab/{seed}/votes")
    rng.shuffle(pairs)
    raters = [rater for rater in panel(seed, 12, tau) if rater.kind == "ordinary"]
    text = {answer.id: answer.text for answer in data.answers}
    preferences: list[Preference] = []
    for pair in pairs:
        if len(preferences) == count:
            break
        words = [len(text[key].split()) for key in (pair.a_id, pair.b_id)]
        vote = rng.choice(raters).judge(values[pair.a_id], values[pair.b_id], words[0], words[1], rng)
        if vote.verdict in ("left", "right"):
            better, worse = (pair.a_id, pair.b_id) if vote.verdict == "left" else (pair.b_id, pair.a_id)
            preferences.append(Preference(data.prompts[pair.prompt_id].messages, text[better], text[worse]))
    return preferences


# Reward models -------------------------------------------------------------------------------------------------------


def _judge(setting: ExperimentSetting[OveroptimisationSize], judge: ProxyJudge, folder: Path) -> Mapping[str, Any]:
    """Train a reward model with the workflow, on the first pairs. Returns its accuracy."""
    start, pairs = setting.start, folder.parent / PAIRS
    lines = (pairs / "preferences.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[: judge.pairs]
    write_atomically(folder / "pairs.jsonl", "".join(lines))
    settings = RewardSettings(
        out=folder / "run",
        seed=setting.seed + 1000 * judge.member,
        resume=True,
        quiet=setting.quiet,
        model=start.model("sft"),
        data=str(folder / "pairs.jsonl"),
        test=str(pairs / "test.jsonl"),
        centre=str(start.folder / "data" / "demonstrations.jsonl"),
        epochs=judge.epochs,
        batch_size=32,
        held_out=0.05,
        optimiser=config.Optimiser(lr=1e-3, warmup=0.1, weight_decay=0.01),
        evaluate_every=25,
        checkpoints=config.Checkpoints(every=50, keep=1),
    )
    result = complete(prepare_reward(settings), quiet=setting.quiet)
    shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)
    low, high = result.metrics["accuracy_interval"]
    return {"pairs": judge.pairs, "accuracy": result.accuracy, "accuracy/low": low, "accuracy/high": high}


def _loaded(cells_: Path, judge: ProxyJudge, policy: Policy) -> Reward:
    model = load_reward_model(config.Model(path=str(cells_ / judge.name / "run" / "model")))
    return ModelReward(model, same_tokens=same_vocabulary(policy.tokenizer, model.tokenizer))


# Best-of-n -----------------------------------------------------------------------------------------------------------


def _best_of_n(
    setting: ExperimentSetting[OveroptimisationSize], sampled: SamplePlan, folder: Path
) -> Mapping[str, Any]:
    """Proxy and gold of the best of n by every reward model and ensemble: one line of metrics.jsonl each. Writes the
    scale of every score, for training the policies, to scales.json."""
    start = setting.start
    policy = start.policy()
    prompts = [question.prompt for question in start.questions("held_out", policy)][: sampled.prompts]
    rewards = {"gold": gold_reward()} | {judge.name: _loaded(folder.parent, judge, policy) for judge in sampled.judges}
    parts: dict[str, list[list[float]]] = {name: [] for name in rewards}
    with progress("best-of-n", len(prompts), quiet=setting.quiet) as advance:
        for number, prompt in enumerate(prompts):
            batch = sample_completions(policy, [prompt], sampled.samples, start.sampling, seed=sampled.seed)
            for name, judge in rewards.items():
                parts[name].append(scores_of(judge, batch.completions).tolist())
            advance(number + 1, {})
    raw = {name: np.array(rows) for name, rows in parts.items()}
    scales = {name: (float(values.mean()), float(values.std()) or 1.0) for name, values in raw.items()}
    scores = {name: (values - scales[name][0]) / scales[name][1] for name, values in raw.items()}
    write_jsonl(folder / "metrics.jsonl", _curves(_proxies(scores, sampled), scores["gold"], sampled.tried))
    write_atomically(folder / SCALES, json_text({name: list(scale) for name, scale in scales.items()}))
    return {"answers": raw["gold"].size}


def _proxies(scores: Mapping[str, Floats], sampled: SamplePlan) -> dict[str, Floats]:
    """Proxies by name: every reward model alone, and the ensemble in every combination."""
    alone = {judge.name: scores[judge.name] for judge in sampled.judges}
    several = [judge for judge in sampled.judges if any(j.member and j.pairs == judge.pairs for j in sampled.judges)]
    if not several:
        return alone
    members = torch.from_numpy(np.stack([scores[judge.name] for judge in several]))
    return alone | {how: combine(members, how, sampled.variance).numpy() for how in HOW}


def _curves(proxies: Mapping[str, Floats], worth: Floats, tried: Sequence[int]) -> Iterator[dict[str, str | float]]:
    for name, proxy in proxies.items():
        begun = proxy.mean()
        for n in tried:
            row: dict[str, str | float] = {"proxy": name, "n": n, "kl": best_of_n_kl(n)}
            for what, values in (("score", proxy - begun), ("gold", worth)):
                mean_proxy = mean(best_of_n(proxy, values, n).tolist())
                row |= {what: mean_proxy.value, f"{what}_error": mean_proxy.error}
            yield row


# Policies ------------------------------------------------------------------------------------------------------------


def _training(setting: ExperimentSetting[OveroptimisationSize], name: str, title: str, aim: Aim, plan: LabPlan) -> Cell:
    """PPO against the scaled reward of `aim`; gold is in its own standard deviations."""

    def run(folder: Path) -> Mapping[str, Any]:
        policy = setting.start.policy()
        scales = json.loads((folder.parent / SAMPLES / SCALES).read_text(encoding="utf-8"))
        members = tuple(
            StandardisedReward(_loaded(folder.parent, judge, policy), *scales[judge.name]) for judge in aim.judges
        )
        gold_score = StandardisedReward(gold_reward(), *scales["gold"])
        goal = Goal(Ensemble(members, aim.how, aim.variance), {"gold": gold_score})
        return train_policy(folder, setting.start, plan, policy, goal, quiet=setting.quiet)

    return Cell(name, title, (aim, plan), run)


EXPERIMENT = Experiment(
    size=OveroptimisationSize(),
    cells=cells,
    page=lambda done, size, command: overoptimisation_page.page(done, size.pairs, size.remedied, size.plan, command),
)
