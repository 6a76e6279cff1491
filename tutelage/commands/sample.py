"""`tutelage sample`: answers to prompts, and pairs of them to compare."""

from tutelage.workflows.settings.sample import SampleSettings

Settings = SampleSettings


def main(settings: SampleSettings) -> int:
    """Sample, with remarks on the terminal."""
    from tutelage.commands.terminal import remarks
    from tutelage.workflows.sample import sample

    with remarks(quiet=settings.quiet):
        sample(settings)
    return 0
