"""`tutelage demo`: the whole loop on an embedded example."""

from dataclasses import dataclass, field
from pathlib import Path

from tutelage import config


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Pretrain a small language model on an embedded tutoring world, fine-tune it, let simulated raters judge its
    answers, train a reward model on their votes, improve the model by PPO, and evaluate it on held-out topics."""

    out: Path = Path("runs/demo")
    """Folder of the round. What is finished in it is skipped, what was interrupted goes on."""
    seed: int = 0
    """Seed of the world, the raters and the training."""
    quick: bool = False
    """A very small round in about a minute, to see that everything works; too small to learn much."""
    engine: config.EngineName = field(default="auto", metadata=config.LATER)
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    quiet: bool = False
    """Print nothing but errors."""


def main(settings: Settings) -> int:
    """Run the round, write its report, and print the figures."""
    from tutelage.commands.tables.demo import print_demo
    from tutelage.report import write_report
    from tutelage.rounds.demo import run_demo
    from tutelage.train.run.terminal import remarks

    with remarks(quiet=settings.quiet):
        summary = run_demo(
            settings.out,
            seed=settings.seed,
            quick=settings.quick,
            quiet=settings.quiet,
            engine=settings.engine,
        )
    report = write_report(settings.out)
    if not settings.quiet:
        print_demo(settings.out, summary, report)
    return 0
