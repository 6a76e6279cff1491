"""What `tutelage demo` prints at its end."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from tutelage.base import config
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.evaluate.show import print_evaluation


def print_demo(out: Path, summary: Mapping[str, Any], report: Path) -> None:
    """Print the table, three answers before and after, and what to do next."""
    console = Console()
    console.print()
    print_evaluation(json.loads((out / "evaluate" / "summary.json").read_text()))
    fitted = summary["reward_model"]
    console.print(
        f"\nReward model: {fitted['accuracy']:.1%} of single held-out votes predicted; "
        f"the noise of the votes allows {fitted['ceiling']:.1%}."
    )
    asked = config.load(EvaluateSettings, out / "evaluate" / "config.json")
    _show_answers(console, out, asked.names)
    console.print(f"[bold]Took[/] {summary['seconds']['total']:.0f} s and {summary['peak_rss_mb']:.0f} MB.\n")
    console.print("[bold]What to do next[/]")
    console.print(f"  read the report       {report}", soft_wrap=True)
    console.print(
        f"  judge pairs yourself  tutelage collect init {out}/people --from-sample {out}/sample --limit 20 && "
        f"tutelage collect serve {out}/people",
        soft_wrap=True,
    )
    console.print(
        f"  talk to both models   tutelage chat --model {asked.model.path} --against {asked.against}",
        soft_wrap=True,
    )


def _show_answers(console: Console, out: Path, names: tuple[str, str]) -> None:
    before, after = (name.ljust(max(map(len, names))) for name in names)
    rows = [json.loads(line) for line in (out / "evaluate" / "answers.jsonl").read_text().splitlines()]
    step = max(1, len(rows) // 3)
    for row in rows[::step][:3]:
        console.print(f"\n[bold]{escape(row['prompt'])}[/]")
        console.print(f"  [dim]{before} {row['gold_before']:+.2f}[/]  {escape(row['before'])}")
        console.print(f"  [green]{after} {row['gold_after']:+.2f}[/]  {escape(row['after'])}")
    console.print()
