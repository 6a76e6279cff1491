"""`tutelage demo`: the whole loop on an embedded example."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Pretrain a small language model on an embedded tutoring world, fine-tune it, let simulated raters judge its
    answers, train a reward model on what they said, improve the model by PPO, and evaluate it on held-out topics."""

    out: Path = Path("runs/demo")
    """Folder of the round. What is finished in it is skipped, what was interrupted goes on."""
    seed: int = 0
    """Seed of the world, the raters and the training."""
    quick: bool = False
    """A very small round in about a minute, to see that everything works; too small to learn much."""
    quiet: bool = False
    """Print nothing but errors."""


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.rounds.stages import Story, run_stages
    from tutelage.rounds.tutoring import QUICK, Scale, Tutoring

    def tell(text: str) -> None:
        if not settings.quiet:
            print(text, file=sys.stderr, flush=True)

    story = Story(
        title="Teaching a small model to teach",
        about=(
            "A language model of about a million parameters, made from nothing, learns to explain things to a "
            "10-year-old: first from text, then from demonstrations of mixed quality, then from what raters prefer."
        ),
        command=f"tutelage demo --seed {settings.seed}{' --quick' if settings.quick else ''}",
    )
    scale = QUICK if settings.quick else Scale()
    tutoring = Tutoring(settings.out, settings.seed, scale, settings.quiet, tell)
    seconds = run_stages(settings.out, story, tutoring.stages(), tell)
    summary = summarise(settings.out, seconds)
    (settings.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    from tutelage.report import write_report

    report = write_report(settings.out)
    if not settings.quiet:
        _show(settings.out, summary, report)
    return 0


def summarise(out: Path, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The decisive figures of the round, from the summaries of its stages."""
    from tutelage.commands.runs import peak_memory_mb

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


def _show(out: Path, summary: Mapping[str, Any], report: Path) -> None:
    """The table, three answers before and after, and what to do next."""
    from rich.console import Console

    from tutelage.commands.evaluate import print_table

    console = Console()
    console.print()
    print_table(json.loads((out / "evaluate" / "summary.json").read_text()))
    fitted = summary["reward_model"]
    console.print(
        f"\nReward model: {fitted['accuracy']:.1%} of single held-out votes foretold; "
        f"the noise of the votes allows {fitted['ceiling']:.1%}."
    )
    _show_answers(console, out)
    console.print(f"[bold]Took[/] {summary['seconds']['total']:.0f} s and {summary['peak_rss_mb']:.0f} MB.\n")
    console.print("[bold]What to do next[/]")
    console.print(f"  read the report       {report}", soft_wrap=True)
    console.print(
        f"  judge pairs yourself  tutelage collect init {out}/people --from-sample {out}/sample --limit 20 && "
        f"tutelage collect serve {out}/people",
        soft_wrap=True,
    )
    console.print(
        f"  talk to both models   tutelage chat --model {out}/improve/model --against {out}/sft/model",
        soft_wrap=True,
    )


def _show_answers(console: "Console", out: Path) -> None:
    from rich.markup import escape

    rows = [json.loads(line) for line in (out / "evaluate" / "answers.jsonl").read_text().splitlines()]
    step = max(1, len(rows) // 3)
    for row in rows[::step][:3]:
        console.print(f"\n[bold]{escape(row['prompt'])}[/]")
        console.print(f"  [dim]SFT    {row['gold_before']:+.2f}[/]  {escape(row['before'])}")
        console.print(f"  [green]policy {row['gold_after']:+.2f}[/]  {escape(row['after'])}")
    console.print()
