"""`tutelage evaluate`: what a model's answers are worth, alone or against another's."""

from tutelage.workflows.settings.evaluate import EvaluateSettings

Settings = EvaluateSettings


def main(settings: EvaluateSettings) -> int:
    """Evaluate, and print the table."""
    from tutelage.commands.tables.evaluation import print_evaluation
    from tutelage.commands.terminal import remarks
    from tutelage.workflows.evaluate import evaluate

    with remarks(quiet=settings.quiet):
        result = evaluate(settings)
    if not settings.quiet:
        print_evaluation(result.summary)
    return 0
