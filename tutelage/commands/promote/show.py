"""Output of `tutelage promote`: the conditions of the promotion, or JSON."""

import json
from dataclasses import asdict

from tutelage.base.nouns import counted
from tutelage.commands.promote.run import promote
from tutelage.commands.promote.settings import PromoteSettings
from tutelage.commands.split_evidence import condition_lines


def main(settings: PromoteSettings) -> int:
    """Decide and print. The status is 1 if the model is not promoted."""
    result = promote(settings)
    if settings.json:
        print(json.dumps(asdict(result), indent=1))
    elif result.test is None:
        print(f"The promotion of {settings.run} is withdrawn.")
    else:
        for line in condition_lines(result.test):
            print(line)
        for note in result.test.notes:
            print(note)
        if result.test.pending:
            pending = counted(result.test.pending, "user", "is")
            print(f"{pending} within the first {settings.hours:g} hours and not counted yet.")
        print(
            f"{settings.run} is promoted; its card has the evidence."
            if result.promoted
            else f"{settings.run} is not promoted. Nothing was changed."
        )
    return 0 if result.promoted or settings.undo else 1
