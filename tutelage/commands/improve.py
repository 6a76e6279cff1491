"""`tutelage improve`: raise the expected score of a policy's own answers."""

from tutelage.workflows.settings.improve import ImproveSettings

Settings = ImproveSettings


def main(settings: ImproveSettings) -> int:
    """Train, with the progress on the terminal."""
    from tutelage.commands.terminal import train
    from tutelage.workflows.improve import prepare_improve

    return train(prepare_improve(settings), quiet=settings.quiet)
