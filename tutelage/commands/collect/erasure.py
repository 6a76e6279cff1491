"""`tutelage collect forget`: permanent erasure of raters."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tutelage.base.errors import TutelageError
from tutelage.commands.study import CollectSettings, open_existing, operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tutelage.people import Rater, Store, Study
    from tutelage.people.store.rater_erasure import Forgotten


@dataclass(frozen=True, kw_only=True)
class Forget(CollectSettings):
    """Permanently erase name, platform identifiers, free texts, sessions and links of a rater; votes are kept under a
    number or erased, as the rater agreed. Backups are erased as well, or listed if that is not possible."""

    rater: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RATER")] = ""
    """Name of the rater."""
    due: bool = False
    """Forget every rater whose retention period has ended, instead."""
    delete_backups: bool = False
    """Delete the backups made since the rater joined."""
    runs: Path = Path("runs")
    """Folder that is searched for runs and models that were trained on the votes of who is forgotten; they are listed,
    and nothing in them is changed."""

    def __post_init__(self) -> None:
        if bool(self.rater) == self.due:
            raise TutelageError("Name the rater to forget, or give --due.")
        if self.due and self.delete_backups:
            raise TutelageError("--delete-backups needs a name; --due prints the backups.")


def forget_raters(settings: Forget) -> int:
    """Forget one rater, or all who are due, and print copies that could not be erased."""
    from tutelage.people import find_rater
    from tutelage.people.store.consents import raters_due
    from tutelage.people.store.rater_erasure import finish_forgetting, forget, forget_due

    store, study = open_existing(settings)
    with closing(store):
        for each in finish_forgetting(store, study.id):
            print(f"Forgetting “{each.name}” was interrupted, and is complete now.")
            _tell(each)
        if settings.due:
            used = _trained(settings, store, study, raters_due(store, study.id))
            erased = forget_due(store, study.id, actor=operator())
        else:
            rater = find_rater(store, study.id, settings.rater)
            if rater is None:
                raise TutelageError(f"'{study.name}' has no rater named '{settings.rater}'.")
            used = _trained(settings, store, study, (rater,))
            erased = (forget(store, rater.id, backups_too=settings.delete_backups, actor=operator()),)
    for each in erased:
        _tell(each)
    if not erased:
        print("No rater is due.")
    for line in used:
        print(line)
    return 0


def _trained(settings: Forget, store: "Store", study: "Study", raters: "Sequence[Rater]") -> list[str]:
    """Lines about the runs that were trained on votes of these raters."""
    from tutelage.people import list_votes

    numbers = [vote.id for rater in raters for vote in list_votes(store, study.id, rater=rater.id, every_revision=True)]
    if not numbers:
        return []
    if not settings.runs.is_dir():
        return [
            f"  {settings.runs} is no folder, so no runs were searched for: name the folder of your runs with --runs"
        ]
    from tutelage.commands.study_data import runs_trained_on

    used_by = runs_trained_on(settings.runs, store.address, study.name, min(numbers))
    lines = [f"    {run} (through {used})" for run, used in used_by.items()]
    heading = f"  runs and models below {settings.runs} that were trained on what is forgotten: {len(used_by):,}"
    return [heading, *lines]


def _tell(erased: "Forgotten") -> None:
    print(f"Forgotten; {'the votes were erased' if erased.erased else f'the votes stay under “{erased.name}”'}.")
    for name in erased.backups:
        print(f"  still contains the rater: {name}")
    if erased.exports:
        print(f"  exports made since the rater joined, which may contain the rater: {erased.exports:,}")
    if not erased.rewritten:
        print("  the database file was in use and could not be rewritten; this is done with the next erasure")
