"""`tutelage sft`: supervised fine-tuning on demonstrations."""

from tutelage.workflows.settings.sft import SftSettings

Settings = SftSettings


def main(settings: SftSettings) -> int:
    """Train, with the progress on the terminal."""
    from tutelage.train.run.terminal import complete, conclude, remarks
    from tutelage.workflows.sft import prepare_sft

    with remarks(quiet=settings.quiet):
        result = complete(prepare_sft(settings), quiet=settings.quiet)
    conclude(result.out, result.model, quiet=settings.quiet)
    return 0
