"""`tutelage distill`: a student learns what a teacher would have written."""

import sys

from tutelage.workflows.settings.distill import DistillSettings

Settings = DistillSettings


def main(settings: DistillSettings) -> int:
    """Train, with the progress on the terminal, and print how far the student is from the teacher."""
    from tutelage.train.run.terminal import complete, conclude, remarks
    from tutelage.workflows.distill import prepare_distill

    with remarks(quiet=settings.quiet):
        result = complete(prepare_distill(settings), quiet=settings.quiet)
    if settings.quiet:
        return 0
    if result.divergence is not None:
        print(f"divergence from the teacher {result.divergence:.4f} nats per token", file=sys.stderr)
    if result.kl is not None:
        print(f"KL(student‖teacher) {result.kl:.3f} nats per answer", file=sys.stderr)
    conclude(result.out, result.model, quiet=settings.quiet)
    return 0
