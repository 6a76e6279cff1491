"""Alignment of a judge's prompt with the votes of a study: the choice on one half of the prompts, the measurement on
the other.

The candidates are the judge itself; its rubric with one built-in addition each, and the user's texts; and the best of
these with examples of people's preferences. The one that agrees most with the votes of the first half is chosen; the
judge itself, if none agrees more. Prompts of examples are never scored. The second half gives the paired difference in
agreement, with an interval over its prompts: only if all of it is above 0, the judge is aligned.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

import tomli_w

from tutelage.base import config
from tutelage.base.config.files import read_text, write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.commands.judge.settings import Align
from tutelage.commands.runs import remark
from tutelage.commands.trust_measurement import JudgedStudy, judged_pairs, position_leaning, voted_study
from tutelage.data.llm_judge import conversation_text
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Preference, prompt_id, turn_text
from tutelage.rewards.judge import JudgeFile, endpoint_of, judge_of
from tutelage.rewards.reward import Reward
from tutelage.stats.intervals import Interval
from tutelage.stats.reward_quality import JudgedPair, Trust, agreement_gain, measure_trust

JUDGE, RECORD = "judge.toml", "alignment.json"
LEAST = 40
"""Minimum number of pairs with votes, so that each half has about twenty prompts."""
ADDITIONS: Mapping[str, str] = {
    "length": "A longer response is not better for its length: prefer what answers the question without padding.",
    "accuracy": "First look for errors of fact and of reasoning in each response. An error counts more than style.",
    "usefulness": "Take the place of the person who asked: prefer the response that helps this person most.",
    "independence": "Judge each response by itself before you compare, whatever its place and its form.",
}
"""Built-in additions to a rubric, by name."""


@dataclass(frozen=True)
class Candidate:
    """A version of the judge by the name of its change; `judge` is the file that describes it."""

    name: str
    judge: JudgeFile


@dataclass(frozen=True)
class JudgeMeasurement:
    """A judge against people: agreement and length bias, and how often it prefers the first of two responses, if it
    compares."""

    trust: Trust
    first: Interval | None


@dataclass(frozen=True)
class AlignResult:
    """The chosen candidate by its name, the measurements on the second half, and the paired difference in agreement."""

    name: str
    before: JudgeMeasurement
    after: JudgeMeasurement
    gain: Interval

    @property
    def aligned(self) -> bool:
        """Whether the whole interval of the gain is above 0."""
        return self.gain.low is not None and self.gain.low > 0


def align(settings: Align) -> AlignResult:
    """Choose a version of the judge, measure it, and write it if it is aligned.

    Raises TutelageError for a judge by rubric, a study with too few votes, or a judge that fails.
    """
    judge, folder = config.load(JudgeFile, settings.judge), settings.judge.parent
    if judge.by == "rubric":
        raise TutelageError(
            f"{settings.judge}: by = 'rubric' decides about criteria, and the votes of a study are pairs."
        )
    study = voted_study(settings.study, settings.study_name, settings.out, most=settings.limit, least=LEAST)
    chosen_on, measured_on = split_by_prompt(study.pairs, 0.5, settings.seed)
    examples, scored = _examples(chosen_on, study, settings)
    first = [Candidate("the judge itself", judge), *_rewritten(judge, settings.texts)]
    _announce(len(first) + bool(examples), len(scored), len(measured_on), judge)

    endpoint = endpoint_of(judge, folder)  # one for all, with its replies and budget

    def reward(candidate: Candidate) -> Reward:
        return judge_of(candidate.judge, folder, endpoint)

    def on(pairs: Sequence[Preference]) -> Callable[[Candidate], list[JudgedPair]]:
        return lambda candidate: judged_pairs(reward(candidate), pairs, study)

    with phase("candidates"):
        best = choose(first, on(scored))
        if examples:
            best = choose([best, _with_examples(best, examples)], on(scored))
    chosen = replace(best.judge, aligned_on=tuple(sorted({prompt_id(pair.messages) for pair in chosen_on})))
    with phase("measurement"):
        before, after = on(measured_on)(first[0]), on(measured_on)(best)
        result = AlignResult(
            best.name,
            JudgeMeasurement(measure_trust(before), position_leaning(reward(first[0]), measured_on)),
            JudgeMeasurement(measure_trust(after), position_leaning(reward(best), measured_on)),
            agreement_gain(before, after),
        )
    _write(settings, chosen, result, study)
    return result


def choose(candidates: Sequence[Candidate], judged: Callable[[Candidate], Sequence[JudgedPair]]) -> Candidate:
    """The candidate that agrees with most votes; of equal ones the first."""
    values = [measure_trust(judged(candidate)).agreement.value or 0.0 for candidate in candidates]
    return candidates[values.index(max(values))]


def _rewritten(judge: JudgeFile, texts: Sequence[Path]) -> list[Candidate]:
    """The judge with one addition to its rubric each, and with each of the user's texts instead of it."""
    candidates = [
        Candidate(name, replace(judge, rubric=f"{judge.rubric.rstrip()}\n{text}")) for name, text in ADDITIONS.items()
    ]
    for path in texts:
        text = read_text(path, "text").strip()
        if not text:
            raise TutelageError(f"--texts: {path} is empty.")
        candidates.append(Candidate(path.name, replace(judge, rubric=text)))
    return candidates


def _examples(
    pairs: Sequence[Preference], study: JudgedStudy, settings: Align
) -> tuple[list[Preference], list[Preference]]:
    """Pairs to show to the judge, of different prompts on which the votes agree, and the pairs of all other prompts."""
    decided = [pair for pair in pairs if 0 in (study.votes[pair].for_chosen, study.votes[pair].for_rejected)]
    Random(f"{settings.seed}/examples").shuffle(decided)
    by_prompt: dict[str, Preference] = {}
    for pair in decided:
        by_prompt.setdefault(prompt_id(pair.messages), pair)
    examples = list(by_prompt.values())[: settings.examples]
    used = {prompt_id(pair.messages) for pair in examples}
    return examples, [pair for pair in pairs if prompt_id(pair.messages) not in used]


def _with_examples(candidate: Candidate, examples: Sequence[Preference]) -> Candidate:
    """The candidate with examples in its rubric; the preferred response is first in every second one."""
    parts = [candidate.judge.rubric.rstrip(), "", "These are people's preferences about other conversations:"]
    for number, pair in enumerate(examples):
        sides = [("preferred", turn_text(pair.chosen)), ("not preferred", turn_text(pair.rejected))]
        parts += ["", f"[Example {number + 1}]", conversation_text(pair.messages)]
        parts += [f"[A response that people {what}] {text}" for what, text in (sides if number % 2 else sides[::-1])]
    parts.append("[End of examples]")
    name = f"{candidate.name} with {counted(len(examples), 'example')}"
    return Candidate(name, replace(candidate.judge, rubric="\n".join(parts)))


def _announce(candidates: int, scored: int, measured: int, judge: JudgeFile) -> None:
    requests = 2 * (candidates * scored + 2 * measured)
    remark(
        f"{counted(candidates, 'candidate')} on {counted(scored, 'pair')}, and two on {counted(measured, 'pair')}: "
        f"at most {counted(requests, 'request')} to {judge.model}"
    )


def _write(settings: Align, chosen: JudgeFile, result: AlignResult, study: JudgedStudy) -> None:
    """Write the record and, if the judge is aligned, its file, whose paths are relative to it as before."""
    settings.out.mkdir(parents=True, exist_ok=True)
    record = {**study.record, "aligned": result.aligned, **asdict(result)}
    write_atomically(settings.out / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    if not result.aligned:
        return
    values = {name: value for name, value in asdict(chosen).items() if value != getattr(JudgeFile, name, None)}
    for name in ("template", "replies"):
        if values.get(name) is not None:
            values[name] = os.path.relpath(settings.judge.parent / values[name], settings.out)
    write_atomically(settings.out / JUDGE, tomli_w.dumps(values, multiline_strings=True))
