"""Erasure of raters, on request or at the end of their retention: the only module that erases raters' data.

Erased everywhere in the study: the name, the platform's identifiers, reasons, notes, better responses written by the
rater, browser types, sessions and personal links, and the free text about the rater in the audit trail. Votes and
marked words are kept under a pseudonym or erased too, according to the consent text that the rater agreed to, as are
live conversations, which the votes refer to; those of users of a served model are always erased. The audit trail
records that a rater was erased, but not who.

Afterwards the file is vacuumed, because a database keeps deleted data until it reuses the space. The same data is
erased in the database's backups, or the backups are deleted on request. Damaged or outdated backups, copies beside the
database, and existing files of `collect backup` are reported. Export files, and copies elsewhere, are out of reach.

The steps after the change of the database are recorded as an `erasure` in the same transaction: after a crash,
`finish_forgetting` completes them at the next start. An erasure identifies the rater by an HMAC of the name, not by the
name.
"""

import json
import logging
import threading
from dataclasses import dataclass
from itertools import chain, count

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.data.vote_rows import fold_name
from tutelage.people.answers import map_displayed, map_texts, texts_in
from tutelage.people.store import schema
from tutelage.people.store.backup import (
    ARCHIVED,
    Mark,
    archives_since,
    backups_since,
    copies_beside,
    delete_backups,
    erase_in_backups,
    mark_of,
    rewrite_file,
)
from tutelage.people.store.completions import USE, drop_texts, erase_completions, is_user
from tutelage.people.store.consents import consent_of, raters_due
from tutelage.people.store.conversations import erase_conversations
from tutelage.people.store.engine import DAY_MS, Connection, Store, insert_row, record_event
from tutelage.people.store.exclusions import count_again
from tutelage.people.store.raters import Rater, free_name, lock_rater
from tutelage.people.validation import StudyError

LOOK_SECONDS = 3_600
_log = logging.getLogger(__name__)
_raters, _judgements, _assignments = schema.rater, schema.judgement, schema.assignment
_erasures = schema.erasure
_notices, _events, _exports = schema.notice, schema.event, schema.export
_WITH_WORDS = (
    "rater", "judgement", "notice", "event", "visit", "session", "invite", "export", "prompt", "response",
    "completion",
)  # fmt: skip
_FREE_TEXT = ("why", "reason", "note")
_STANDS_IN = "forgotten rater"
"""Replacement for reasons that owners gave about the rater."""


@dataclass(frozen=True)
class Forgotten:
    """Result of an erasure: the `name` that replaces the rater's, whether votes were erased, `backups` and copies that
    still contain the rater (with the reason), the number of `exports` that may, and whether the file was `rewritten`
    (impossible while other processes read it)."""

    name: str
    erased: bool
    backups: tuple[str, ...]
    exports: int
    rewritten: bool


def forget(store: Store, rater_id: int, *, backups_too: bool = False, actor: str = "owner") -> Forgotten:
    """Erase a rater; with `backups_too`, delete the backups created since the rater joined.

    Raises:
        TutelageError: the rater does not exist, is not a person, is a member with access, or was erased before.
        Unavailable: the database or a backup cannot be written at the moment.
    """
    with store.write(alone=True) as connection:
        rater = lock_rater(connection, rater_id)
        if rater.kind != "human" or (rater.role != "rater" and rater.removed is None):
            raise StudyError(
                "“%(name)s” is an owner, a reviewer or not a person; only raters who are people can be forgotten, "
                "and owners and reviewers only after their access was taken away.",
                name=rater.name,
            )
        if rater.forgotten is not None:
            raise StudyError("“%(name)s” was forgotten already.", name=rater.name)
        now = store.now()
        erased = _erases_votes(connection, rater)
        plain = f"forgotten {rater.id}"
        name = free_name(connection, rater.study_id, chain([plain], (f"{plain}-{n}" for n in count(1))))
        mark = mark_of(connection, rater)
        by = "" if actor == rater.name else actor
        exports = _erase(connection, rater, name, by, now, erased=erased)
        outcome = {"votes": "erased" if erased else "kept"}
        record_event(connection, rater.study_id, now, by or name, "forgotten", name, **outcome)
        row = {"study_id": rater.study_id, "rater_id": rater.id, "mark": mark, "name": name, "actor": by}
        row |= {"votes_too": int(erased), "backups_too": int(backups_too), "since": rater.created}
        insert_row(connection, _erasures, row | {"exports": exports, "created": now})
    (finished,) = finish_forgetting(store, rater.study_id, only=rater_id)
    return finished


def _erases_votes(connection: Connection, rater: Rater) -> bool:
    """Whether the rater's votes and conversations are erased: according to the consent, and always those of a user of
    a served model, who wrote the texts."""
    agreed = consent_of(connection, rater.study_id, rater.agreed)
    return agreed.votes == "erase" or rater.detail.get("origin") == USE or is_user(connection, rater.id)


def finish_forgetting(store: Store, study_id: int, *, only: int | None = None) -> tuple[Forgotten, ...]:
    """Complete the pending erasures of a study, or `only` that of one rater. Idempotent. Raises Unavailable if a backup
    cannot be written or deleted at the moment; it is retried at the next start."""
    query = sa.select(_erasures).where(_erasures.c.study_id == study_id).order_by(_erasures.c.id)
    if only is not None:
        query = query.where(_erasures.c.rater_id == only)
    with store.read() as connection:
        rows = connection.execute(query).mappings().all()
    return tuple(_finish(store, row) for row in rows)


def _finish(store: Store, row: sa.RowMapping) -> Forgotten:
    """Erase in the backups a rater erased from the database, and delete the erasure."""
    mark, erased = Mark(row["rater_id"], row["study_id"], row["mark"]), bool(row["votes_too"])
    rewritten = _rewrite(store)
    backups = backups_since(store, row["since"])
    if row["backups_too"]:
        delete_backups(store, backups)
        backups = ()

    def erase(connection: Connection, rater: Rater) -> None:
        _erase(connection, rater, row["name"], row["actor"], row["created"], erased=erased)

    left = erase_in_backups(store, backups, mark, erase)
    archives = archives_since(store, row["study_id"], row["since"])
    beside = (copy for copy in copies_beside(store, mark) if copy not in archives)
    remaining = (*(f"{place} ({why})" for place, why in left.items()), *beside, *archives)
    with store.write() as connection:
        connection.execute(_erasures.delete().where(_erasures.c.id == row["id"]))
    return Forgotten(row["name"], erased, remaining, row["exports"], rewritten)


def _erase(connection: Connection, rater: Rater, name: str, actor: str, now: int, *, erased: bool) -> int:
    """Replace the rater by `name`, in the database or a backup; returns the number of exports since the rater
    joined."""
    _forget_words(connection, rater, actor, now)
    _forget_doors(connection, rater)
    _rewrite_trail(connection, rater, name, erased=erased)
    if erased:
        erase_conversations(connection, rater.id, now)
    erase_completions(connection, rater.id)
    exports = _rewrite_exports(connection, rater)
    _release(connection, rater, now, erased=erased)
    _rename(connection, rater, name, now, erased=erased)
    return exports


def _erased(text: str) -> str:
    return ""


def _forget_words(connection: Connection, rater: Rater, actor: str, now: int) -> None:
    mine = _judgements.c.rater_id == rater.id
    connection.execute(_judgements.update().where(mine).values(reason="", client="", correction=None))
    query = sa.select(_judgements.c.id, _judgements.c.content, _judgements.c.displayed)
    change = _judgements.update().where(_judgements.c.id == sa.bindparam("judgement"))
    for row in connection.execute(query.where(mine, _judgements.c.content.is_not(None))).all():
        content, displayed = json.loads(row.content), json.loads(row.displayed)
        if texts_in(content):
            values = {"content": map_texts(content, _erased), "displayed": map_displayed(displayed, _erased)}
            texts = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
            connection.execute(change.values(**texts), {"judgement": row.id})
    connection.execute(
        _judgements.update().where(mine, _judgements.c.excluded.is_not(None)).values(excluded=_STANDS_IN)
    )
    notes = _notices.update().where(_notices.c.rater_id == rater.id)
    connection.execute(notes.values(text="", closed=now, closed_by=actor))


def _forget_doors(connection: Connection, rater: Rater) -> None:
    for table in (schema.session, schema.invite):
        connection.execute(table.delete().where(table.c.rater_id == rater.id))
    visits = schema.visit.update().where(schema.visit.c.rater_id == rater.id)
    connection.execute(visits.values(worker="", task="", submission=""))
    active = visits.where(schema.visit.c.state == "active")
    connection.execute(active.values(state="left"))


def _rewrite_trail(connection: Connection, rater: Rater, name: str, *, erased: bool) -> None:
    """Replace the rater's name in the audit trail by the pseudonym, and erase free text about the rater."""
    mine = _events.c.study_id == rater.study_id
    change = _events.update().where(mine)
    about = sa.select(_events.c.id, _events.c.detail, _events.c.action).where(mine, _events.c.subject == rater.name)
    for row in connection.execute(about).all():
        detail = json.loads(row.detail)
        if row.action in _NOT_ABOUT_RATERS or detail.get("scope", "rater") != "rater":
            continue
        redacted = {key: _STANDS_IN if key in _FREE_TEXT and value else value for key, value in detail.items()}
        values = {"subject": name, "detail": json.dumps(redacted, ensure_ascii=False, sort_keys=True)}
        connection.execute(change.where(_events.c.id == row.id).values(**values))
    connection.execute(change.where(_events.c.actor == rater.name).values(actor=name))
    _rewrite_exclusions(connection, rater, erased=erased)


def _rewrite_exclusions(connection: Connection, rater: Rater, *, erased: bool) -> None:
    """Erase the reasons for exclusions of single judgements; exclusions of erased judgements are voided."""
    about = sa.select(_events.c.id, _events.c.action, _events.c.subject, _events.c.detail).where(
        _events.c.study_id == rater.study_id, _events.c.action.in_(("exclude", "include"))
    )
    numbers = _numbers_of_judgements(connection, rater)
    for row in connection.execute(about).all():
        detail = json.loads(row.detail)
        if detail["scope"] != "judgement" or row.subject not in numbers:
            continue
        detail["reason"] = _STANDS_IN if detail["reason"] else detail["reason"]
        values = {
            "action": f"{row.action}_erased" if erased else row.action,
            "detail": json.dumps(detail, ensure_ascii=False, sort_keys=True),
        }
        connection.execute(_events.update().where(_events.c.id == row.id).values(**values))


_NOT_ABOUT_RATERS = (
    "study_created", "study_version", "plan_changed", "study_open", "study_paused", "study_closed", "items_added",
    "recruiting_changed", "votes_imported", "consent_version", "round_opened", ARCHIVED,
)  # fmt: skip
"""Actions whose subject is a study, a file or a number, which may look like a rater's name."""


def _numbers_of_judgements(connection: Connection, rater: Rater) -> set[str]:
    return set(map(str, connection.scalars(sa.select(_judgements.c.id).where(_judgements.c.rater_id == rater.id))))


def _rewrite_exports(connection: Connection, rater: Rater) -> int:
    """Erase reasons in stored manifests; returns the number of exports since the rater joined."""
    mine = sa.and_(_exports.c.study_id == rater.study_id, _exports.c.created >= rater.created)
    rows = connection.execute(sa.select(_exports.c.id, _exports.c.manifest).where(mine)).all()
    numbers = _numbers_of_judgements(connection, rater)
    for row in rows:
        manifest = json.loads(row.manifest)
        reasons = manifest["excluded"]["judgement"]
        reasons |= dict.fromkeys(reasons.keys() & numbers, _STANDS_IN)
        raters = manifest["excluded"]["rater"]
        if rater.pseudonym in raters:
            raters[rater.pseudonym] = _STANDS_IN
        text = json.dumps(manifest, ensure_ascii=False)
        connection.execute(_exports.update().where(_exports.c.id == row.id).values(manifest=text))
    return len(rows)


def _release(connection: Connection, rater: Rater, now: int, *, erased: bool) -> None:
    """Release the rater's open assignments, and the answered ones if votes are erased."""
    mine = _assignments.c.rater_id == rater.id
    given_back = mine if erased else sa.and_(mine, _assignments.c.state == "leased")
    if erased:
        unlinked = _notices.update().where(_notices.c.rater_id == rater.id)
        connection.execute(unlinked.values(judgement_id=None))
        connection.execute(_judgements.delete().where(_judgements.c.rater_id == rater.id))
    connection.execute(_assignments.update().where(given_back).values(state="released", closed=now))
    count_again(connection, mine, now)


def _rename(connection: Connection, rater: Rater, name: str, now: int, *, erased: bool) -> None:
    values: dict[str, object] = {
        "name": name, "folded": fold_name(name), "detail": "{}", "state": "paused", "quota": None, "seen": None,
        "forgotten": now, "identity": None, "contact": "",
    }  # fmt: skip
    if rater.excluded is not None:
        values["excluded"] = _STANDS_IN
    if erased:
        values |= dict.fromkeys(schema.TALLIES, 0)
    connection.execute(_raters.update().where(_raters.c.id == rater.id).values(**values))


def _rewrite(store: Store) -> bool:
    """Vacuum the database, so that it contains no deleted data; returns whether that succeeded."""
    if store.path is not None:
        return rewrite_file(store.path)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in _WITH_WORDS:
            connection.exec_driver_sql(f"VACUUM {table}")
    return True


def forget_due(store: Store, study_id: int, *, actor: str = "retention") -> tuple[Forgotten, ...]:
    """Erase every rater whose retention period is over."""
    return tuple(forget(store, rater.id, actor=actor) for rater in raters_due(store, study_id))


class Retention:
    """Background thread that completes erasures and erases raters who are due, at the start and every hour; with
    `completion_days`, it also deletes completions of a served model from before that many days."""

    def __init__(self, store: Store, study_id: int, *, completion_days: float | None = None) -> None:
        self._store, self._study, self._days = store, study_id, completion_days
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._work, daemon=True, name="retention").start()

    def close(self) -> None:
        self._ended.set()

    def look(self) -> None:
        """Run once."""
        try:
            begun = finish_forgetting(self._store, self._study)
            if self._days is not None:
                drop_texts(self._store, self._study, self._store.now() - round(self._days * DAY_MS))
            for each in (*begun, *forget_due(self._store, self._study)):
                _log.warning("%s was forgotten; backups that hold the rater: %s", each.name, each.backups or "none")
        except TutelageError as error:  # the database is busy: retried at the next run
            _log.warning("Erasing raters at the end of their retention failed: %s", error)

    def _work(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(LOOK_SECONDS)
