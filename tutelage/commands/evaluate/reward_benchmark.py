"""Evaluation of rewards on a benchmark: best of several completions, and ties."""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.runs import announce
from tutelage.data.record_files import write_jsonl
from tutelage.data.records import Prompt
from tutelage.data.reward_benchmark import BenchmarkRow, load_benchmark
from tutelage.engines.ranks.ranks import Ranks
from tutelage.rewards.reward import Completions, Reward
from tutelage.rewards.scores import scores_of
from tutelage.stats.reward_benchmark import BenchmarkScore, ScoredRow, benchmark_score


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
    found = {name: _score(name, rows, own) for name, own in scores.items()}
    summary: dict[str, Any] = {
        "prompts": len(rows),
        "model": {name: one.overall for name, one in found.items()},
        "reward_bench": {name: one.summary() for name, one in found.items()},
        "columns": list(found),
        "rows": _table(list(found.values())),
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


def _table(found: Sequence[BenchmarkScore]) -> list[dict[str, Any]]:
    """Rows of the table: the mean over subsets, and each subset, by reward."""
    rows = [{"name": "mean of subsets", "values": [one.overall for one in found], "note": ""}]
    for index, subset in enumerate(found[0].subsets):
        intervals = [one.subsets[index].interval for one in found]
        ends = ", ".join(f"{low:.3f} to {high:.3f}" for low, high in intervals if low is not None and high is not None)
        note = counted(subset.n, "prompt") + (f", {ends}" if ends else "")
        rows.append({"name": subset.subset, "values": [one.subsets[index].score for one in found], "note": note})
    return rows
