"""`tutelage collect forget`: raters are erased for good."""

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from tutelage.base.errors import TutelageError
from tutelage.commands.study import CollectSettings, open_existing, operator

if TYPE_CHECKING:
    from tutelage.people.store.rater_erasure import Forgotten


@dataclass(frozen=True, kw_only=True)
class Forget(CollectSettings):
    """Erase name, platform identifiers, free texts, sessions and links of a rater for good; votes stay under a number
    or are erased, as the rater agreed. The same is erased in backups; prints those where that
    is not possible."""

    rater: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RATER")] = ""
    """Name of the rater."""
    due: bool = False
    """Forget everybody whose time of retention is over, instead."""
    delete_backups: bool = False
    """Delete the backups that were made since the rater came."""

    def __post_init__(self) -> None:
        if bool(self.rater) == self.due:
            raise TutelageError("Name the rater to forget, or give --due.")
        if self.due and self.delete_backups:
            raise TutelageError("--delete-backups goes with a name; --due prints the backups.")


def forget_raters(settings: Forget) -> int:
    """Forget one rater, or everybody who is due, and print what is out of reach."""
    from tutelage.people import find_rater
    from tutelage.people.store.rater_erasure import finish_forgetting, forget, forget_due

    store, study = open_existing(settings)
    with closing(store):
        for each in finish_forgetting(store, study.id):
            print(f"Forgetting “{each.name}” had been interrupted, and is done now.")
            _tell(each)
        if settings.due:
            done = forget_due(store, study.id, actor=operator())
        else:
            rater = find_rater(store, study.id, settings.rater)
            if rater is None:
                raise TutelageError(f"'{study.name}' has no rater named '{settings.rater}'.")
            done = (forget(store, rater.id, backups_too=settings.delete_backups, actor=operator()),)
    for each in done:
        _tell(each)
    if not done:
        print("Nobody is due.")
    return 0


def _tell(done: "Forgotten") -> None:
    print(f"Forgotten; {'the votes were erased' if done.erased else f'the votes stay under “{done.name}”'}.")
    for name in done.backups:
        print(f"  still holds the rater: {name}")
    if done.exports:
        print(f"  exports made since the rater came, whose files may hold the rater: {done.exports:,}")
    if not done.rewritten:
        print(
            "  the database file was in use and could not be rewritten; the next rater who is forgotten does that"
        )
