"""A cache of the statistics of studies. For a small study they are computed on request; for a large one in a thread,
while pages show the last ones with their age, or that they are being computed."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tutelage.people import Selection, Snapshot, Store, Study, list_raters, list_votes
from tutelage.people.aggregation import agreements
from tutelage.people.selection import fate
from tutelage.people.statistics.ballots import BallotBox, Ballots, pair_ballots
from tutelage.people.statistics.computation import Statistics, compute
from tutelage.people.store.raters import crowd_kinds
from tutelage.people.store.survey import Survey, survey
from tutelage.people.store.votes import last_moment
from tutelage.stats.agreement import Alpha

T = TypeVar("T")
PROMPT_SECONDS = 0.25
REST = 10.0


@dataclass(frozen=True)
class StudyStatistics:
    """The statistics of a study at one moment. `agreements` are about more than pairs (`Kind.agreements`)."""

    survey: Survey
    statistics: Statistics
    agreements: Mapping[str, Alpha]


@dataclass
class CacheEntry(Generic[T]):
    """The last value of an expensive computation, its moment, when and how long it ran, and whether it is `behind`."""

    value: T | None = None
    moment: Snapshot | None = None
    at: int = 0
    seconds: float = 0.0
    finished: float = 0.0
    running: bool = False
    behind: bool = False
    error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Keeper:
    """The statistics of the studies of one database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._boxes: dict[int, BallotBox] = {}
        self._kept: dict[int, CacheEntry[StudyStatistics]] = {}
        self._lock = threading.Lock()

    def ballots(self, study: Study) -> Ballots:
        """The votes as they stand; where an answer is about several responses, as votes on their pairs."""
        with self._lock:
            box = self._boxes.setdefault(study.id, BallotBox(self._store, study.id))
        ballots = box.open()
        return ballots if study.kind.traits.sides else pair_ballots(self._store, study.id, ballots)

    def whole(self, study: Study) -> CacheEntry[StudyStatistics]:
        """The last statistics, brought up to date first where that is quick, and else soon."""
        with self._lock:
            kept = self._kept.setdefault(study.id, CacheEntry())
        with self._store.read() as connection:
            moment = last_moment(connection, study.id)
        with kept.lock:
            kept.behind = moment != kept.moment
            if kept.running or moment == kept.moment:
                return kept
            quick = kept.seconds < PROMPT_SECONDS and moment.last_judgement < 2_000
            if not quick and time.monotonic() - kept.finished < REST * kept.seconds:
                return kept
            kept.running = True
        if quick:
            self._renew(study, moment, kept)
        else:
            threading.Thread(target=self._renew, args=(study, moment, kept), daemon=True).start()
        return kept

    def _renew(self, study: Study, moment: Snapshot, kept: CacheEntry[StudyStatistics]) -> None:
        began = time.monotonic()
        try:
            whole = self.compute(study)
        except Exception as error:
            kept.error = str(error)
            raise
        else:
            kept.value, kept.moment, kept.at, kept.error = whole, moment, self._store.now(), ""
            kept.behind = False
        finally:
            kept.finished = time.monotonic()
            kept.seconds = kept.finished - began
            kept.running = False

    def compute(self, study: Study) -> StudyStatistics:
        """The statistics as they are now, however long that takes."""
        raters = list_raters(self._store, study.id)
        statistics = compute(self.ballots(study), raters, self._store.now())
        return StudyStatistics(survey(self._store, study.id), statistics, self._agreements(study))

    def _agreements(self, study: Study) -> Mapping[str, Alpha]:
        if study.kind.traits.sides:
            return {}
        votes = list_votes(self._store, study.id)
        selection = Selection(kinds=crowd_kinds(list_raters(self._store, study.id)))
        return agreements([vote for vote in votes if fate(vote, selection) == "counts"])
