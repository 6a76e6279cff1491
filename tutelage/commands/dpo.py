"""`tutelage dpo`: a policy from preferences directly, without a reward model."""

from typing import TYPE_CHECKING

from tutelage.workflows.settings.dpo import DpoSettings

if TYPE_CHECKING:
    from tutelage.workflows.results import DpoResult

Settings = DpoSettings


def main(settings: DpoSettings) -> int:
    """Train, with the progress on the terminal, and print the held-out figures."""
    from tutelage.commands.terminal import train
    from tutelage.workflows.dpo import prepare_dpo

    return train(prepare_dpo(settings), quiet=settings.quiet, figures=figures)


def figures(result: "DpoResult") -> list[str]:
    """Accuracy and margin on the held-out pairs, and the score of fresh answers, as far as they were measured; a line
    each."""
    lines = []
    if result.accuracy is not None and result.margin is not None:
        lines.append(f"held-out accuracy {result.accuracy:.3f}, margin {result.margin:.3f}")
    if result.score is not None:
        lines.append(f"held-out score {result.score:.3f}")
    return lines
