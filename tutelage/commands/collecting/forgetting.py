"""`tutelage collect consent` and `forget`: what raters agree to, and erasing them."""

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.place import open_existing, operator
from tutelage.commands.collecting.settings_people import Consent, Forget

if TYPE_CHECKING:
    from tutelage.people.store.forgetting import Forgotten


def ask(settings: Consent) -> int:
    """Change what raters agree to, and print it."""
    from tutelage.people.store.consents import ask_consent, consent_of

    store, study = open_existing(settings)
    with closing(store):
        consent = consent_of(store, study.id, study.consent)
        if settings.text is not None:
            try:
                consent = replace(consent, text=settings.text.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise TutelageError(f"The text {settings.text} cannot be read: {error}.") from error
        if settings.votes is not None:
            consent = replace(consent, votes=settings.votes)
        if settings.retention_days is not None:
            consent = replace(consent, retention_days=settings.retention_days or None)
        number = ask_consent(store, study.id, consent, actor=operator())
    print(
        f"{study.name}: raters agree to {f'version {number}' if number else 'the standard text'}; votes of who is "
        f"forgotten: {consent.votes}; forgotten after {consent.retention_days or '–'} days"
    )
    return 0


def forget_raters(settings: Forget) -> int:
    """Forget one rater, or everybody who is due, and print what is out of reach."""
    from tutelage.people import find_rater
    from tutelage.people.retention import forget_due
    from tutelage.people.store.forgetting import finish_forgetting, forget

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
