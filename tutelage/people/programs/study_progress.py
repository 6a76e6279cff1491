"""Progress of a study, from its database or API, and conditions to wait for."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tutelage.base.errors import TutelageError
from tutelage.data.transport import Unanswered
from tutelage.people.programs.api_values import AgreementFigures, Overview, RoundProgress
from tutelage.people.programs.client import StudyClient
from tutelage.people.statistics.cache import Keeper
from tutelage.people.store.engine import Store, Unavailable
from tutelage.people.store.raters import list_raters
from tutelage.people.store.studies import Study, study_of
from tutelage.people.store.survey import survey
from tutelage.people.store.votes import Snapshot, last_moment

if TYPE_CHECKING:  # the site imports this module, and the statistics lie in the site
    from tutelage.people.statistics.cache import StudyStatistics


def study_overview(store: Store, study: Study) -> Overview:
    """The progress of a study, from counters only."""
    overview = survey(store, study.id)
    counts = overview.counts
    return Overview(
        study=study.name,
        state=study.state,
        kind=study.kind.name,
        version=study.version,
        items=counts.items,
        items_done=counts.complete,
        votes=counts.answered,
        votes_wanted=counts.wanted,
        judgements=counts.judgements,
        skipped=counts.skipped,
        flagged=counts.flagged,
        raters=sum(rater.role == "rater" for rater in list_raters(store, study.id)),
        rounds=tuple(RoundProgress(each.number, each.items, each.complete, each.agreement) for each in overview.rounds),
    )


def agreement_figures(whole: "StudyStatistics", at: int) -> AgreementFigures:
    """The agreement in the statistics of a study, computed at the time `at`."""
    pairs = whole.statistics.agreement
    value, low, high = (None if each is None else float(each) for each in (pairs.value, pairs.low, pairs.high))
    alphas = {name: None if a.value is None else float(a.value) for name, a in whole.agreements.items()}
    return AgreementFigures(value, low, high, pairs.items, pairs.pairs, pairs.note, alphas, at)


_log = logging.getLogger("tutelage")


@dataclass(frozen=True)
class Progress:
    """The progress of a study; `agreement` is None if not requested or unknown."""

    votes: int
    items: int
    items_done: int
    agreement: float | None = None


@dataclass(frozen=True)
class Condition:
    """A condition on the progress of a study: minimum numbers of `votes` and `items_done` (or "all") and minimum
    `agreement`, all at once; None is no condition."""

    votes: int | None = None
    items_done: int | str | None = None
    agreement: float | None = None

    def __post_init__(self) -> None:
        if self.votes is None and self.items_done is None and self.agreement is None:
            raise TutelageError(
                "There is no condition to wait for; give --votes N, --items-done N (or all) or --agreement X."
            )
        if self.votes is not None and self.votes < 1:
            raise TutelageError(f"--votes is {self.votes}; wait for at least one.")
        done = self.items_done
        if (isinstance(done, str) and done != "all") or (isinstance(done, int) and done < 1):
            raise TutelageError(f"--items-done is '{done}'; give a whole number from 1, or all.")
        if self.agreement is not None and not 0 < self.agreement <= 1:
            raise TutelageError(f"--agreement is {self.agreement:g}; it is a share above 0 and at most 1, such as 0.7.")

    def holds(self, progress: Progress) -> bool:
        """Whether the progress satisfies the condition."""
        least = max(1, progress.items) if self.items_done == "all" else self.items_done
        return (
            (self.votes is None or progress.votes >= self.votes)
            and (least is None or progress.items_done >= int(least))
            and (self.agreement is None or (progress.agreement is not None and progress.agreement >= self.agreement))
        )


class Source(Protocol):
    """A source of the progress of a study."""

    def look(self, *, agreement: bool) -> Progress:
        """The current progress, optionally with the agreement."""


class DatabaseSource:
    """A study in an open database."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store, self._study, self._keeper = store, study_id, Keeper(store)
        self._computed: tuple[Snapshot | None, float | None] = (None, None)

    def look(self, *, agreement: bool) -> Progress:
        study = study_of(self._store, self._study)
        overview = study_overview(self._store, study)
        value = self._agreement(study) if agreement else None
        return Progress(overview.votes, overview.items, overview.items_done, value)

    def _agreement(self, study: Study) -> float | None:
        """The current agreement, recomputed only after changes."""
        with self._store.read() as connection:
            moment = last_moment(connection, self._study)
        if moment != self._computed[0]:
            self._computed = moment, self._keeper.compute(study).statistics.agreement.value
        return self._computed[1]


@dataclass(frozen=True)
class ClientSource:
    """A study behind the API of its server."""

    client: StudyClient

    def look(self, *, agreement: bool) -> Progress:
        overview = self.client.overview()
        value = self.client.agreement().value if agreement else None
        return Progress(overview.votes, overview.items, overview.items_done, value)


def looks(
    source: Source, condition: Condition, *, every: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Progress]:
    """Yield the progress every `every` seconds until the condition holds. A busy database or an unreachable server is
    retried."""
    while True:
        try:
            progress = source.look(agreement=condition.agreement is not None)
        except (Unavailable, Unanswered) as error:
            _log.warning("The progress of the study could not be read; trying again in %g s: %s", every, error)
        else:
            yield progress
            if condition.holds(progress):
                return
        sleep(every)
