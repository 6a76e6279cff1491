"""Looking out for occasions: rounds that became full, agreement that fell below the study's bound."""

from tutelage.people.statistics.keeping import Keeper
from tutelage.people.store.engine import Store
from tutelage.people.store.live_models import find_live_models
from tutelage.people.store.occasions import alarm_of, notice_agreement, notice_round
from tutelage.people.store.overview import survey
from tutelage.people.store.studies import study_of
from tutelage.people.store.votes import Snapshot, last_moment

LEAST_ITEMS = 20
"""Items with two raters or more below which agreement is too uncertain to be told of."""


class Lookout:
    """Puts occasions of a study into its inbox. Losing it costs time, never an occasion: what was told is in the
    database."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store, self._study = store, study_id
        self._keeper = Keeper(store)
        self._moment: Snapshot | None = None

    def look(self) -> None:
        """Look whether there is an occasion, and put it into the inbox."""
        with self._store.read() as connection:
            moment = last_moment(connection, self._study)
        if moment != self._moment:
            self._look_at_rounds()
            self._moment = moment
        if alarm_of(self._store, self._study) is not None:
            self._look_at_agreement()

    def _look_at_rounds(self) -> None:
        live = find_live_models(self._store, self._study)
        for each in survey(self._store, self._study).rounds:
            grows = live is not None and each.number == live.round  # with every turn of a conversation
            if each.items and each.complete == each.items and not grows:
                notice_round(self._store, self._study, each.number, each.items)

    def _look_at_agreement(self) -> None:
        kept = self._keeper.whole(study_of(self._store, self._study))
        found = kept.value.statistics.agreement if kept.value is not None else None
        if found is not None and found.value is not None and found.items >= LEAST_ITEMS:
            notice_agreement(self._store, self._study, found.value, found.items)
