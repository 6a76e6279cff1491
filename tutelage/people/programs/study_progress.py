"""The progress of a study, read from its database or over the API, and conditions to wait for."""

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
    """How far a study is, from the counters alone."""
    found = survey(store, study.id)
    counts = found.counts
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
        rounds=tuple(
            RoundProgress(each.number, each.items, each.complete, each.agreement) for each in found.rounds
        ),
    )


def agreement_figures(whole: "StudyStatistics", at: int) -> AgreementFigures:
    """The agreement in the statistics of a study, which were computed `at` a time."""
    found = whole.statistics.agreement
    value, low, high = (
        None if each is None else float(each) for each in (found.value, found.low, found.high)
    )
    alphas = {name: None if a.value is None else float(a.value) for name, a in whole.agreements.items()}
    return AgreementFigures(value, low, high, found.items, found.pairs, found.note, alphas, at)


_log = logging.getLogger("tutelage")


@dataclass(frozen=True)
class Progress:
    """The progress of a study; `agreement` is None where it was not asked for or is unknown."""

    votes: int
    items: int
    items_done: int
    agreement: float | None = None


@dataclass(frozen=True)
class Condition:
    """A state of a study to wait for: so many `votes`, `items_done` ("all" of them) and `agreement`, all at once; None
    is not waited for."""

    votes: int | None = None
    items_done: int | str | None = None
    agreement: float | None = None

    def __post_init__(self) -> None:
        if self.votes is None and self.items_done is None and self.agreement is None:
            raise TutelageError("Say what to wait for: --votes N, --items-done N (or all), --agreement X.")
        if self.votes is not None and self.votes < 1:
            raise TutelageError(f"--votes is {self.votes}; wait for at least one.")
        done = self.items_done
        if (isinstance(done, str) and done != "all") or (isinstance(done, int) and done < 1):
            raise TutelageError(f"--items-done is '{done}'; give a whole number from 1, or all.")
        if self.agreement is not None and not 0 < self.agreement <= 1:
            raise TutelageError(
                f"--agreement is {self.agreement:g}; it is a share above 0 and at most 1, such as 0.7."
            )

    def holds(self, progress: Progress) -> bool:
        """Whether the study is that far."""
        done = self.items_done
        wanted = max(1, progress.items) if done == "all" else done
        return (
            (self.votes is None or progress.votes >= self.votes)
            and (wanted is None or progress.items_done >= int(wanted))
            and (
                self.agreement is None
                or (progress.agreement is not None and progress.agreement >= self.agreement)
            )
        )


class Source(Protocol):
    """Where the progress of a study is read."""

    def look(self, *, agreement: bool) -> Progress:
        """How far the study is now, with its agreement where that is wanted."""


class DatabaseSource:
    """A study in an open database."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store, self._study, self._keeper = store, study_id, Keeper(store)
        self._computed: tuple[Snapshot | None, float | None] = (None, None)

    def look(self, *, agreement: bool) -> Progress:
        study = study_of(self._store, self._study)
        found = study_overview(self._store, study)
        value = self._agreement(study) if agreement else None
        return Progress(found.votes, found.items, found.items_done, value)

    def _agreement(self, study: Study) -> float | None:
        """The agreement as it is now, computed again where something has changed."""
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
        found = self.client.overview()
        value = self.client.agreement().value if agreement else None
        return Progress(found.votes, found.items, found.items_done, value)


def looks(
    source: Source, condition: Condition, *, every: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Progress]:
    """The progress at each look, every so many seconds, until the condition holds. A busy database and an unanswering
    server are tried again."""
    while True:
        try:
            progress = source.look(agreement=condition.agreement is not None)
        except (Unavailable, Unanswered) as error:
            _log.warning("The study could not be looked at; the next look is in %g s: %s", every, error)
        else:
            yield progress
            if condition.holds(progress):
                return
        sleep(every)
