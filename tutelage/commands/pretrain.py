"""`tutelage pretrain`: a language model from plain text."""

from tutelage.workflows.settings.pretrain import PretrainSettings

Settings = PretrainSettings


def main(settings: PretrainSettings) -> int:
    """Train, with the progress on the terminal."""
    from tutelage.commands.terminal import train
    from tutelage.workflows.pretrain import prepare_pretrain

    return train(prepare_pretrain(settings), quiet=settings.quiet)
