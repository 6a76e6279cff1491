"""Evaluation of rewards on a benchmark in the format of RewardBench 2: correct and incorrect completions of a prompt.

    id, subset, prompt, chosen: [text, ...], rejected: [text, ...]          optional: num_correct, total_completions

In the subset Ties, `id` is ref:N or tied:N: a prompt with one correct completion, and its variant with several equally
correct ones (Malik et al. 2025, arXiv 2506.01937).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.runs import announce
from tutelage.data.formats import LoadedRecords, load
from tutelage.data.readers import Values, a_type
from tutelage.data.record_files import write_jsonl
from tutelage.data.records import Messages, Prompt, user
from tutelage.data.row_values import Unusable, number, text
from tutelage.data.table_format import RowFormat
from tutelage.engines.ranks.ranks import Ranks
from tutelage.rewards.reward import Completions, Reward
from tutelage.rewards.scores import scores_of
from tutelage.stats.reward_quality import BenchmarkScore, ScoredRow, benchmark_score

TIES = "ties"
"""Subset of prompts with several correct completions, in lower case."""
_TIED = re.compile(r"(ref|tied):(\d+)")


@dataclass(frozen=True)
class BenchmarkRow:
    """Prompt with its completions, of which the first `correct` are correct."""

    id: str
    subset: str
    prompt: Messages
    completions: tuple[str, ...]
    correct: int

    @property
    def has_ties(self) -> bool:
        """Whether the row is one of the subset Ties."""
        return self.subset.lower() == TIES

    @property
    def tie(self) -> tuple[str, int]:
        """ref or tied, and the number of the prompt, of a row of the subset Ties."""
        match = _TIED.fullmatch(self.id)
        assert match is not None
        return match[1], int(match[2])


def load_benchmark(source: str | Path) -> LoadedRecords[BenchmarkRow]:
    """Load the rows of a file. Raises TutelageError for a row that is not as described above, or an id that repeats."""
    ids: set[tuple[str, str]] = set()

    def accept(row: BenchmarkRow) -> None:
        if (row.subset, row.id) in ids:
            raise Unusable(f"the id {row.id!r} repeats")
        ids.add((row.subset, row.id))

    loaded = load(source, "a benchmark of rewards", (_FORMAT,), accept=accept)
    if loaded.skipped:
        reasons = "; ".join(map(str, loaded.skipped))
        raise TutelageError(f"{loaded.source} is no whole benchmark: {reasons}. Correct these rows, or remove them.")
    return loaded


def _parse(values: Values) -> BenchmarkRow:
    right, wrong = _texts(values, "chosen"), _texts(values, "rejected")
    if not right or not wrong:
        raise Unusable("chosen and rejected need one completion each at least")
    for column, count in (("num_correct", len(right)), ("total_completions", len(right) + len(wrong))):
        if values.get(column) is not None and number(values, column, 0.0) != count:
            raise Unusable(f"{column} is {values[column]}, but there are {count}")
    row = BenchmarkRow(
        str(values["id"]), text(values, "subset"), user(text(values, "prompt")), (*right, *wrong), len(right)
    )
    match = _TIED.fullmatch(row.id)
    if row.has_ties and match is None:
        raise Unusable(f"the id {row.id!r} of the subset {row.subset} is neither ref:N nor tied:N")
    if row.has_ties and match is not None and (match[1] == "tied") != (len(right) > 1):
        raise Unusable(f"the row {row.id} has {counted(len(right), 'correct completion')}")
    return row


def _texts(values: Values, column: str) -> tuple[str, ...]:
    items = values[column]
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise Unusable(f"{column} is {a_type(items)} instead of a list of texts")
    return tuple(items)


_FORMAT = RowFormat(
    "RewardBench 2",
    ("id", "subset", "prompt", "chosen", "rejected"),
    _parse,
    also=("num_correct", "total_completions"),
    metadata=frozenset({"models", "additional_metadata"}),
)


def load_rows(settings: EvaluateSettings) -> Sequence[BenchmarkRow]:
    """Load the rows of the benchmark."""
    rows = announce(load_benchmark(settings.reward_bench)).records
    return rows[: settings.limit or None]


def measure_rewards(
    settings: EvaluateSettings, rows: Sequence[BenchmarkRow], rewards: Mapping[str, Reward], ranks: Ranks
) -> dict[str, Any]:
    """Score all completions by each reward, write the files of the evaluation, and return its summary."""
    scores = {name: _scored(reward, rows) for name, reward in rewards.items()}
    return ranks.shared(lambda: _write(settings, rows, scores))


def _scored(reward: Reward, rows: Sequence[BenchmarkRow]) -> list[tuple[float, ...]]:
    """Scores of the completions of each row."""
    prompts = [Prompt(f"{row.subset} {row.id}", row.prompt) for row in rows for _ in row.completions]
    texts = [text for row in rows for text in row.completions]
    scores = scores_of(reward, Completions(prompts, texts)).tolist()
    ends = accumulate((len(row.completions) for row in rows), initial=0)
    return [tuple(scores[start:end]) for start, end in pairwise(ends)]


def _write(
    settings: EvaluateSettings, rows: Sequence[BenchmarkRow], scores: Mapping[str, Sequence[tuple[float, ...]]]
) -> dict[str, Any]:
    benchmark_scores = {name: _score(name, rows, own) for name, own in scores.items()}
    summary: dict[str, Any] = {
        "prompts": len(rows),
        "model": {name: one.overall for name, one in benchmark_scores.items()},
        "reward_bench": {name: one.summary() for name, one in benchmark_scores.items()},
        "columns": list(benchmark_scores),
        "rows": _table(list(benchmark_scores.values())),
    }
    settings.out.mkdir(parents=True, exist_ok=True)
    config.save(settings, settings.out / "config.json")
    lines = [
        {"id": row.id, "subset": row.subset, "num_correct": row.correct}
        | {f"scores_{name}": list(own[index]) for name, own in scores.items()}
        for index, row in enumerate(rows)
    ]
    write_jsonl(settings.out / "reward_bench.jsonl", lines)
    (settings.out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return summary


def _score(name: str, rows: Sequence[BenchmarkRow], scores: Sequence[tuple[float, ...]]) -> BenchmarkScore:
    scored = [
        ScoredRow(row.subset, own, row.correct, row.tie if row.has_ties else None)
        for row, own in zip(rows, scores, strict=True)
    ]
    try:
        return benchmark_score(scored)
    except TutelageError as error:
        raise TutelageError(f"The reward {name} cannot be scored: {error}") from error


def _table(scores: Sequence[BenchmarkScore]) -> list[dict[str, Any]]:
    """Rows of the table: the mean over subsets, and each subset, by reward."""
    rows = [{"name": "mean of subsets", "values": [one.overall for one in scores], "note": ""}]
    for index, subset in enumerate(scores[0].subsets):
        intervals = [one.subsets[index].interval for one in scores]
        ends = ", ".join(f"{low:.3f} to {high:.3f}" for low, high in intervals if low is not None and high is not None)
        note = counted(subset.n, "prompt") + (f", {ends}" if ends else "")
        rows.append({"name": subset.subset, "values": [one.subsets[index].score for one in scores], "note": note})
    return rows
