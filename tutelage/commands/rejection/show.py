"""The figure that `tutelage rejection` says at its end."""

from tutelage.commands.results import RejectionResult


def figures(result: RejectionResult) -> list[str]:
    """The score of a fresh answer to the held-out prompts, where it was measured."""
    return [] if result.score is None else [f"held-out score {result.score:.3f}"]
