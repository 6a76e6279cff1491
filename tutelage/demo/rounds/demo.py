"""The demonstration from its first stage to its summary, on either world."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from tutelage.base.config import DtypeName, EngineName
from tutelage.commands.runs import peak_memory_mb
from tutelage.demo.rounds import real, tutoring
from tutelage.demo.rounds.round import DemoRound, RoundPlace
from tutelage.demo.rounds.stages import run_stages

WorldName: TypeAlias = Literal["tutoring", "real"]

WORLDS: Mapping[WorldName, Callable[[RoundPlace, bool], DemoRound]] = MappingProxyType(
    {
        "tutoring": lambda place, quick: tutoring.tutoring(
            place, tutoring.QUICK if quick else tutoring.TutoringScale()
        ),
        "real": lambda place, quick: real.real(place, real.QUICK if quick else real.RealScale()),
    }
)
"""The round of each world in a place, at its full scale or quickly."""


def run_demo(
    out: Path,
    *,
    seed: int,
    quick: bool,
    quiet: bool,
    engine: EngineName = "auto",
    dtype: DtypeName = "float32",
    world: WorldName = "tutoring",
) -> dict[str, Any]:
    """Run the stages that are not done yet, and write summary.json, whose content is returned."""
    return run_round(
        WORLDS[world](RoundPlace(out, seed, quiet, engine, dtype), quick), " --quick" if quick else ""
    )


def run_round(round_: DemoRound, flags: str = "") -> dict[str, Any]:
    """Run the stages of a round that are not done yet, and write summary.json, whose content is returned. `flags` end
    the command that the report shows."""
    out = round_.place.folder
    story = replace(round_.story, command=f"{round_.story.command} {round_.place.flags()}{flags}")
    summary = summarise(out, run_stages(out, story, round_.stages()))
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def summarise(out: Path, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The decisive figures of the round, from the summaries of its stages: of the model before reinforcement learning
    (`sft`, which a chat model has behind it), of the policy that came of it, and of the reward model."""
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
            "length": before["length/mean"],
            "ended": before["ended"],
        }
        | _on_texts(before),
        "policy": {
            "gold_mean": after["gold_mean"],
            "gold_std": after["gold_std"],
            "score_mean": after["score_mean"],
            "win_rate": won["gold"]["win_rate"],
            "win_rate_ci": won["gold"]["win_rate_ci"],
            "kl_per_sequence": after["kl"],
            "length": after["length/mean"],
            "ended": after["ended"],
        }
        | _on_texts(after),
        "reward_model": {
            "accuracy": fitted["accuracy"],
            "accuracy_interval": fitted["accuracy_interval"],
            "ceiling": judged["ceiling"],
        },
        "seconds": dict(seconds) | {"total": sum(seconds.values())},
        "peak_rss_mb": max(peak_memory_mb(), known.get("peak_rss_mb", 0.0)),
    }


def _on_texts(figures: Mapping[str, float]) -> dict[str, float]:
    """The perplexity on neutral text, where a world measures it."""
    return {name: value for name, value in figures.items() if name == "text_perplexity"}
