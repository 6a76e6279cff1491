"""The demonstration from its first stage to its summary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tutelage.config import EngineName
from tutelage.rounds.stages import Story, run_stages
from tutelage.rounds.tutoring import QUICK, Scale, Tutoring
from tutelage.workflows.runs import peak_memory_mb


def run_demo(
    out: Path, *, seed: int, quick: bool, quiet: bool, engine: EngineName = "auto"
) -> dict[str, Any]:
    """Run the stages that are not done yet, and write summary.json, whose content is returned."""
    story = Story(
        title="Teaching a small model to teach",
        about=(
            "A language model of about a million parameters, made from nothing, learns to explain things to a "
            "10-year-old: first from text, then from demonstrations of mixed quality, then from what raters prefer."
        ),
        command=f"tutelage demo --seed {seed}{' --quick' if quick else ''}",
    )
    tutoring = Tutoring(out, seed, QUICK if quick else Scale(), quiet, engine)
    seconds = run_stages(out, story, tutoring.stages())
    summary = summarise(out, seconds)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def summarise(out: Path, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The decisive figures of the round, from the summaries of its stages."""
    evaluation, judged, fitted = (
        json.loads((out / name / "summary.json").read_text()) for name in ("evaluate", "judge", "reward")
    )
    before, after, won = evaluation["against"], evaluation["model"], evaluation["win_rate"]
    known = json.loads((out / "summary.json").read_text()) if (out / "summary.json").is_file() else {}
    return {
        "sft": {
            "gold_mean": before["gold_mean"],
            "gold_std": before["gold_std"],
            "score_mean": before["score_mean"],
            "length": before["length"],
            "ended": before["ended"],
        },
        "policy": {
            "gold_mean": after["gold_mean"],
            "gold_std": after["gold_std"],
            "score_mean": after["score_mean"],
            "win_rate": won["gold"]["win_rate"],
            "win_rate_ci": won["gold"]["win_rate_ci"],
            "kl_per_sequence": after["kl"],
            "length": after["length"],
            "ended": after["ended"],
        },
        "reward_model": {
            "accuracy": fitted["accuracy"],
            "accuracy_interval": fitted["accuracy_interval"],
            "ceiling": judged["ceiling"],
        },
        "seconds": dict(seconds) | {"total": sum(seconds.values())},
        "peak_rss_mb": max(peak_memory_mb(), known.get("peak_rss_mb", 0.0)),
    }
