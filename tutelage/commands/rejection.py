"""`tutelage rejection`: rejection sampling, a policy learns the best of many of its own answers."""

import sys

from tutelage.workflows.settings.rejection import RejectionSettings

Settings = RejectionSettings


def main(settings: RejectionSettings) -> int:
    """Train, with the progress on the terminal, and print the held-out score."""
    from tutelage.train.run.terminal import complete, conclude, remarks
    from tutelage.workflows.rejection import prepare_rejection

    with remarks(quiet=settings.quiet):
        result = complete(prepare_rejection(settings), quiet=settings.quiet)
    if result.score is not None and not settings.quiet:
        print(f"held-out score {result.score:.3f}", file=sys.stderr)
    conclude(result.out, result.model, quiet=settings.quiet)
    return 0
