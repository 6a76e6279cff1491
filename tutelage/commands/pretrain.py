"""`tutelage pretrain`: a language model from plain text."""

from tutelage.workflows.settings.pretrain import PretrainSettings

Settings = PretrainSettings


def main(settings: PretrainSettings) -> int:
    """Train, with the progress on the terminal."""
    from tutelage.train.run.terminal import complete, conclude, remarks
    from tutelage.workflows.pretrain import prepare_pretrain

    with remarks(quiet=settings.quiet):
        result = complete(prepare_pretrain(settings), quiet=settings.quiet)
    conclude(result.out, result.model, quiet=settings.quiet)
    return 0
