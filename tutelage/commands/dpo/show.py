"""The figures that `tutelage dpo` says at its end."""

from tutelage.commands.results import DpoResult


def figures(result: DpoResult) -> list[str]:
    """Accuracy and margin on the held-out pairs, and the score of fresh answers, as far as they were measured; a line
    each."""
    lines = []
    if result.accuracy is not None and result.margin is not None:
        lines.append(f"held-out accuracy {result.accuracy:.3f}, margin {result.margin:.3f}")
    if result.score is not None:
        lines.append(f"held-out score {result.score:.3f}")
    return lines
