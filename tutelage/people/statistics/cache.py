"""Cache of study statistics. For small studies, statistics are computed on request; for large ones in a thread, while
pages show the previous statistics with their age, or a notice."""

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
    """The statistics of a study at one moment. `agreements` are those beyond pairs (`Kind.agreements`)."""

    survey: Survey
    statistics: Statistics
    agreements: Mapping[str, Alpha]


@dataclass
class CacheEntry(Generic[T]):
    """The last value of an expensive computation, with its snapshot, time and duration; `behind`: the database has
    changed since."""

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
    """Cached statistics of the studies in a database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._boxes: dict[int, BallotBox] = {}
        self._entries: dict[int, CacheEntry[StudyStatistics]] = {}
        self._lock = threading.Lock()

    def ballots(self, study: Study) -> Ballots:
        """The current votes; answers about several responses are converted to votes on pairs."""
        with self._lock:
            box = self._boxes.setdefault(study.id, BallotBox(self._store, study.id))
        ballots = box.open()
        return ballots if study.kind.traits.sides else pair_ballots(self._store, study.id, ballots)

    def whole(self, study: Study) -> CacheEntry[StudyStatistics]:
        """The cached statistics, updated first if that is fast, otherwise in the background."""
        with self._lock:
            entry = self._entries.setdefault(study.id, CacheEntry())
        with self._store.read() as connection:
            moment = last_moment(connection, study.id)
        with entry.lock:
            entry.behind = moment != entry.moment
            if entry.running or moment == entry.moment:
                return entry
            quick = entry.seconds < PROMPT_SECONDS and moment.last_judgement < 2_000
            if not quick and time.monotonic() - entry.finished < REST * entry.seconds:
                return entry
            entry.running = True
        if quick:
            self._renew(study, moment, entry)
        else:
            threading.Thread(target=self._renew, args=(study, moment, entry), daemon=True).start()
        return entry

    def _renew(self, study: Study, moment: Snapshot, entry: CacheEntry[StudyStatistics]) -> None:
        began = time.monotonic()
        try:
            whole = self.compute(study)
        except Exception as error:
            entry.error = str(error)
            raise
        else:
            entry.value, entry.moment, entry.at, entry.error = whole, moment, self._store.now(), ""
            entry.behind = False
        finally:
            entry.finished = time.monotonic()
            entry.seconds = entry.finished - began
            entry.running = False

    def compute(self, study: Study) -> StudyStatistics:
        """Compute the current statistics, bypassing the cache."""
        raters = list_raters(self._store, study.id)
        statistics = compute(self.ballots(study), raters, self._store.now())
        return StudyStatistics(survey(self._store, study.id), statistics, self._agreements(study))

    def _agreements(self, study: Study) -> Mapping[str, Alpha]:
        if study.kind.traits.sides:
            return {}
        votes = list_votes(self._store, study.id)
        selection = Selection(kinds=crowd_kinds(list_raters(self._store, study.id)))
        return agreements([vote for vote in votes if fate(vote, selection) == "counts"])
