"""Evaluation of a model's completions, alone or against those of another model, and on tasks."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.calls import workflow
from tutelage.commands.evaluate import reward_benchmark
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.evaluate.summary import Side, answer_rows, table
from tutelage.commands.generators import environment_of, episode_prompts, fixed_generator, playing
from tutelage.commands.runs import announce, announce_judging, remark
from tutelage.core.batch import Rollout, Rows
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.formats import load_demonstrations
from tutelage.data.record_files import write_jsonl
from tutelage.data.records import Messages, Prompt, turn_text
from tutelage.data.tokenizer import same_vocabulary
from tutelage.engines.ranks.processes import join
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.backbone import load_backbone
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy, perplexity, sequence_kl
from tutelage.rewards.factory import make_reward, require_columns
from tutelage.rewards.reward import Reward, reward_name
from tutelage.rewards.rubric import without_dropout
from tutelage.rewards.scores import breakdown_of
from tutelage.rollout.distributed import dealt_generator, dealt_reward
from tutelage.rollout.generator import Generator
from tutelage.rollout.inference.completion_records import SampledBatch, sample_completions
from tutelage.rollout.local import LocalGenerator
from tutelage.stats.paired import length_controlled_win_rate, outcomes, scored_win_rate
from tutelage.stats.text import distinct, lengths, repetition, rouge
from tutelage.train.rl.rollouts import episode_metrics
from tutelage.train.supervised.batches import encode_demonstrations

if TYPE_CHECKING:
    from tutelage.commands.evaluate.harness import TaskFigures
    from tutelage.rollout.environment import Environment

TOKENS_AT_ONCE = 8192
"""Padded tokens per forward pass when measuring divergence or perplexity."""

_NAMED = re.compile(r"([\w.-]+)=(.*)", re.DOTALL)
"""Pattern of a reward with a name before it."""


@dataclass(frozen=True)
class EvaluateResult:
    """Results of an evaluation."""

    out: Path
    """Folder with summary.json, answers.jsonl and tasks.jsonl."""
    summary: Mapping[str, Any]
    """Content of summary.json."""

    @property
    def figures(self) -> Mapping[str, float]:
        """Figures of the model by name: <reward>_mean, <reward>_std, length, ended, kl, rouge1, ...; of tasks
        <task>/<metric> and its standard error <task>/<metric>_error."""
        return self.summary["model"]

    @property
    def against(self) -> Mapping[str, float]:
        """The same figures of the model compared with; empty if there is none."""
        return self.summary.get("against", {})

    def win_rate(self, reward: str) -> float:
        """Share of the prompts on which the model's completions score higher by this reward; ties count half."""
        return self.summary["win_rate"][reward]["win_rate"]


@workflow(EvaluateSettings)
def evaluate(settings: EvaluateSettings) -> EvaluateResult:
    """Measure a model's completions: scores, text measures and, against a second model, win rates; and its results on
    tasks of lm-evaluation-harness.

    Writes summary.json, answers.jsonl and tasks.jsonl to `settings.out`.

    Raises:
        TutelageError: the settings, the prompts, a reward, a task or a model cannot be used.
    """
    if settings.tasks:
        import tutelage.commands.evaluate.harness as harness  # fail on a missing library before loading models
    environment = environment_of(settings)
    prompts = _prompts(settings, environment) if settings.prompts else []
    if settings.text:  # fail on an unreadable file before sampling
        announce(load_demonstrations(settings.text))
    ranks = join()
    if settings.reward_bench:
        return _benchmark(settings, ranks)
    policy = _load(settings.model.path, settings)
    other = _load(settings.against, settings) if settings.against else None
    policies = [policy] if other is None else [other, policy]
    if prompts:
        sides = _sides(settings, prompts, environment, policy, other, ranks)
    else:
        sides = [Side(name, None, {}, {}) for name in settings.names[-len(policies) :]]
    tasks = ranks.shared(lambda: [harness.run_tasks(one, settings) for one in policies]) if settings.tasks else []
    return ranks.shared(lambda: _write(settings, prompts, sides, tasks))


def _benchmark(settings: EvaluateSettings, ranks: Ranks) -> EvaluateResult:
    """Measure the reward that `settings.model` names, and the further ones, on a benchmark."""
    rows = reward_benchmark.load_rows(settings)
    rewards = _rewards(replace(settings, reward=(settings.model.path, *settings.reward)), None, ranks)
    return EvaluateResult(settings.out, reward_benchmark.measure_rewards(settings, rows, rewards, ranks))


def _prompts(settings: EvaluateSettings, environment: "Environment | None") -> list[Prompt]:
    loaded = announce(episode_prompts(settings.prompts, environment))
    rewards = [source for _, source in _named(settings)]
    require_columns(rewards, loaded)
    prompts = list(loaded.records[: settings.limit or None])
    announce_judging(rewards, prompts, settings.n * (2 if settings.against else 1))
    return prompts


def _write(
    settings: EvaluateSettings, prompts: Sequence[Prompt], sides: Sequence[Side], tasks: Sequence["TaskFigures"]
) -> EvaluateResult:
    """Compare the sides, and write the result files."""
    for side, task in zip(sides, tasks, strict=bool(tasks)):
        side.figures.update(task.figures)
    summary: dict[str, Any] = {"prompts": len(prompts), "model": sides[-1].figures}
    if len(sides) == 2:
        summary |= {"against": sides[0].figures}
        if prompts:
            summary |= {"win_rate": _win_rates(sides[1], sides[0])}
    if tasks:
        names = [name for name in tasks[-1].figures if not name.endswith("_error")]
        summary |= {"tasks": {"figures": names, "versions": dict(tasks[-1].versions)}}
    summary |= {"columns": [side.name for side in sides], "rows": table(sides, summary)}
    settings.out.mkdir(parents=True, exist_ok=True)
    config.save(settings, settings.out / "config.json")
    if prompts:
        write_jsonl(settings.out / "answers.jsonl", answer_rows(sides))
    if tasks:
        pairs = zip(sides, tasks, strict=True)
        rows = [{"model": side.name, **row} for side, task in pairs for row in task.samples]
        write_jsonl(settings.out / "tasks.jsonl", rows)
    (settings.out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return EvaluateResult(settings.out, summary)


def _sides(
    settings: EvaluateSettings,
    prompts: Sequence[Prompt],
    environment: "Environment | None",
    policy: Policy,
    other: Policy | None,
    ranks: Ranks,
) -> list[Side]:
    """Sample and measure the completions of the model, last, and before it of the model compared with, if any."""
    rewards = _rewards(settings, policy, ranks)
    base = _load(settings.base, settings) if settings.base else None
    if environment is not None:
        prompts = environment.offer(prompts)
    play = partial(playing, environment, policy, prompts)
    generator = fixed_generator(settings.rollouts, policy, settings.sampling, ranks, play)
    model = _side(settings.names[1], policy, prompts, rewards, base, other, settings, generator, ranks)
    if other is None:
        return [model]
    if not same_vocabulary(policy.tokenizer, other.tokenizer):
        rewards = _rewards(settings, other, ranks)  # they may need the text instead of the tokens
    return [
        _side(
            settings.names[0],
            other,
            prompts,
            rewards,
            base,
            None,
            settings,
            dealt_generator(playing(environment, other, prompts, LocalGenerator(other)), ranks, other.device),
            ranks,
        ),
        model,
    ]


def _win_rates(model: Side, against: Side) -> dict[str, Any]:
    """Win rates by each reward, also at equal length in characters: tokens of two vocabularies do not compare."""
    assert model.answered is not None
    assert against.answered is not None
    ids = [prompt.id for prompt in model.answered.prompts]
    texts = zip(model.answered.texts, against.answered.texts, strict=True)
    extra = [len(own) - len(other) for own, other in texts]
    rates = {}
    for name, own in model.scores.items():
        rows = zip(own, against.scores[name], ids, extra, strict=True)
        compared = [row for row in rows if row[0] is not None and row[1] is not None]
        if compared:
            first, second, prompts, longer = zip(*compared, strict=True)
            control = length_controlled_win_rate(outcomes(first, second), np.array(longer, float), prompts)
            rates[name] = scored_win_rate(first, second, prompts) | {"length_controlled": asdict(control)}
    return rates


def _load(path: str, settings: EvaluateSettings) -> Policy:
    return Policy(load_backbone(replace(settings.model, path=path)))


def _named(settings: EvaluateSettings) -> list[tuple[str, str]]:
    """Split each reward into its name, or "", and its source."""
    matches = [(_NAMED.fullmatch(reward), reward) for reward in settings.reward]
    return [(match[1], match[2]) if match else ("", reward) for match, reward in matches]


def _rewards(settings: EvaluateSettings, policy: Policy | None, ranks: Ranks) -> dict[str, Reward]:
    rewards: dict[str, Reward] = {}
    for own_name, source in _named(settings):
        reward = without_dropout(make_reward([source], policy, settings.model))
        name = own_name or reward_name(reward)
        if name in rewards or (name == "environment" and settings.has_episodes):
            raise TutelageError(f"Two rewards are called {name!r}; put a name before each, as in gold=module:function.")
        rewards[name] = dealt_reward(reward, ranks)
    return rewards


def _side(
    name: str,
    policy: Policy,
    prompts: Sequence[Prompt],
    rewards: Mapping[str, Reward],
    base: Policy | None,
    other: Policy | None,
    settings: EvaluateSettings,
    generator: Generator,
    ranks: Ranks,
) -> Side:
    """Sample and measure the completions of one model."""
    batch = sample_completions(policy, prompts, settings.n, settings.sampling, seed=settings.seed, generator=generator)
    rollout, texts = batch.rollout, list(batch.texts)
    scores = {key: _scores(key, reward, batch) for key, reward in rewards.items()}
    if rollout.outcome is not None:
        lost = rollout.outcome.isnan().tolist()
        scores = {key: [None if gone else s for s, gone in zip(own, lost, strict=True)] for key, own in scores.items()}
        scores |= {"environment": _outcomes(rollout, rollout.outcome)} if settings.environment else {}
    figures = {}
    for key, column in scores.items():
        values = [value for value in column if value is not None]
        if not values:
            raise TutelageError(f"No completion has a score by {key}, so nothing can be reported about it.")
        mean = sum(values) / len(values)
        figures[f"{key}_mean"] = mean
        figures[f"{key}_std"] = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
        if len(values) < len(column):
            figures[f"{key}_n"] = len(values)
    figures |= {
        "length/mean": float(rollout.mask.sum(1).float().mean()),
        "words/mean": lengths(texts).mean,
        "ended": float(rollout.terminated.float().mean()),
    }
    figures |= episode_metrics([rollout])
    varied = {"distinct_2": distinct(texts, 2), "repetition": repetition(texts)}
    figures |= {key: value for key, value in varied.items() if not math.isnan(value)}  # completions may be too short
    references = _references(settings)
    referenced = [
        (text, references[p.messages]) for p, text in zip(batch.prompts, texts, strict=True) if p.messages in references
    ]
    if referenced:
        figures |= rouge(*(list(column) for column in zip(*referenced, strict=True)))
    budget = Budget(TOKENS_AT_ONCE, ranks)
    if other is not None and _can_tell(policy, other, settings, "divergence"):
        temperature = settings.sampling.temperature
        figures["kl"], figures["kl_error"] = sequence_kl(rollout, other, temperature=temperature, budget=budget)
    if base is not None and _can_tell(policy, base, settings, "perplexity"):
        figures["perplexity"] = perplexity(base, rollout, budget=budget)
    if settings.text:
        rows = _text_rows(settings.text, policy)
        figures["text_perplexity"] = perplexity(policy, rows, budget=budget)
    return Side(name, batch, scores, figures)


def _scores(name: str, reward: Reward, batch: SampledBatch) -> list[float | None]:
    """Score of each completion; None where the reward does not apply."""
    scores = breakdown_of(reward, batch.completions).total.tolist()
    if all(map(math.isnan, scores)):
        raise TutelageError(f"The reward {name} applies to none of the completions: it returned None for each.")
    return [None if math.isnan(score) else score for score in scores]


def _outcomes(rollout: Rollout, outcome: Tensor) -> list[float | None]:
    """What the environment gave for each episode; None where no reward applies, or after faults."""
    total = outcome if rollout.turn_reward is None else outcome + rollout.turn_reward.sum(1)
    if total.isnan().all():
        raise TutelageError("The environment returned no reward for any episode.")
    return [None if math.isnan(one) else one for one in total.tolist()]


def _can_tell(policy: Policy, other: Policy, settings: EvaluateSettings, what: str) -> bool:
    """Whether the figure is meaningful; remarks on the reason otherwise."""
    sampling = settings.sampling
    if not same_vocabulary(policy.tokenizer, other.tokenizer):
        remark(f"The {what} is omitted: the two models have different vocabularies.")
        return False
    if what == "divergence" and (not sampling.temperature or sampling.top_k or sampling.top_p < 1 or sampling.min_p):
        remark("The divergence is omitted: it needs completions from the whole distribution, at a temperature.")
        return False
    return True


def _text_rows(path: str, policy: Policy) -> Rows:
    """Tokenise the texts of a file for a policy, without the end token after each."""
    limit = policy.context or 1024
    encoded, cuts = encode_demonstrations(load_demonstrations(path).records, policy.tokenizer, limit)
    remark(cuts.describe(limit))
    rows = [EncodedRow(row.prompt, row.response[:-1]) for row in encoded]
    return collate(rows, pad_token_id(policy.tokenizer), policy.device)


def _references(settings: EvaluateSettings) -> dict[Messages, str]:
    if not settings.references:
        return {}
    return {
        record.messages: turn_text(record.response)
        for record in announce(load_demonstrations(settings.references)).records
    }
