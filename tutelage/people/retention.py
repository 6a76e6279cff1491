"""The end of the time for which people are kept: whoever is due is forgotten unasked, and what a program that died left
to do of forgetting is done."""

import logging
import threading

from tutelage.base.errors import TutelageError
from tutelage.people.store.consents import raters_due
from tutelage.people.store.engine import Store
from tutelage.people.store.rater_erasure import Forgotten, finish_forgetting, forget

LOOK_SECONDS = 3_600
_log = logging.getLogger(__name__)


def forget_due(store: Store, study_id: int, *, actor: str = "retention") -> tuple[Forgotten, ...]:
    """Forget every rater whose time is over."""
    return tuple(forget(store, rater.id, actor=actor) for rater in raters_due(store, study_id))


class Retention:
    """Finishes erasures and forgets raters who are due, at once and every hour. `start` begins a thread, `close` ends
    it."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store, self._study = store, study_id
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._work, daemon=True, name="retention").start()

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()

    def look(self) -> None:
        """Do it once."""
        try:
            begun = finish_forgetting(self._store, self._study)
            for each in (*begun, *forget_due(self._store, self._study)):
                _log.warning(
                    "%s was forgotten; backups that hold the rater: %s", each.name, each.backups or "none"
                )
        except TutelageError as error:  # the database is busy: the next look will do
            _log.warning("Raters who are due could not be forgotten: %s", error)

    def _work(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(LOOK_SECONDS)
