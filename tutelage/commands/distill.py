"""`tutelage distill`: a student learns what a teacher would have written."""

from typing import TYPE_CHECKING

from tutelage.workflows.settings.distill import DistillSettings

if TYPE_CHECKING:
    from tutelage.workflows.results import DistillResult

Settings = DistillSettings


def main(settings: DistillSettings) -> int:
    """Train, with the progress on the terminal, and print how far the student is from the teacher."""
    from tutelage.commands.terminal import train
    from tutelage.workflows.distill import prepare_distill

    return train(prepare_distill(settings), quiet=settings.quiet, figures=figures)


def figures(result: "DistillResult") -> list[str]:
    """The distance from the teacher, per token and per answer, as far as it was measured; a line each."""
    lines = []
    if result.divergence is not None:
        lines.append(f"divergence from the teacher {result.divergence:.4f} nats per token")
    if result.kl is not None:
        lines.append(f"KL(student‖teacher) {result.kl:.3f} nats per answer")
    return lines
