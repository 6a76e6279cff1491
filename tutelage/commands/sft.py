"""`tutelage sft`: supervised fine-tuning on demonstrations."""

from tutelage.workflows.settings.sft import SftSettings

Settings = SftSettings


def main(settings: SftSettings) -> int:
    """Train, with the progress on the terminal."""
    from tutelage.commands.terminal import train
    from tutelage.workflows.sft import prepare_sft

    return train(prepare_sft(settings), quiet=settings.quiet)
