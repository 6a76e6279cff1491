"""The owners' inbox: notices of flags, skips, comments, failed practice, disagreements, failing models, complete rounds
and low agreement, with the minimum that owners set.

A notice is written in the transaction that causes it. Only answers of people create notices, since a model judge gives
a reason for everything. An answer has at most one notice: for its flags, else for the skip, else for its reason.
Changing the answer updates the notice, or closes it if nothing is left to report.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from tutelage.people.answers import Answer
from tutelage.people.languages import Sentence, Share
from tutelage.people.store import schema
from tutelage.people.store.additions import messages_from_text
from tutelage.people.store.assignments import Lease
from tutelage.people.store.engine import Connection, Store, insert_row, lock, record_event, several
from tutelage.people.store.items import ItemCounts, LockedItem
from tutelage.people.store.judgements import JudgementRow
from tutelage.people.store.raters import Rater, get_rater, pseudonym_of
from tutelage.people.validation import FieldError, StudyError, refuse_unstorable

NoticeKind: TypeAlias = Literal[
    "flag", "skip", "practice", "note", "reason", "disagreement", "model", "round", "agreement"
]
LONGEST_NOTE = 2_000
RECOVERY = 0.02
"""Margin above the minimum that the agreement must reach before another notice."""
QUIET = ("reason",)
"""Kinds that are listed only on request: reasons of ordinary answers, which some studies ask for."""

_notices, _items, _raters, _judgements = schema.notice, schema.item, schema.rater, schema.judgement
_assignments, _alarms = schema.assignment, schema.alarm
_NOTICES = (
    sa.select(_notices, _items.c.key, schema.prompt.c.messages, _raters.c.name)
    .add_columns(_raters.c.kind.label("rater_kind"))
    .add_columns(_judgements.c.verdict, _judgements.c.flags, _judgements.c.reason)
    .outerjoin(_items, _items.c.id == _notices.c.item_id)
    .outerjoin(schema.prompt, schema.prompt.c.id == _items.c.prompt_id)
    .outerjoin(_raters, _raters.c.id == _notices.c.rater_id)
    .outerjoin(_judgements, _judgements.c.id == _notices.c.judgement_id)
)
_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], Sentence]] = {
    "practice": lambda facts: Sentence("%(right)s of %(seen)s right", **facts),
    "model": lambda facts: Sentence("%(model)s: %(why)s", **facts),
    "round": lambda facts: Sentence("round %(round)s is full: its %(items)s items have all their answers", **facts),
    "agreement": lambda facts: Sentence(
        "agreement is %(agreement)s, below %(bound)s, on %(items)s items with two raters or more",
        **{**facts, "agreement": Share(facts["agreement"], 1), "bound": Share(facts["bound"])},
    ),
}
"""Texts of automatic notices, from the stored facts."""


@dataclass(frozen=True)
class Notice:
    """An entry of the inbox. `item` is the key of the item and `asked` the last turn of its prompt, `rater` the rater's
    id and `name` the name; None or empty if not applicable. `flags` and `text` come from the rater. `closed` is the
    time of closing (milliseconds since the epoch), None while open. `facts` are the numbers of an automatic notice."""

    id: int
    kind: NoticeKind
    item: str | None
    asked: str
    rater: int | None
    name: str
    verdict: str
    flags: tuple[str, ...]
    text: str
    created: int
    closed: int | None
    closed_by: str | None
    facts: Mapping[str, object] = field(default_factory=dict)
    rater_kind: str = ""

    @property
    def pseudonym(self) -> str:
        """Pseudonym of the rater in exports; empty for a notice without a rater."""
        return "" if self.rater is None else pseudonym_of(self.rater, self.rater_kind, self.name)


def notice_answer(
    connection: Connection,
    rater: Rater,
    lease: Lease,
    answer: Answer,
    judgement: JudgementRow,
    before: JudgementRow | None,
    now: int,
) -> None:
    """Create or update the notice of an answer that contains more than a verdict; `before` is the previous revision."""
    if rater.kind != "human" or rater.role != "rater":
        return
    kind = _kind_of(answer)
    mine = sa.and_(_notices.c.rater_id == rater.id, _notices.c.judgement_id == (before.id if before else 0))
    notice_id = connection.scalar(sa.select(_notices.c.id).where(mine)) if before is not None else None
    if notice_id is not None:
        taken_back: dict[str, object] = {"closed": now, "closed_by": rater.name}
        again = {"kind": kind, "judgement_id": judgement.id, "closed": None, "closed_by": None}
        change = _notices.update().where(_notices.c.id == notice_id)
        connection.execute(change.values(**(taken_back if kind is None else again)))
    elif kind is not None:
        item, judgement_id = lease.item_id, judgement.id
        insert_notice(connection, lease.study_id, kind, now, item_id=item, rater_id=rater.id, judgement_id=judgement_id)


def notice_disagreement(connection: Connection, lease: Lease, item: LockedItem, counts: ItemCounts, now: int) -> None:
    """Add a notice, once, for a complete item with undecided answers: equal votes, or maximum strength for both
    sides."""
    a, b = counts.a_votes, counts.b_votes
    if item.pool != "production" or not (a and b) or counts.answered < item.target:
        return
    if a != b and not _is_opposed(connection, lease):
        return
    mine = sa.and_(_notices.c.item_id == lease.item_id, _notices.c.kind == "disagreement")
    if connection.scalar(sa.select(_notices.c.id).where(mine).limit(1)) is None:
        insert_notice(connection, lease.study_id, "disagreement", now, item_id=lease.item_id)


def settle_disagreement(connection: Connection, item_id: int, by: str, now: int) -> None:
    """Close the disagreement notices of an item adjudicated by an owner."""
    mine = sa.and_(_notices.c.item_id == item_id, _notices.c.kind == "disagreement", _notices.c.closed.is_(None))
    connection.execute(_notices.update().where(mine).values(closed=now, closed_by=by))


def notice_practice(connection: Connection, rater: Rater, questions: int, right: int, now: int) -> None:
    """Add a notice of a failed practice: the rater waits for an owner's decision."""
    if rater.kind == "human":
        text = json.dumps({"right": right, "seen": questions})
        insert_notice(connection, rater.study_id, "practice", now, rater_id=rater.id, text=text)


def notice_model(store: Store, study_id: int, model: str, why: str) -> None:
    """Add a notice of a model that failed to respond to raters, unless one is open already."""
    mine = sa.and_(_notices.c.study_id == study_id, _notices.c.kind == "model", schema.WAITING)
    with store.write(lasting=False) as connection:
        waiting = connection.scalars(sa.select(_notices.c.text).where(mine))
        if all(json.loads(text)["model"] != model for text in waiting):
            text = json.dumps({"model": model, "why": why}, ensure_ascii=False)
            insert_notice(connection, study_id, "model", store.now(), text=text)


def write_note(store: Store, rater_id: int, text: str) -> None:
    """Add a note from a rater to the owners. Raises TutelageError if the note is empty or too long."""
    if not text.strip() or len(text) > LONGEST_NOTE:
        raise StudyError(
            "A note has 1 to %(most)s characters; this one has %(length)s.", most=LONGEST_NOTE, length=len(text)
        )
    refuse_unstorable(text, Sentence("The note"))
    with store.write() as connection:
        rater = get_rater(connection, rater_id)
        insert_notice(connection, rater.study_id, "note", store.now(), rater_id=rater.id, text=text.strip())


def count_notices(store: Store, study_id: int) -> Mapping[str, int]:
    """Number of open notices by kind; kinds without any are omitted."""
    query = sa.select(_notices.c.kind, sa.func.count().label("number")).where(
        _notices.c.study_id == study_id, schema.WAITING
    )
    with store.read() as connection:
        return {row.kind: row.number for row in connection.execute(query.group_by(_notices.c.kind))}


def list_notices(
    store: Store,
    study_id: int,
    *,
    kind: str | None = None,
    closed: bool = False,
    rater: int | None = None,
    item: str | None = None,
    after: int = 0,
    limit: int = 100,
    offset: int = 0,
) -> tuple[Notice, ...]:
    """Open or closed notices, newest first; of one kind (default: all but `QUIET`), one rater, one item, with ids above
    `after`."""
    query = (
        _NOTICES.where(_notices.c.study_id == study_id, _notices.c.id > after)
        .where(_notices.c.closed.is_not(None) if closed else schema.WAITING)
        .order_by(_notices.c.id.desc())
    )
    query = query.where(_is_of(kind))
    if rater is not None:
        query = query.where(_notices.c.rater_id == rater)
    if item is not None:
        query = query.where(_items.c.key == item)
    with store.read() as connection:
        rows = connection.execute(query.limit(limit).offset(offset)).mappings()
        return tuple(_notice(row) for row in rows)


def load_notice(connection: Connection, number: int) -> Notice:
    """Load a notice, open or closed."""
    return _notice(connection.execute(_NOTICES.where(_notices.c.id == number)).mappings().one())


def close_notices(
    store: Store, study_id: int, numbers: Sequence[int] | None = None, *, kind: str | None = None, actor: str = "owner"
) -> int:
    """Close these notices, or all open ones of one kind (default: all but `QUIET`); returns how many were closed."""
    mine = sa.and_(_notices.c.study_id == study_id, schema.WAITING)
    mine = sa.and_(mine, _is_of(kind) if numbers is None else _notices.c.id.in_(numbers))
    now = store.now()
    with store.write() as connection:
        change = _notices.update().where(mine).values(closed=now, closed_by=actor)
        count = connection.execute(change).rowcount
        if count:
            record_event(connection, study_id, now, actor, "notices_closed", several(count, "notices"), kind=kind)
        return count


def reopen_notice(store: Store, study_id: int, number: int, *, actor: str = "owner") -> None:
    """Reopen a closed notice."""
    mine = sa.and_(_notices.c.study_id == study_id, _notices.c.id == number)
    with store.write() as connection:
        change = _notices.update().where(mine, _notices.c.closed.is_not(None))
        if connection.execute(change.values(closed=None, closed_by=None)).rowcount:
            record_event(connection, study_id, store.now(), actor, "notice_reopened", f"notice {number}")


def _is_of(kind: str | None) -> sa.ColumnElement[bool]:
    return _notices.c.kind.not_in(QUIET) if kind is None else _notices.c.kind == kind


def _kind_of(answer: Answer) -> NoticeKind | None:
    if answer.flags:
        return "flag"
    if answer.choice == "skip":
        return "skip"
    return "reason" if answer.reason.strip() else None


def _is_opposed(connection: Connection, lease: Lease) -> bool:
    """Whether both sides have a vote of maximum strength."""
    query = (
        sa.select(_judgements.c.verdict)
        .join(_assignments, _assignments.c.id == _judgements.c.assignment_id)
        .where(_judgements.c.item_id == lease.item_id, _judgements.c.latest == 1, _judgements.c.repeat == 0)
        .where(_assignments.c.counted == 1, _judgements.c.strength >= lease.screen.scale)
        .distinct()
    )
    return lease.screen.scale > 1 and {"a", "b"} <= set(connection.scalars(query))


def insert_notice(
    connection: Connection,
    study_id: int,
    kind: NoticeKind,
    now: int,
    *,
    item_id: int | None = None,
    rater_id: int | None = None,
    judgement_id: int | None = None,
    text: str = "",
) -> None:
    row = {"study_id": study_id, "kind": kind, "item_id": item_id, "rater_id": rater_id}
    insert_row(connection, _notices, row | {"judgement_id": judgement_id, "text": text, "created": now})


def _notice(row: sa.RowMapping) -> Notice:
    messages = messages_from_text(row["messages"]) if row["messages"] else ()
    text, facts = row["reason"] or row["text"], {}
    if row["kind"] in _TEXTS and row["text"]:
        facts = json.loads(row["text"])
        text = _TEXTS[row["kind"]](facts)
    return Notice(
        row["id"], row["kind"], row["key"], messages[-1].content if messages else "", row["rater_id"],
        row["name"] or "", row["verdict"] or "", tuple(json.loads(row["flags"] or "[]")), text, row["created"],
        row["closed"], row["closed_by"], facts, row["rater_kind"] or "",
    )  # fmt: skip


@dataclass(frozen=True)
class Alarm:
    """Minimum agreement of a study, as a share; `low` if owners have been notified and it has not recovered since."""

    agreement: float
    low: bool


def notice_round(store: Store, study_id: int, number: int, items: int) -> bool:
    """Add a notice of a complete round, once per number of items; returns whether one was added."""
    text = json.dumps({"round": number, "items": items})
    mine = sa.and_(_notices.c.study_id == study_id, _notices.c.kind == "round", _notices.c.text == text)
    with store.read() as connection:
        if connection.scalar(sa.select(_notices.c.id).where(mine).limit(1)) is not None:
            return False
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        if connection.scalar(sa.select(_notices.c.id).where(mine).limit(1)) is not None:
            return False
        insert_notice(connection, study_id, "round", store.now(), text=text)
        return True


def set_alarm(store: Store, study_id: int, agreement: float | None, *, actor: str = "owner") -> None:
    """Set the minimum agreement, a share; None disables the alarm. Raises FieldError if the share is not above 0 and at
    most 1."""
    if agreement is not None and not 0 < agreement <= 1:
        raise FieldError(
            "bound", "The least agreement is %(given)s; it is a share above 0 and at most 1.", given=float(agreement)
        )
    now = store.now()
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        connection.execute(_alarms.delete().where(_alarms.c.study_id == study_id))
        if agreement is not None:
            insert_row(connection, _alarms, {"study_id": study_id, "agreement": agreement, "low": 0})
        record_event(connection, study_id, now, actor, "alarm_set", "agreement", bound=agreement)


def alarm_of(store: Store, study_id: int) -> Alarm | None:
    """Alarm of a study, or None."""
    query = sa.select(_alarms).where(_alarms.c.study_id == study_id)
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else Alarm(row["agreement"], bool(row["low"]))


def notice_agreement(store: Store, study_id: int, agreement: float, items: int) -> bool:
    """Add a notice if the agreement has fallen below the study's alarm, once until it rises by `RECOVERY` above the
    threshold; returns whether one was added."""
    alarm = alarm_of(store, study_id)
    if alarm is None or (agreement < alarm.agreement and alarm.low):
        return False
    falls, rises = agreement < alarm.agreement, alarm.low and agreement >= alarm.agreement + RECOVERY
    if not falls and not rises:
        return False
    mine = sa.and_(_alarms.c.study_id == study_id, _alarms.c.agreement == alarm.agreement)
    with store.write() as connection:
        change = _alarms.update().where(mine, _alarms.c.low == int(alarm.low)).values(low=int(falls))
        if not connection.execute(change).rowcount or not falls:
            return False
        facts = {"agreement": agreement, "bound": alarm.agreement, "items": items}
        insert_notice(connection, study_id, "agreement", store.now(), text=json.dumps(facts))
        return True
