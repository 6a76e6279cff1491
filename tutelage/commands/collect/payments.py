"""`tutelage collect payments`: table for paying raters from a platform."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.study import CollectSettings, open_existing


@dataclass(frozen=True, kw_only=True)
class Payments(CollectSettings):
    """Write time and counts of every visit as CSV, for payment. It contains names and platform identifiers of raters:
    keep it apart from exports."""

    out: Path | None = None
    """File to write; it must not exist. By default the table is printed."""


def write_payments(settings: Payments) -> int:
    """Write the table to a file, or print it."""
    from tutelage.people.remuneration import payment_csv

    store, study = open_existing(settings)
    with closing(store):
        text = payment_csv(store, study.id)
    if settings.out is None:
        print(text, end="")
        return 0
    try:
        with settings.out.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise TutelageError(f"{settings.out} cannot be written: {error.strerror or error}.") from error
    print(f"{settings.out}: {counted(text.count(chr(10)) - 1, 'row')}, with the identifiers of the platform")
    return 0
