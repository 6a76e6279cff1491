"""Raters: people, model judges and simulated raters, all in the same table."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.store import schema
from tutelage.people.store.engine import Store, insert_row, lock, record_event, value_of
from tutelage.people.store.exclusions import count_again, fills_no_places, has_people, people_in
from tutelage.people.validation import FieldError

RaterKind: TypeAlias = Literal["human", "llm", "simulated"]
Role: TypeAlias = Literal["rater", "reviewer", "owner"]
RaterState: TypeAlias = Literal["training", "active", "paused"]
DECIDING: tuple[Role, ...] = ("owner", "reviewer")
"""The roles whose judgement of an item decides its label. Such a judgement is `chosen_by` the role."""

LONGEST_NAME = 80
_PSEUDONYM = re.compile(r"rater-\d+", re.IGNORECASE)


class NameTaken(FieldError):
    """A name that a rater of the study has already; `name` is how that rater writes it."""

    def __init__(self, study: str, name: str) -> None:
        super().__init__(
            "name",
            Sentence(
                "'%(study)s' already has a rater named '%(name)s'; choose another name.",
                study=study,
                name=name,
            ),
        )
        self.name = name


@dataclass(frozen=True)
class Tallies:
    """Counts over a rater's latest answers without practice. `left_chosen`, `right_chosen` are by display,
    `longer_chosen`, `shorter_chosen` by characters; `active_ms` sums the `timed` answers."""

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
    """A rater of one study. `quota` limits the answers asked for; `excluded` is the reason why this rater's votes do
    not count at present; `consented`, `seen` and `forgotten` are milliseconds since the epoch; `agreed` is the number
    of the text that the rater agreed to. The answers of one who `fills_places` fill the places of items: of people, and
    of simulated raters while no person takes part. `identity` is how the place where an owner or reviewer signs in
    knows them, `contact` their e-mail address there, and `removed` the time at which their access was taken away."""

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
        """What stands for the rater outside the study."""
        return pseudonym_of(self.id, self.kind, self.name)


def folded(name: str) -> str:
    """A name without capitals, extra spaces or other forms of the same letters, as names are compared."""
    return unicodedata.normalize("NFKC", " ".join(name.split())).casefold()


def pseudonym_of(number: int, kind: str, name: str) -> str:
    """The rater's name outside the study: `rater-7` for a person; model judges and simulated raters keep their name,
    unless it reads like such a pseudonym."""
    keeps_name = kind != "human" and not _PSEUDONYM.fullmatch(name)
    return name if keeps_name else f"rater-{number}"


def _raters(people: sa.Exists) -> sa.Select:
    """Raters, where it is known whether people take part."""
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
    """Add a rater. With `training` the study's training items come first. `detail` describes a model judge or a
    simulated rater (model, hash of the prompt, …). Simulated raters give up their places to the first person who comes.

    Raises:
        NameTaken: there is a rater of that name, whatever its capitals.
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
    """`add_rater` within a transaction, which writes alone where `has_stand_ins`."""
    study, raters = lock(connection, schema.study, study_id), schema.rater
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise FieldError(
            "name",
            "A rater's name has 1 to %(most)s printable characters; %(name)s has not.",
            most=LONGEST_NAME,
            name=repr(name),
        )
    known = named_rater(connection, study_id, name)
    if known is not None:
        raise NameTaken(study["name"], known.name)
    comes = kind == "human" and role == "rater" and not has_people(connection, study_id)
    row = {
        "study_id": study_id, "name": name, "kind": kind, "role": role, "quota": quota, "created": now,
        "state": "training" if training else "active", "folded": folded(name),
        "detail": json.dumps(dict(detail or {}), ensure_ascii=False, sort_keys=True),
    }  # fmt: skip
    rater_id = insert_row(connection, raters, row)
    record_event(connection, study_id, now, actor, "rater_added", name, kind=kind, role=role)
    if comes:
        _free_places(connection, study_id, now)
    return load_rater(connection, rater_id)


def has_stand_ins(store: Store, study_id: int) -> bool:
    """Whether the study has simulated raters, whose places are freed with the first person: whoever adds one writes
    alone."""
    raters = schema.rater
    query = sa.select(raters.c.id).where(raters.c.study_id == study_id, raters.c.kind == "simulated").limit(1)
    with store.read() as connection:
        return connection.scalar(query) is not None


def crowd_kinds(raters: Iterable[Rater]) -> tuple[RaterKind, ...]:
    """The kinds of rater that fill places and make up the figures: people, and simulated raters while no person takes
    part."""
    people = any(rater.kind == "human" and rater.role == "rater" for rater in raters)
    return ("human",) if people else ("human", "simulated")


def _free_places(connection: sa.Connection, study_id: int, now: int) -> None:
    """Count the assignments of simulated raters no longer, because people take part from now on."""
    raters, given = schema.rater, schema.assignment
    simulated = sa.select(raters.c.id).where(raters.c.study_id == study_id, raters.c.kind == "simulated")
    if connection.scalar(simulated.limit(1)) is not None:
        count_again(connection, sa.and_(given.c.study_id == study_id, given.c.rater_id.in_(simulated)), now)


def get_rater(store: Store, rater_id: int) -> Rater:
    """Raises TutelageError where there is no such rater."""
    with store.read() as connection:
        return load_rater(connection, rater_id)


def load_rater(connection: sa.Connection, rater_id: int) -> Rater:
    """`get_rater` within a transaction."""
    return _one(connection, _RATER, rater_id)


def lock_rater(connection: sa.Connection, rater_id: int) -> Rater:
    """`load_rater`, and nobody else changes the rater until the transaction ends."""
    return _one(connection, _RATER_LOCKED, rater_id)


def touch_rater(connection: sa.Connection, rater_id: int, now: int) -> None:
    """Note the time at which the rater was last here."""
    connection.execute(_UPDATE, {"rater": rater_id, "seen": now})


def count_asked(connection: sa.Connection, rater: Rater, now: int) -> None:
    """Count one more question that the rater was asked."""
    connection.execute(_UPDATE, {"rater": rater.id, "seen": now, "asked": rater.asked + 1})


def set_quota(connection: sa.Connection, rater_id: int, quota: int) -> None:
    """Limit the answers that are asked of a rater."""
    connection.execute(_UPDATE, {"rater": rater_id, "quota": quota})


def finish_training(
    connection: sa.Connection, rater: Rater, passed: bool, now: int, **detail: object
) -> None:
    """End the training of a rater: with the real questions, or with a pause until an owner decides."""
    state = "active" if passed else "paused"
    connection.execute(_UPDATE, {"rater": rater.id, "state": state})
    action = "training_passed" if passed else "training_failed"
    record_event(connection, rater.study_id, now, rater.name, action, rater.name, **detail)


def add_tallies(connection: sa.Connection, rater: Rater, change: Mapping[str, int]) -> None:
    """Add to the counters of a rater that this transaction has locked; only those that change."""
    values = {name: getattr(rater.tallies, name) + count for name, count in change.items() if count}
    if values:
        connection.execute(_UPDATE, values | {"rater": rater.id})


def find_rater(store: Store, study_id: int, name: str) -> Rater | None:
    """The rater of that name, whatever its capitals, or None."""
    with store.read() as connection:
        return named_rater(connection, study_id, name)


def named_rater(connection: sa.Connection, study_id: int, name: str) -> Rater | None:
    """`find_rater` within a transaction: the rater whose name this is as it is written, else but for capitals."""
    query = _OF_STUDY.where(schema.rater.c.folded == folded(name))
    found = [_rater(row) for row in connection.execute(query, {"study": study_id}).mappings()]
    return next((rater for rater in found if rater.name == name), found[0] if found else None)


def free_name(connection: sa.Connection, study_id: int, names: Iterable[str]) -> str:
    """The first of the names that no rater of the study has."""
    return next(name for name in names if named_rater(connection, study_id, name) is None)


def list_raters(store: Store, study_id: int) -> tuple[Rater, ...]:
    """All raters of a study, in the order they came."""
    with store.read() as connection:
        return tuple(_rater(row) for row in connection.execute(_OF_STUDY, {"study": study_id}).mappings())


def change_rater(
    store: Store,
    rater_id: int,
    *,
    state: RaterState,
    quota: int | None = None,
    why: str = "",
    actor: str = "owner",
) -> Rater:
    """Pause a rater, let one go on, or change what is asked of one."""
    with store.write() as connection:
        before = lock(connection, schema.rater, rater_id)
        change = schema.rater.update().where(schema.rater.c.id == rater_id)
        connection.execute(change.values(state=state, quota=quota))
        study_id, name, detail = before["study_id"], before["name"], {"why": why, "quota": quota}
        record_event(connection, study_id, store.now(), actor, f"rater_{state}", name, **detail)
        return load_rater(connection, rater_id)


def consent(store: Store, rater_id: int, **shown: str) -> None:
    """Record that the rater agrees to the present text; `shown` tells how it was shown (`consents.agree`)."""
    now = store.now()
    with store.write() as connection:
        row = lock(connection, schema.rater, rater_id)
        of_study = sa.select(schema.study.c.consent).where(schema.study.c.id == row["study_id"])
        agreed = connection.scalar(of_study)
        connection.execute(_UPDATE, {"rater": rater_id, "consented": now, "agreed": agreed})
        record_event(
            connection, row["study_id"], now, row["name"], "consent", row["name"], text=agreed, **shown
        )


def _one(connection: sa.Connection, query: sa.Select, rater_id: int) -> Rater:
    row = connection.execute(query, {"id": rater_id}).mappings().one_or_none()
    if row is None:
        raise TutelageError(f"There is no rater {rater_id} in this database.")
    return _rater(row)


def _rater(row: sa.RowMapping) -> Rater:
    """The value of a row of `_raters`."""
    detail, fills_places = json.loads(row["detail"]), bool(row["fills_places"])
    return value_of(Rater, row, detail=detail, tallies=value_of(Tallies, row), fills_places=fills_places)
