"""Visits of raters from platforms: their end, and the payment table."""

import csv
import io
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tutelage.people.assignment import next_assignment
from tutelage.people.export import safe_cell
from tutelage.people.recruitment import Recruitment, find_platform
from tutelage.people.store.engine import Store
from tutelage.people.store.raters import Rater, get_rater, list_raters
from tutelage.people.store.studies import Study, study_of
from tutelage.people.store.visits import Visit, code_of, end_visit, list_visits, recruitment_of, visit_of
from tutelage.people.store.votes import Vote, list_votes


@dataclass(frozen=True)
class Finish:
    """The state of a rater's visit: `answered` of `wanted` answers, and the completion `code` and return `link` of the
    platform, empty during the visit."""

    visit: Visit
    platform: str
    answered: int
    wanted: int
    code: str
    link: str


def finish(store: Store, rater_id: int) -> Finish | None:
    """End the visit if it has all its answers or no questions are left; returns its state, None for a rater without a
    visit. Pausing the study or the rater does not end a visit."""
    visit = visit_of(store, rater_id)
    if visit is None:
        return None
    rater = get_rater(store, rater_id)
    study = study_of(store, rater.study_id)
    goes_on = study.state == "open" and rater.state == "active" and rater.excluded is None
    if visit.state == "active" and goes_on and next_assignment(store, rater_id) is None:
        visit = end_visit(store, rater_id, "complete") or visit
    return _finish_of(store, study, get_rater(store, rater_id), visit)


def _finish_of(store: Store, study: Study, rater: Rater, visit: Visit) -> Finish:
    platform, recruitment = find_platform(visit.platform), recruitment_of(store, study.id)
    answered, wanted = rater.tallies.answered - visit.base, (rater.quota or visit.base) - visit.base
    if recruitment is None or visit.state not in ("complete", "screened"):
        return Finish(visit, platform.words, answered, wanted, "", "")
    code = code_of(study, recruitment, visit)
    screened = visit.state == "screened"
    link = platform.way_back(code, recruitment.return_url, visit.submission, screened=screened)
    return Finish(visit, platform.words, answered, wanted, code, link)


PAID = (
    "rater", "platform", "worker", "task", "submission", "state", "started_utc", "ended_utc", "answers", "skipped",
    "practice", "active_minutes", "minutes", "code", "pay", "currency",
)  # fmt: skip
"""The columns of the payment table."""


def payments(store: Store, study_id: int) -> list[dict[str, object]]:
    """A row (columns `PAID`) per visit, and per person without a visit. Times are UTC, as 2026-05-19 13:11:45;
    `minutes` is the time from the start of the visit to its end or last answer; `pay` is for active time. Contains the
    platform's identifiers, which exports omit."""
    study, recruitment = study_of(store, study_id), recruitment_of(store, study_id)
    visits: dict[int, list[Visit]] = {}
    for visit in list_visits(store, study_id):
        visits.setdefault(visit.rater, []).append(visit)
    votes: dict[str, list[Vote]] = {}
    for vote in list_votes(store, study_id):
        votes.setdefault(vote.rater, []).append(vote)
    rows = []
    for rater in list_raters(store, study_id):
        if rater.kind == "human" and rater.role == "rater":
            rows += list(_rows_of(study, recruitment, rater, visits.get(rater.id, ()), votes.get(rater.name, ())))
    return rows


def payment_csv(store: Store, study_id: int) -> str:
    """`payments` as a table for spreadsheets; cells cannot act as formulas."""
    text = io.StringIO()
    writer = csv.DictWriter(text, PAID, restval="", lineterminator="\n")
    writer.writeheader()
    for row in payments(store, study_id):
        writer.writerow({k: safe_cell(v) if isinstance(v, str) else v for k, v in row.items()})
    return text.getvalue()


def _rows_of(
    study: Study, recruitment: Recruitment | None, rater: Rater, visits: Sequence[Visit], votes: Sequence[Vote]
) -> Iterable[dict[str, object]]:
    """The rows of one rater; a vote belongs to the last visit started before it."""
    if not visits:
        yield {"rater": rater.name, "started_utc": _moment(rater.created)} | _work(votes, recruitment, rater.created)
        return
    starts = [visit.started for visit in visits]
    for number, visit in enumerate(visits):
        own = [vote for vote in votes if bisect_right(starts, vote.created) - 1 == number]
        over = visit.state in ("complete", "screened") and recruitment is not None
        yield {
            "rater": rater.name, "platform": visit.platform, "worker": visit.worker, "task": visit.task,
            "submission": visit.submission, "state": visit.state,
            "started_utc": _moment(visit.started), "ended_utc": _moment(visit.ended),
            "code": code_of(study, recruitment, visit) if over and recruitment is not None else "",
        } | _work(own, recruitment, visit.started, visit.ended)  # fmt: skip


def _moment(milliseconds: int | None) -> str:
    """A time for spreadsheets, in UTC; empty if there is none."""
    if milliseconds is None:
        return ""
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _work(
    votes: Sequence[Vote], recruitment: Recruitment | None, started: int, ended: int | None = None
) -> dict[str, object]:
    real = [vote for vote in votes if vote.pool != "training"]
    active = sum(vote.active_ms or 0 for vote in votes) / 60_000
    last = ended or max((vote.created for vote in votes), default=started)
    return {
        "answers": sum(vote.verdict != "skip" for vote in real),
        "skipped": sum(vote.verdict == "skip" for vote in real),
        "practice": len(votes) - len(real),
        "active_minutes": round(active, 2),
        "minutes": round(max(0, last - started) / 60_000, 2),
        "pay": round(active / 60 * recruitment.pay, 2) if recruitment is not None else "",
        "currency": recruitment.currency if recruitment is not None else "",
    }
