"""`tutelage sample`: answers to prompts, and pairs of them to compare."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage import config
from tutelage.config.limits import at_least
from tutelage.data.records import Completion, Prompt
from tutelage.errors import TutelageError
from tutelage.infer.test_time import Search

if TYPE_CHECKING:
    from tutelage.infer.best_of_n import Candidate
    from tutelage.infer.test_time import Found
    from tutelage.rewards.reward import Reward
    from tutelage.rollout.sampler import Sampler

KEY = "TUTELAGE_ENDPOINT_KEY"
"""Environment variable that holds the key of an endpoint: a flag would end up in config.json."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sample answers to prompts. Writes prompts.jsonl and completions.jsonl and, with --pairs, comparisons.jsonl: the
    questions that people can then be asked. With a reward, only the best answers of many are kept (--best-of), or the
    model revises them by its own critique (--test-time.rounds: test-time preference optimisation)."""

    model: config.Model
    prompts: str
    """Prompts: a file or hub data set; any format of demonstrations or preferences serves too."""
    out: Path
    """Folder to write to."""
    n: int = 2
    """Answers to each prompt."""
    pairs: int = 0
    """Pairs of different answers to compare per prompt; 0 for none."""
    reward: tuple[str, ...] = ()
    """What scores the answers, where some are chosen: reward-model folders or module:function, each with an optional
    =weight."""
    best_of: int = 0
    """Sample so many answers to each prompt and keep the --n that score best; 0 keeps all that are sampled."""
    test_time: Search = field(default_factory=Search)
    endpoint: str = ""
    """Address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1, that serves --model; its key, if it
    wants one, is read from TUTELAGE_ENDPOINT_KEY."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Seed of the sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        at_least(self, n=1, pairs=0, best_of=0)
        chosen = self.best_of or self.test_time.rounds
        if self.pairs and self.n < 2:
            raise TutelageError("--pairs needs two answers to each prompt: set --n 2 or more.")
        if max(self.n, self.best_of, self.test_time.rounds) > 1 and self.sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 all answers to a prompt are the same: set --n 1, or a temperature."
            )
        if self.best_of and self.best_of < self.n:
            raise TutelageError(
                f"--best-of {self.best_of} samples fewer answers than the --n {self.n} to be kept."
            )
        if self.best_of and self.test_time.rounds:
            raise TutelageError(
                "--best-of chooses among plain samples and --test-time.rounds among revisions: give one of the two. "
                "How many answers the latter samples at first is --test-time.width."
            )
        if chosen and not self.reward:
            raise TutelageError("--best-of and --test-time.rounds choose by a score: name it with --reward.")
        if self.reward and not chosen:
            raise TutelageError(
                "--reward scores answers to choose among, but nothing is chosen: give --best-of or --test-time.rounds."
            )
        if self.test_time != Search() and not self.test_time.rounds:
            raise TutelageError(
                "--test-time.width and --test-time.words do nothing without --test-time.rounds; 2 are usual."
            )


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.commands.runs import say
    from tutelage.data.formats import load_prompts
    from tutelage.data.rows import to_row, write_jsonl

    loaded = load_prompts(settings.prompts)
    say(settings, loaded.describe())
    if not loaded.records:
        raise TutelageError("There is no prompt to answer.")
    rows = _completions(settings, loaded.records)
    settings.out.mkdir(parents=True, exist_ok=True)
    config.save(settings, settings.out / "config.json")
    write_jsonl(settings.out / "prompts.jsonl", map(to_row, loaded.records))
    write_jsonl(settings.out / "completions.jsonl", [to_row(record) | extra for record, extra in rows])
    records = [record for record, _ in rows]
    ended = sum(record.finished for record in records) / len(records)
    say(
        settings, f"{len(records)} answers to {len(loaded.records)} prompts, {ended:.0%} ended by themselves."
    )
    if settings.pairs:
        _write_pairs(settings, records)
    return 0


def _write_pairs(settings: Settings, records: Sequence[Completion]) -> None:
    """The questions that people can be asked."""
    from tutelage.commands.runs import say
    from tutelage.data.pairing import count_repeated, pair_completions
    from tutelage.data.rows import to_row, write_jsonl

    said = [record for record in records if record.text.strip() and "\0" not in record.text]
    if len(said) < len(records):
        say(
            settings,
            f"{len(records) - len(said)} answers say nothing that could be shown and are left out of the pairs.",
        )
    pairs = pair_completions(said, pairs_per_prompt=settings.pairs, rng_seed=settings.seed)
    write_jsonl(settings.out / "comparisons.jsonl", map(to_row, pairs))
    say(settings, f"{len(pairs)} pairs to compare ({count_repeated(records)} answers repeat another).")


Rows = list[tuple[Completion, dict[str, object]]]
"""Completions, each with the further columns of its line."""


def _completions(settings: Settings, prompts: Sequence[Prompt]) -> Rows:
    """What will be written."""
    sampler, sampling = _sampler(settings), settings.sampling
    if settings.test_time.rounds:
        return _searched(settings, sampler, prompts)
    if settings.best_of:
        return _chosen(settings, sampler, prompts)
    replies = sampler([prompt.messages for prompt in prompts], settings.n, sampling, seed=settings.seed)
    return [
        (_completion(settings, prompt, number, reply.text, reply.finished), {})
        for prompt, group in zip(prompts, replies, strict=True)
        for number, reply in enumerate(group)
    ]


def _completion(settings: Settings, prompt: Prompt, number: int, text: str, finished: bool) -> Completion:
    """An answer as a record. Its id depends on the sampler, the prompt, its number and its text."""
    from dataclasses import asdict

    from tutelage.data.identity import stable_id

    name = settings.model.path
    asked = " ".join(f"{key}={value}" for key, value in asdict(settings.sampling).items())
    return Completion(
        stable_id(name, prompt.id, str(number), text), prompt.id, text, name, asked + _how(settings), finished
    )


def _how(settings: Settings) -> str:
    if settings.best_of:
        return f" best_of={settings.best_of}"
    rounds = settings.test_time.rounds
    return f" test_time={rounds}x{settings.test_time.width}" if rounds else ""


def _sampler(settings: Settings) -> "Sampler":
    if settings.endpoint:
        from tutelage.data.endpoint import Endpoint
        from tutelage.rollout.http import HttpSampler

        return HttpSampler(Endpoint(settings.endpoint, settings.model.path, os.environ.get(KEY, "")))
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.rollout.local import LocalSampler

    return LocalSampler(Policy(load_backbone(settings.model)), settings.model.path)


def _reward(settings: Settings) -> "Reward":
    from tutelage.rewards.named import make_reward

    return make_reward(settings.reward, None, settings.model)


def _kept(settings: Settings, prompts: Sequence[Prompt], found: Sequence[Sequence["Candidate"]]) -> Rows:
    """The first `n` candidates of each prompt, with their scores."""
    return [
        (
            _completion(settings, prompt, number, one.text, one.finished),
            dict[str, object](score=one.score, **({"round": one.round} if settings.test_time.rounds else {})),
        )
        for prompt, group in zip(prompts, found, strict=True)
        for number, one in enumerate(group[: settings.n])
    ]


def _chosen(settings: Settings, sampler: "Sampler", prompts: Sequence[Prompt]) -> Rows:
    """The best of many samples."""
    from tutelage.commands.runs import say
    from tutelage.infer.best_of_n import best_of_n, best_of_n_kl

    n = settings.best_of
    found = best_of_n(sampler, _reward(settings), prompts, n, settings.sampling, seed=settings.seed)
    best = _mean([group[0].score for group in found])
    every = _mean([one.score for group in found for one in group])
    say(
        settings,
        f"Best of {n}: mean score {every:.3f} of all, {best:.3f} of the best; "
        f"at most {best_of_n_kl(n):.2f} nats from the model.",
    )
    return _kept(settings, prompts, found)


def _searched(settings: Settings, sampler: "Sampler", prompts: Sequence[Prompt]) -> Rows:
    """The best answers that test-time preference optimisation found."""
    import json

    from tutelage.commands.runs import say
    from tutelage.infer.test_time import optimise_at_test_time
    from tutelage.train.run.progress import progress

    search = settings.test_time
    with progress("test-time search", search.rounds, quiet=settings.quiet) as advance:
        found = optimise_at_test_time(
            sampler,
            _reward(settings),
            prompts,
            search,
            settings.sampling,
            seed=settings.seed,
            done=lambda number: advance(number, {}),
        )
    settings.out.mkdir(parents=True, exist_ok=True)
    with (settings.out / "searches.jsonl").open("w", encoding="utf-8") as file:
        for one in found:
            row = {"prompt_id": one.prompt.id, "advice": one.advice, "best": one.best.score}
            file.write(json.dumps(row | {"best_sampled": one.best_sampled.score}, ensure_ascii=False) + "\n")
    say(settings, _told(found, search))
    return _kept(settings, prompts, [one.candidates for one in found])


def _told(found: Sequence["Found"], search: Search) -> str:
    """What the search brought, and whether this model is one that can follow its own advice."""
    from tutelage.infer.test_time import followed

    before, after = (
        _mean([one.best_sampled.score for one in found]),
        _mean([one.best.score for one in found]),
    )
    better = sum(one.best.round > 0 for one in found)
    spent = search.width * (search.rounds + 1)
    told = (
        f"Test-time preference optimisation: best score {before:.3f} before, {after:.3f} after, a revision is best for "
        f"{better} of {len(found)} prompts. As many plain answers are --best-of {spent}: compare with these."
    )
    match followed(found):
        case None:
            told += "\nAll answers to a prompt scored the same, so nothing could be said about them."
        case False:
            told += (
                "\nThe revisions score no better than plain samples: this model does not follow its own advice. "
                "Published results are from models of 22 billion parameters and more."
            )
    return told


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
