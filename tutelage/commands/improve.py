"""`tutelage improve`: raise the expected score of a policy's own answers."""

from tutelage.workflows.settings.improve import ImproveSettings

Settings = ImproveSettings


def main(settings: ImproveSettings) -> int:
    """Train, with the progress on the terminal."""
    from tutelage.train.run.terminal import complete, conclude, remarks
    from tutelage.workflows.improve import prepare_improve

    with remarks(quiet=settings.quiet):
        result = complete(prepare_improve(settings), quiet=settings.quiet)
    conclude(result.out, result.model, quiet=settings.quiet)
    return 0
