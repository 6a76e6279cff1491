"""`tutelage dpo`: a policy from preferences directly, without a reward model."""

import sys

from tutelage.workflows.settings.dpo import DpoSettings

Settings = DpoSettings


def main(settings: DpoSettings) -> int:
    """Train, with the progress on the terminal, and print the held-out figures."""
    from tutelage.train.run.terminal import complete, conclude, remarks
    from tutelage.workflows.dpo import prepare_dpo

    with remarks(quiet=settings.quiet):
        result = complete(prepare_dpo(settings), quiet=settings.quiet)
    if settings.quiet:
        return 0
    if result.accuracy is not None and result.margin is not None:
        print(f"held-out accuracy {result.accuracy:.3f}, margin {result.margin:.3f}", file=sys.stderr)
    if result.score is not None:
        print(f"held-out score {result.score:.3f}", file=sys.stderr)
    conclude(result.out, result.model, quiet=settings.quiet)
    return 0
