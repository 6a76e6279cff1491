"""The figures that `tutelage distill` says at its end."""

from tutelage.commands.results import DistillResult


def figures(result: DistillResult) -> list[str]:
    """The distance from the teacher, per token and per answer, as far as it was measured; a line each."""
    lines = []
    if result.divergence is not None:
        lines.append(f"divergence from the teacher {result.divergence:.4f} nats per token")
    if result.kl is not None:
        lines.append(f"KL(student‖teacher) {result.kl:.3f} nats per answer")
    return lines
