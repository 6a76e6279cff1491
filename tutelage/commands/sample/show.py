"""`tutelage sample` on a terminal."""

from tutelage.commands.sample.run import sample
from tutelage.commands.sample.settings import SampleSettings
from tutelage.commands.terminal import remarks


def main(settings: SampleSettings) -> int:
    """Sample, with remarks on the terminal."""
    with remarks(quiet=settings.quiet):
        sample(settings)
    return 0
