"""Over-optimisation of a rubric under a noisy judge, by GRPO (Yang et al. 2026, Rubric Dropout, arXiv 2608.11669).

The criteria of `RUBRIC` are decided exactly by the world, and their score is gold. A judge's verdict on criterion c is
true on the side of 0 on which

    ±1 + noise · e_c,    e_c = Σ_w a_cw / √n standardised over the SFT model's completions,

lies: +1 for a criterion that is met, and a_cw normal numbers of the judge, one for each of the n different words w of
the completion. So a judge errs at random at the start, and the same way about the same words: an optimiser finds them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tutelage.base.config.files import write_atomically
from tutelage.data.llm_judge import JudgeCriterion
from tutelage.data.records import Messages
from tutelage.data.rubrics import Criterion, rubric_rows
from tutelage.data.worlds import explain
from tutelage.data.worlds.gold import ANALOGY, ENCOURAGEMENT, FACT, QUESTION, TOPIC, words
from tutelage.demo.lab import rubrics_page
from tutelage.demo.lab.experiment import Cell, Experiment, ExperimentSetting
from tutelage.demo.lab.policy_training import Goal, LabPlan, train_policy
from tutelage.rewards.composite import Ensemble
from tutelage.rewards.reward import Completion, Reward
from tutelage.rewards.rubric import RubricReward
from tutelage.rewards.scores import scores_of
from tutelage.rollout.inference.completion_records import sample_completions
from tutelage.stats.vote_codes import Floats
from tutelage.train.run.json_lines import json_text

JUDGES, SCALES = "judges", "scales.json"


@dataclass(frozen=True)
class WorldCriterion:
    """A criterion about one part of the utility (`data.worlds.gold`). It is met if the part is at least `least`; if the
    criterion is a fault, if the part is below it."""

    criterion: Criterion
    part: str
    least: float

    def met(self, prompt: str, completion: str) -> bool:
        """Whether a completion meets it."""
        enough = _parts(prompt, completion)[self.part] >= self.least
        return enough == (self.criterion.points > 0)


WORLD_CRITERIA = (
    WorldCriterion(Criterion("Says two facts or more about the topic, and nothing wrong", 3), "accuracy", 1.8 * FACT),
    WorldCriterion(Criterion("Stays on the topic", 2), "topic", 0.9 * TOPIC),
    WorldCriterion(Criterion("Gives one analogy", 3), "analogy", 0.85 * ANALOGY),
    WorldCriterion(Criterion("Asks the child one question", 3), "question", 0.8 * QUESTION),
    WorldCriterion(Criterion("Greets or encourages once", 2), "engagement", 0.8 * ENCOURAGEMENT),
    WorldCriterion(Criterion("Has 35 to 60 words", 1), "length", 0.0),
    WorldCriterion(Criterion("Is written in plain words", 1), "plain_words", -0.1),
    WorldCriterion(Criterion("Breaks sentences off", -3), "coherence", -0.2),
    WorldCriterion(Criterion("Repeats itself", -2), "repetition", -0.1),
)
RUBRIC = tuple(each.criterion for each in WORLD_CRITERIA)
_ROWS = rubric_rows(RUBRIC)


@lru_cache(maxsize=1 << 14)
def _parts(prompt: str, completion: str) -> Mapping[str, float]:
    return explain(prompt, completion)


@dataclass(frozen=True)
class TrueJudge:
    """The judge that errs about nothing."""

    def __call__(self, messages: Messages, response: str, criterion: Criterion) -> bool:
        """Whether the response meets the criterion."""
        return WORLD_CRITERIA[RUBRIC.index(criterion)].met(messages[-1].content, response)


@dataclass(frozen=True)
class NoisyJudge:
    """The judge number `seed`, whose errors have this mean and standard deviation over the SFT model's completions, by
    criterion."""

    seed: int
    noise: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, messages: Messages, response: str, criterion: Criterion) -> bool:
        """The verdict on one criterion."""
        index = RUBRIC.index(criterion)
        error = (float(raw_errors(self.seed, response)[index]) - self.mean[index]) / self.std[index]
        truth = WORLD_CRITERIA[index].met(messages[-1].content, response)
        return (1 if truth else -1) + self.noise * error > 0


@lru_cache(maxsize=1 << 14)
def raw_errors(seed: int, completion: str) -> Floats:
    """Σ_w a_cw / √n of a judge for each criterion. Float[C]"""
    different = sorted(set(words(completion)))
    return sum((_word_errors(seed, word) for word in different), np.zeros(len(RUBRIC))) / max(len(different), 1) ** 0.5


@cache
def _word_errors(seed: int, word: str) -> Floats:
    """a_cw of one word."""
    return np.random.default_rng([seed, *word.encode()]).normal(size=len(RUBRIC))


@dataclass(frozen=True)
class WithRubric:
    """A reward by rubric, of completions whose rows have none."""

    reward: RubricReward

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        return scores_of(self.reward, [replace(one, data={"rubric": _ROWS}) for one in completions])


def rubric_reward(judge: JudgeCriterion, dropout: float = 0.0) -> Reward:
    """The rubric of the world by one judge."""
    return WithRubric(RubricReward(judge, at_once=1, dropout=dropout))


# Cells ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgePanel:
    """Judges to calibrate."""

    judges: int
    noise: float
    answers: int
    seed: int


@dataclass(frozen=True)
class Optimised:
    """What a policy is trained on: by which judges, and how many criteria are left out."""

    way: rubrics_page.Way
    judges: tuple[int, ...]
    noise: float
    dropout: float


def cells(setting: ExperimentSetting[rubrics_page.RubricsSize]) -> list[Cell]:
    """The judges, then a policy for each way and seed, seed by seed."""
    size, seed = setting.size, setting.seed
    panel = JudgePanel(size.seeds * size.ensemble, size.noise, size.answers, seed)
    parts = [Cell(JUDGES, "judges", (panel,), partial(_calibrate, setting, panel))]
    for number in range(size.seeds):
        judges = tuple(range(number * size.ensemble, (number + 1) * size.ensemble))
        for way in rubrics_page.WAYS:
            used = judges if way == "ensemble" else () if way == "gold" else judges[:1]
            aim = Optimised(way, used, size.noise, size.dropout if way == "dropout" else 0.0)
            plan = replace(size.plan, seed=seed + number)
            parts.append(
                Cell(f"{way}-{number}", f"{rubrics_page.TITLES[way]}, seed {number}", (aim, panel, plan),
                     partial(_train_on_judges, setting, aim, plan))
            )  # fmt: skip
    return parts


def _calibrate(
    setting: ExperimentSetting[rubrics_page.RubricsSize], panel: JudgePanel, folder: Path
) -> Mapping[str, Any]:
    """scales.json: mean and standard deviation of every judge's errors, by criterion. Returns how often the verdicts
    are right, and how the scores correlate with gold."""
    policy = setting.start.policy()
    prompts = [question.prompt for question in setting.start.questions("held_out", policy)]
    count = -(-panel.answers // len(prompts))
    answered = sample_completions(policy, prompts, count, setting.start.sampling, seed=panel.seed)
    completions = [
        Completion(prompt.id, prompt.messages, text)
        for prompt, text in zip(answered.prompts, answered.texts, strict=True)
    ]
    scales: dict[str, list[list[float]]] = {}
    for judge in range(panel.judges):
        errors = np.stack([raw_errors(judge, one.answer) for one in completions])
        scales[str(judge)] = [errors.mean(0).tolist(), errors.std(0).tolist()]
    write_atomically(folder / SCALES, json_text(scales))
    true = TrueJudge()
    truth = np.array([[true(one.messages, one.answer, each) for each in RUBRIC] for one in completions])
    gold = scores_of(rubric_reward(TrueJudge()), completions).numpy()
    figures: dict[str, Any] = {"answers": len(completions), "gold": float(gold.mean()), "gold_std": float(gold.std())}
    right, correlation = [], []
    for judge in range(panel.judges):
        noisy = _judge(folder, judge, panel.noise)
        verdicts = np.array([[noisy(one.messages, one.answer, each) for each in RUBRIC] for one in completions])
        right.append(float((verdicts == truth).mean()))
        score = scores_of(rubric_reward(noisy), completions).numpy()
        same = min(float(score.std()), float(gold.std())) == 0
        correlation.append(float("nan") if same else float(np.corrcoef(score, gold)[0, 1]))
    return figures | {"right": right, "correlation": correlation, "met": truth.mean(0).tolist()}


def _judge(folder: Path, number: int, noise: float) -> NoisyJudge:
    mean, std = json.loads((folder / SCALES).read_text(encoding="utf-8"))[str(number)]
    return NoisyJudge(number, noise, tuple(mean), tuple(std))


def _train_on_judges(
    setting: ExperimentSetting[rubrics_page.RubricsSize], aim: Optimised, plan: LabPlan, folder: Path
) -> Mapping[str, Any]:
    """GRPO; `proxy` is the score by the judges that the policy is trained on, with all criteria."""
    noisy = [_judge(folder.parent / JUDGES, number, aim.noise) for number in aim.judges]
    judges: Sequence[JudgeCriterion] = noisy or [TrueJudge()]
    proxy = Ensemble(tuple(map(rubric_reward, judges)))
    reward = Ensemble(tuple(rubric_reward(judge, aim.dropout) for judge in judges)) if aim.dropout else proxy
    goal = Goal(reward, {"proxy": proxy, "gold": rubric_reward(TrueJudge())})
    return train_policy(folder, setting.start, plan, setting.start.policy(), goal, quiet=setting.quiet)


EXPERIMENT = Experiment(size=rubrics_page.RubricsSize(), cells=cells, page=rubrics_page.page)
