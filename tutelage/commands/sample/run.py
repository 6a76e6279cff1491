"""Sampling of completions, and pairs of them to compare."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from tutelage.base import config
from tutelage.base.config.sections import SearchSettings
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.calls import workflow
from tutelage.commands.generators import environment_of, episode_prompts, playing, unseen_generator
from tutelage.commands.runs import announce, announce_judging, remark
from tutelage.commands.sample.settings import SampleSettings
from tutelage.data.chat_endpoint import KEY, Endpoint
from tutelage.data.formats import load_completions
from tutelage.data.pairing import count_repeated, pair_completions
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import CompletionRecord, Demonstration, Prompt, stable_id
from tutelage.engines.ranks.processes import join
from tutelage.engines.ranks.ranks import ALONE, Ranks
from tutelage.models.backbone import load_backbone, load_vocabulary
from tutelage.models.policy import Policy
from tutelage.rewards.factory import make_reward, require_columns
from tutelage.rewards.reward import Reward
from tutelage.rewards.rubric import without_dropout
from tutelage.rollout.distributed import dealt_generator, dealt_reward
from tutelage.rollout.inference.best_of_n import ScoredReply, best_of_n, best_of_n_kl
from tutelage.rollout.inference.completion_records import episode_records, sample_completions
from tutelage.rollout.inference.test_time import SearchResult, followed, optimise_at_test_time
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.samplers import GeneratorSampler, HttpSampler, Sampler

if TYPE_CHECKING:
    from tutelage.rollout.environment import Environment

DEMONSTRATIONS = "demonstrations.jsonl"
"""File of the selected completions, with their prompts."""


@dataclass(frozen=True)
class SampleResult:
    """Result of sampling, with the files in its folder."""

    out: Path
    prompts: int
    answers: int
    finished: float
    """Share of the completions that ended by themselves."""
    pairs: int
    """Number of pairs in comparisons.jsonl; 0 without `pairs` in the settings."""

    @property
    def completions(self) -> Path:
        """File of the completions."""
        return self.out / "completions.jsonl"

    @property
    def demonstrations(self) -> Path | None:
        """File of the selected completions as demonstrations, if a reward selected them."""
        file = self.out / DEMONSTRATIONS
        return file if file.is_file() else None

    def load(self) -> Sequence[CompletionRecord]:
        """Load the completions, prompt by prompt."""
        return load_completions(self.completions).records

    @property
    def comparisons(self) -> Path | None:
        """File of the pairs to compare, if any."""
        return self.out / "comparisons.jsonl" if self.pairs else None


@workflow(SampleSettings)
def sample(settings: SampleSettings) -> SampleResult:
    """Sample completions of prompts, with a reward only the best of many, and pair them for comparison.

    Writes prompts.jsonl, completions.jsonl and, with `pairs`, comparisons.jsonl to `settings.out`; with a reward also
    demonstrations.jsonl, the selected completions that ended by themselves, for training.

    Raises:
        TutelageError: the settings, the prompts or the model cannot be used.
    """
    environment = environment_of(settings)
    loaded = announce(episode_prompts(settings.prompts, environment))
    require_columns(settings.reward, loaded)
    announce_judging(settings.reward, loaded.records, settings.best_of or settings.n)
    if not loaded.records:
        raise TutelageError(f"{settings.prompts} has no prompts.")
    ranks = join()
    prompts: Sequence[Prompt] = loaded.records if environment is None else environment.offer(loaded.records)
    if environment is not None:
        prompts, rows = _played(settings, prompts, environment, ranks)
    elif settings.endpoint:
        rows = ranks.shared(lambda: _completions(settings, prompts, ALONE))
    else:
        rows = _completions(settings, prompts, ranks)
    return ranks.shared(lambda: _write(settings, prompts, rows))


def _write(settings: SampleSettings, prompts: Sequence[Prompt], rows: "Rows") -> SampleResult:
    """Write the result files."""
    settings.out.mkdir(parents=True, exist_ok=True)
    config.save(settings, settings.out / "config.json")
    write_jsonl(settings.out / "prompts.jsonl", map(to_row, prompts))
    write_jsonl(settings.out / "completions.jsonl", [to_row(record) | extra for record, extra in rows])
    records = [record for record, _ in rows]
    if settings.reward:
        _write_demonstrations(settings.out / DEMONSTRATIONS, prompts, records)
    ended = sum(record.finished for record in records) / len(records)
    remark(
        f"{counted(len(records), 'completion')} of {counted(len(prompts), 'prompt')}, {ended:.0%} ended by themselves."
    )
    pairs = _write_pairs(settings, records) if settings.pairs else 0
    return SampleResult(settings.out, len(prompts), len(records), ended, pairs)


def _write_demonstrations(file: Path, prompts: Sequence[Prompt], records: Sequence[CompletionRecord]) -> None:
    """Write the selected completions that ended by themselves with their prompts, as training data for sft and
    distill."""
    messages = {prompt.id: prompt.messages for prompt in prompts}
    ended = [Demonstration(messages[one.prompt_id], one.text) for one in records if one.finished]
    write_jsonl(file, map(to_row, ended))
    remark(f"{len(ended)} of the selected completions ended by themselves: {file} has them as demonstrations.")


def _write_pairs(settings: SampleSettings, records: Sequence[CompletionRecord]) -> int:
    """Write the questions for raters. Returns their number."""
    usable = [record for record in records if record.text.strip() and "\0" not in record.text]
    if len(usable) < len(records):
        remark(f"{counted(len(records) - len(usable), 'completion')} without a text to show omitted from the pairs.")
    most = settings.n * (settings.n - 1) // 2
    if settings.pairs > most:
        remark(
            f"--pairs is {settings.pairs}, but {counted(settings.n, 'completion')} of a prompt make "
            f"{counted(most, 'pair')}: those are all. For more pairs, sample more completions with --n."
        )
    pairs = pair_completions(usable, pairs_per_prompt=settings.pairs, rng_seed=settings.seed)
    write_jsonl(settings.out / "comparisons.jsonl", map(to_row, pairs))
    remark(
        f"{counted(len(pairs), 'pair')} to compare "
        f"({counted(count_repeated(records), 'completion', 'repeats')} another)."
    )
    return len(pairs)


Rows = list[tuple[CompletionRecord, dict[str, object]]]
"""Completions, each with the additional columns of its line."""


def _completions(settings: SampleSettings, prompts: Sequence[Prompt], ranks: Ranks) -> Rows:
    """Sample the completions to write, as the settings require."""
    sampler, sampling = _sampler(settings, ranks), settings.sampling
    if settings.test_time.rounds:
        return _searched(settings, sampler, prompts, ranks)
    if settings.best_of:
        return _chosen(settings, sampler, prompts, ranks)
    replies = sampler([prompt.messages for prompt in prompts], settings.n, sampling, seed=settings.seed)
    return [
        (_completion(settings, prompt, number, reply.text, reply.finished), {})
        for prompt, group in zip(prompts, replies, strict=True)
        for number, reply in enumerate(group)
    ]


def _played(
    settings: SampleSettings, prompts: Sequence[Prompt], environment: "Environment", ranks: Ranks
) -> tuple[Sequence[Prompt], Rows]:
    """Play episodes of prompts that offer the tools, see `episode_records`."""
    policy = Policy(load_backbone(settings.model))
    generator = dealt_generator(playing(environment, policy, prompts, LocalGenerator(policy)), ranks, policy.device)
    batch = sample_completions(policy, prompts, settings.n, settings.sampling, seed=settings.seed, generator=generator)
    name = settings.name or settings.model.path
    played, records = episode_records({name: batch}, settings.sampling)
    if lost := len(batch.prompts) - len(records[name]):
        remark(f"{counted(lost, 'episode')} left out: lost to faults of the environment or its tools.")
    return played, [(record, {}) for record in records[name]]


def _completion(settings: SampleSettings, prompt: Prompt, number: int, text: str, finished: bool) -> CompletionRecord:
    """Return a completion as a record. Its id depends on the sampler, the prompt, its number and its text."""
    name = settings.name or settings.model.path
    settings_text = " ".join(f"{key}={value}" for key, value in asdict(settings.sampling).items())
    return CompletionRecord(
        stable_id(name, prompt.id, str(number), text), prompt.id, text, name, settings_text + _how(settings), finished
    )


def _how(settings: SampleSettings) -> str:
    if settings.best_of:
        return f" best_of={settings.best_of}"
    rounds = settings.test_time.rounds
    return f" test_time={rounds}x{settings.test_time.width}" if rounds else ""


def _sampler(settings: SampleSettings, ranks: Ranks) -> Sampler:
    if settings.endpoint:
        return HttpSampler(Endpoint(settings.endpoint, settings.model.path, os.environ.get(KEY, "")))
    if settings.rollouts:
        vocabulary = load_vocabulary(settings.model.path)
        generator = unseen_generator(settings.rollouts, vocabulary, ranks)
        return GeneratorSampler(generator, vocabulary.tokenizer, settings.model.path)
    policy = Policy(load_backbone(settings.model))
    return GeneratorSampler(
        dealt_generator(LocalGenerator(policy), ranks, policy.device), policy.tokenizer, settings.model.path
    )


def _reward(settings: SampleSettings, ranks: Ranks) -> Reward:
    return dealt_reward(without_dropout(make_reward(settings.reward, None, settings.model)), ranks)


def _kept(settings: SampleSettings, prompts: Sequence[Prompt], candidates: Sequence[Sequence[ScoredReply]]) -> Rows:
    """Return the first `n` candidates of each prompt, with their scores."""
    return [
        (
            _completion(settings, prompt, number, one.text, one.finished),
            dict[str, object](score=one.score, **({"round": one.round} if settings.test_time.rounds else {})),
        )
        for prompt, group in zip(prompts, candidates, strict=True)
        for number, one in enumerate(group[: settings.n])
    ]


def _chosen(settings: SampleSettings, sampler: Sampler, prompts: Sequence[Prompt], ranks: Ranks) -> Rows:
    """Return the `n` best of `best_of` completions of each prompt."""
    n = settings.best_of
    candidates = best_of_n(sampler, _reward(settings, ranks), prompts, n, settings.sampling, seed=settings.seed)
    best = fmean(group[0].score for group in candidates)
    every = fmean(one.score for group in candidates for one in group)
    remark(
        f"Best of {n}: mean score {every:.3f} of all, {best:.3f} of the best; "
        f"at most {best_of_n_kl(n):.2f} nats from the model."
    )
    equal = sum(len({one.score for one in group}) == 1 for group in candidates)
    if 2 * equal > len(candidates):
        remark(
            f"For {equal:,} of {counted(len(candidates), 'prompt')} all completions got the same score: the selected "
            "ones are no better than the others. Check the reward on a few completions."
        )
    return _kept(settings, prompts, candidates)


def _searched(settings: SampleSettings, sampler: Sampler, prompts: Sequence[Prompt], ranks: Ranks) -> Rows:
    """Return the best completions of test-time preference optimisation."""
    search = settings.test_time
    results = optimise_at_test_time(
        sampler,
        _reward(settings, ranks),
        prompts,
        search,
        settings.sampling,
        seed=settings.seed,
        done=lambda number: remark(f"test-time search {number}/{search.rounds}"),
    )
    rows = [
        {
            "prompt_id": one.prompt.id,
            "advice": one.advice,
            "best": one.best.score,
            "best_sampled": one.best_sampled.score,
        }
        for one in results
    ]
    ranks.shared(lambda: write_jsonl(settings.out / "searches.jsonl", rows))
    remark(_summary(results, search))
    return _kept(settings, prompts, [one.candidates for one in results])


def _summary(results: Sequence[SearchResult], search: SearchSettings) -> str:
    """Describe the scores before and after the search, and whether this model follows its own advice."""
    before, after = fmean(one.best_sampled.score for one in results), fmean(one.best.score for one in results)
    better = sum(one.best.round > 0 for one in results)
    spent = search.width * (search.rounds + 1)
    text = (
        f"Test-time preference optimisation: best score {before:.3f} before, {after:.3f} after, a revision is best for "
        f"{better} of {counted(len(results), 'prompt')}. The same number of plain samples is "
        f"--best-of {spent}: compare with it."
    )
    match followed(results):
        case None:
            text += "\nAll completions of a prompt scored the same, so the search had no signal."
        case False:
            text += (
                "\nThe revisions score no better than plain samples: this model does not follow its own advice. "
                "Published results are for models of 22 billion parameters and more."
            )
    return text
