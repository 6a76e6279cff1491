"""Single answers labelled good or bad: what KTO-style training reads where nobody compared two answers."""

from dataclasses import dataclass

from tutelage.data.records import Messages


@dataclass(frozen=True)
class UnpairedAnswer:
    """One answer and whether it was found good."""

    messages: Messages
    completion: str
    label: bool
