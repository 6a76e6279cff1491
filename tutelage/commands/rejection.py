"""`tutelage rejection`: rejection sampling, a policy learns the best of many of its own answers."""

from typing import TYPE_CHECKING

from tutelage.workflows.settings.rejection import RejectionSettings

if TYPE_CHECKING:
    from tutelage.workflows.results import RejectionResult

Settings = RejectionSettings


def main(settings: RejectionSettings) -> int:
    """Train, with the progress on the terminal, and print the held-out score."""
    from tutelage.commands.terminal import train
    from tutelage.workflows.rejection import prepare_rejection

    return train(prepare_rejection(settings), quiet=settings.quiet, figures=figures)


def figures(result: "RejectionResult") -> list[str]:
    """The score of a fresh answer to the held-out prompts, where it was measured."""
    return [] if result.score is None else [f"held-out score {result.score:.3f}"]
