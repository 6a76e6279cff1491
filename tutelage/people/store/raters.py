"""Raters: people, judge models and simulated raters, in one table."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.data.vote_rows import fold_name
from tutelage.people.languages import Sentence
from tutelage.people.store import schema
from tutelage.people.store.engine import Store, insert_row, lock, reading, record_event, value_of
from tutelage.people.store.exclusions import count_again, fills_no_places, has_people, people_in
from tutelage.people.validation import FieldError

RaterKind: TypeAlias = Literal["human", "llm", "simulated"]
Role: TypeAlias = Literal["rater", "reviewer", "owner"]
RaterState: TypeAlias = Literal["training", "active", "paused"]
DECIDING: tuple[Role, ...] = ("owner", "reviewer")
"""Roles whose judgement decides the label of an item. Such a judgement is `chosen_by` the role."""

LONGEST_NAME = 80
_PSEUDONYM = re.compile(r"rater-\d+", re.IGNORECASE)


class NameTaken(FieldError):
    """The name belongs to another rater of the study; `name` is as stored."""

    def __init__(self, study: str, name: str) -> None:
        super().__init__(
            "name",
            Sentence("'%(study)s' already has a rater named '%(name)s'; choose another name.", study=study, name=name),
        )
        self.name = name


@dataclass(frozen=True)
class Tallies:
    """Counts over a rater's latest answers without practice. `left_chosen`, `right_chosen` refer to display order,
    `longer_chosen`, `shorter_chosen` to characters; `active_ms` sums the `timed` answers."""

    answered: int = 0
    skipped: int = 0
    left_chosen: int = 0
    right_chosen: int = 0
    ties: int = 0
    longer_chosen: int = 0
    shorter_chosen: int = 0
    gold_seen: int = 0
    gold_right: int = 0
    repeat_seen: int = 0
    repeat_same: int = 0
    flagged: int = 0
    timed: int = 0
    active_ms: int = 0


@dataclass(frozen=True)
class Rater:
    """A rater of one study. `quota` is the maximum number of answers; `excluded` is the reason why the rater's votes do
    not count; `consented`, `seen` and `forgotten` are milliseconds since the epoch; `agreed` is the number of the
    consent text that the rater agreed to. Answers of raters with `fills_places` count towards the overlap: people and,
    in studies without people, simulated raters. For owners and reviewers with external sign-in, `identity` is the
    identifier at the provider and `contact` the e-mail address; `removed` is the time at which access was removed."""

    id: int
    study_id: int
    name: str
    kind: RaterKind
    role: Role
    state: RaterState
    detail: Mapping[str, object]
    quota: int | None
    asked: int
    consented: int | None
    excluded: str | None
    created: int
    seen: int | None
    tallies: Tallies
    fills_places: bool
    agreed: int = 0
    forgotten: int | None = None
    identity: str | None = None
    contact: str = ""
    removed: int | None = None

    @property
    def pseudonym(self) -> str:
        """Name of the rater in exports."""
        return pseudonym_of(self.id, self.kind, self.name)


def refuse_name(name: str) -> None:
    """Raises FieldError for a name that is empty, too long or not printable."""
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise FieldError(
            "name",
            "A rater's name has 1 to %(most)s printable characters; %(name)s has not.",
            most=LONGEST_NAME,
            name=repr(name[: 2 * LONGEST_NAME]),
        )


def pseudonym_of(number: int, kind: str, name: str) -> str:
    """Name of a rater in exports: `rater-7` for a person; judge models and simulated raters keep their name, unless it
    looks like such a pseudonym."""
    keeps_name = kind != "human" and not _PSEUDONYM.fullmatch(name)
    return name if keeps_name else f"rater-{number}"


def _raters(people: sa.Exists) -> sa.Select:
    """Select raters, given whether people take part."""
    return sa.select(schema.rater, sa.case((fills_no_places(people), 0), else_=1).label("fills_places"))


_study = sa.bindparam("study", type_=sa.Integer)
_OF_STUDY = _raters(people_in(_study)).where(schema.rater.c.study_id == _study).order_by(schema.rater.c.id)
_RATER = _raters(people_in(schema.rater.c.study_id)).where(schema.rater.c.id == sa.bindparam("id"))
_RATER_LOCKED = _RATER.with_for_update()
_UPDATE = schema.rater.update().where(schema.rater.c.id == sa.bindparam("rater"))


def add_rater(
    store: Store,
    study_id: int,
    name: str,
    *,
    kind: RaterKind = "human",
    role: Role = "rater",
    quota: int | None = None,
    training: bool = False,
    detail: Mapping[str, object] | None = None,
    actor: str = "owner",
) -> Rater:
    """Add a rater. With `training`, the study's practice questions come first. `detail` describes a judge model or a
    simulated rater (model, prompt hash, …). The first person in a study frees the places of its simulated raters.

    Raises:
        NameTaken: the study has a rater of that name (case-insensitive).
        FieldError: the name is empty, too long or not printable.
    """
    with store.write(alone=has_stand_ins(store, study_id)) as connection:
        return insert_rater(
            connection, study_id, name, now=store.now(), kind=kind, role=role, quota=quota, training=training,
            detail=detail, actor=actor,
        )  # fmt: skip


def insert_rater(
    connection: sa.Connection,
    study_id: int,
    name: str,
    *,
    now: int,
    kind: RaterKind = "human",
    role: Role = "rater",
    quota: int | None = None,
    training: bool = False,
    detail: Mapping[str, object] | None = None,
    actor: str = "owner",
) -> Rater:
    """`add_rater` within a transaction, which must be exclusive if `has_stand_ins`."""
    study, raters = lock(connection, schema.study, study_id), schema.rater
    refuse_name(name)
    namesake = find_rater(connection, study_id, name)
    if namesake is not None:
        raise NameTaken(study["name"], namesake.name)
    comes = kind == "human" and role == "rater" and not has_people(connection, study_id)
    row = {
        "study_id": study_id, "name": name, "kind": kind, "role": role, "quota": quota, "created": now,
        "state": "training" if training else "active", "folded": fold_name(name),
        "detail": json.dumps(dict(detail or {}), ensure_ascii=False, sort_keys=True),
    }  # fmt: skip
    rater_id = insert_row(connection, raters, row)
    record_event(connection, study_id, now, actor, "rater_added", name, kind=kind, role=role)
    if comes:
        _free_places(connection, study_id, now)
    return get_rater(connection, rater_id)


def has_stand_ins(store: Store, study_id: int) -> bool:
    """Whether the study has simulated raters, whose places the first person frees: adding a rater then needs an
    exclusive transaction."""
    raters = schema.rater
    query = sa.select(raters.c.id).where(raters.c.study_id == study_id, raters.c.kind == "simulated").limit(1)
    with store.read() as connection:
        return connection.scalar(query) is not None


def crowd_kinds(raters: Iterable[Rater]) -> tuple[RaterKind, ...]:
    """Kinds of raters that count towards the overlap and the statistics: people or, without people, simulated
    raters."""
    people = any(rater.kind == "human" and rater.role == "rater" for rater in raters)
    return ("human",) if people else ("human", "simulated")


def _free_places(connection: sa.Connection, study_id: int, now: int) -> None:
    """Stop counting the assignments of simulated raters, because people take part from now on."""
    raters, assignments = schema.rater, schema.assignment
    simulated = sa.select(raters.c.id).where(raters.c.study_id == study_id, raters.c.kind == "simulated")
    if connection.scalar(simulated.limit(1)) is not None:
        count_again(connection, sa.and_(assignments.c.study_id == study_id, assignments.c.rater_id.in_(simulated)), now)


@reading
def get_rater(connection: sa.Connection, rater_id: int) -> Rater:
    """Load a rater. Raises TutelageError if it does not exist."""
    return _one(connection, _RATER, rater_id)


def lock_rater(connection: sa.Connection, rater_id: int) -> Rater:
    """Load a rater, locked until the transaction ends."""
    return _one(connection, _RATER_LOCKED, rater_id)


def update_rater(connection: sa.Connection, rater_id: int, **values: object) -> None:
    """Set columns of a rater: `seen` at each activity, `asked` with each question, the `quota`, …"""
    connection.execute(_UPDATE, values | {"rater": rater_id})


def finish_training(connection: sa.Connection, rater: Rater, passed: bool, now: int, **detail: object) -> None:
    """End the training of a rater: with the production questions, or a pause until an owner decides."""
    state = "active" if passed else "paused"
    update_rater(connection, rater.id, state=state)
    action = "training_passed" if passed else "training_failed"
    record_event(connection, rater.study_id, now, rater.name, action, rater.name, **detail)


def add_tallies(connection: sa.Connection, rater: Rater, change: Mapping[str, int]) -> None:
    """Add to the non-zero tallies of a rater locked by this transaction."""
    values = {name: getattr(rater.tallies, name) + count for name, count in change.items() if count}
    if values:
        update_rater(connection, rater.id, **values)


@reading
def find_rater(connection: sa.Connection, study_id: int, name: str) -> Rater | None:
    """Rater with this name, or None; an exact match takes precedence over a case-insensitive one."""
    query = _OF_STUDY.where(sa.or_(schema.rater.c.folded == fold_name(name), schema.rater.c.name == name))
    matches = [_rater(row) for row in connection.execute(query, {"study": study_id}).mappings()]
    return next((rater for rater in matches if rater.name == name), matches[0] if matches else None)


def free_name(connection: sa.Connection, study_id: int, names: Iterable[str]) -> str:
    """First of the names that no rater of the study has."""
    return next(name for name in names if find_rater(connection, study_id, name) is None)


def list_raters(store: Store, study_id: int) -> tuple[Rater, ...]:
    """All raters of a study, in the order of joining."""
    with store.read() as connection:
        return tuple(_rater(row) for row in connection.execute(_OF_STUDY, {"study": study_id}).mappings())


def change_rater(
    store: Store, rater_id: int, *, state: RaterState, quota: int | None = None, why: str = "", actor: str = "owner"
) -> Rater:
    """Pause or resume a rater, or change the quota."""
    with store.write() as connection:
        before = lock(connection, schema.rater, rater_id)
        update_rater(connection, rater_id, state=state, quota=quota)
        study_id, name, detail = before["study_id"], before["name"], {"why": why, "quota": quota}
        record_event(connection, study_id, store.now(), actor, f"rater_{state}", name, **detail)
        return get_rater(connection, rater_id)


def consent(store: Store, rater_id: int, **shown: str) -> None:
    """Record the rater's agreement to the current text; `shown` describes the text as shown (`consents.agree`)."""
    now = store.now()
    with store.write() as connection:
        row = lock(connection, schema.rater, rater_id)
        of_study = sa.select(schema.study.c.consent).where(schema.study.c.id == row["study_id"])
        agreed = connection.scalar(of_study)
        update_rater(connection, rater_id, consented=now, agreed=agreed)
        record_event(connection, row["study_id"], now, row["name"], "consent", row["name"], text=agreed, **shown)


def _one(connection: sa.Connection, query: sa.Select, rater_id: int) -> Rater:
    row = connection.execute(query, {"id": rater_id}).mappings().one_or_none()
    if row is None:
        raise TutelageError(f"There is no rater {rater_id} in this database.")
    return _rater(row)


def _rater(row: sa.RowMapping) -> Rater:
    """Convert a row of `_raters`."""
    detail, fills_places = json.loads(row["detail"]), bool(row["fills_places"])
    return value_of(Rater, row, detail=detail, tallies=value_of(Tallies, row), fills_places=fills_places)
