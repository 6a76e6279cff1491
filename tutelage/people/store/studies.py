"""Studies, their questions, and their plans.

The question as shown to raters (text, scale, criteria, guidelines) is versioned: a change adds a version, and every
judgement refers to its version. The plan (overlap, rates, policy) may change at any time without a new version; both
kinds of change record an event.
"""

import functools
import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.answers import check_categories
from tutelage.people.kinds import DEFAULT, find_kind
from tutelage.people.kinds.kind import Kind
from tutelage.people.languages import ENGLISH, check_languages
from tutelage.people.settings import Plan
from tutelage.people.store import schema
from tutelage.people.store.engine import Store, insert_row, lock, reading, record_event, value_of
from tutelage.people.validation import FieldError

State: TypeAlias = Literal["open", "paused", "closed"]
SHUFFLES = 1 << 56
"""Upper bound of the random numbers by which items are shuffled."""


@dataclass(frozen=True)
class Presentation:
    """The question as shown to raters. The kind defines `scale` and `criteria`: for a pair, the maximum strength and
    the rows below the bar. `guidelines` is Markdown. `corrections`: raters may write better responses; `spans`:
    categories of words they may mark."""

    question: str = str(DEFAULT.traits.question)
    scale: int = 3
    criteria: tuple[str, ...] = ()
    guidelines: str = ""
    corrections: bool = False
    spans: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_categories(self.spans)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Study:
    """A study in its current state. `secret` keys all random choices and never leaves the server. `consent` is the
    number of the current consent text (0: standard). `languages` are those of the raters' pages, the default first."""

    id: int
    name: str
    kind: Kind
    state: State
    secret: str
    plan: Plan
    version: int
    version_id: int
    presentation: Presentation
    created: int
    consent: int = 0
    languages: tuple[str, ...] = (ENGLISH,)

    def chance(self, *what: object) -> float:
        """Pseudo-random number in [0, 1) for the decision identified by `what`: HMAC-SHA-256 with the secret, as a
        fraction. Repeatable with the secret, unpredictable without it."""
        text = "|".join(map(str, what))
        digest = hmac.new(bytes.fromhex(self.secret), text.encode(), hashlib.sha256).digest()
        return int.from_bytes(digest[:7], "big") / SHUFFLES

    def side_order(self, item: object, rater_id: int, places: int) -> tuple[int, ...]:
        """Canonical index of the response in each place: uniform over all orders, stable across reloads."""
        return tuple(sorted(range(places), key=lambda index: self.chance(item, rater_id, index)))


def create_study(
    store: Store,
    name: str,
    *,
    kind: str = DEFAULT.name,
    presentation: Presentation | None = None,
    plan: Plan | None = None,
    secret: str | None = None,
    languages: Sequence[str] = (ENGLISH,),
    actor: str = "owner",
) -> Study:
    """Create a study. Names are unique in a database. `secret` (32 bytes in hexadecimal, random by default) determines
    the order of sides and all other random choices; set it only in reproducible simulations. Raises TutelageError if
    the name is empty or taken, or the kind or a language unknown."""
    if not name.strip():
        raise TutelageError("A study needs a name.")
    check_languages(languages)
    question_kind = find_kind(kind)
    plan, now = plan or Plan(), store.now()
    presentation = presentation or Presentation(str(question_kind.traits.question), question_kind.traits.scale)
    with store.write() as connection:
        if connection.scalar(sa.select(schema.study.c.id).where(schema.study.c.name == name)) is not None:
            raise TutelageError(
                f"There is already a study '{name}' in {store.address}; open it or choose another name."
            )
        row = {
            "name": name,
            "kind": kind,
            "secret": secret or secrets.token_hex(32),
            "created": now,
            "languages": json.dumps(list(languages)),
            **asdict(plan),
        }
        study_id = insert_row(connection, schema.study, row)
        _add_version(connection, study_id, question_kind, 1, presentation, now)
        record_event(connection, study_id, now, actor, "study_created", name, kind=kind, **asdict(plan))
        return study_of(connection, study_id)


def open_study(store: Store, name: str | None = None) -> Study:
    """Study with this name, or the only one in the database. Raises TutelageError if there is no such study, or there
    are several and no name."""
    names = list_studies(store)
    if name is None and len(names) != 1:
        raise TutelageError(
            f"{store.address} holds {len(names)} studies ({', '.join(names) or 'none'}); name one of them."
        )
    if name is not None and name not in names:
        raise TutelageError(f"There is no study '{name}' in {store.address}; it holds {', '.join(names) or 'none'}.")
    with store.read() as connection:
        chosen = name if name is not None else names[0]
        study_id = connection.scalar(sa.select(schema.study.c.id).where(schema.study.c.name == chosen))
        assert study_id is not None
        return study_of(connection, study_id)


def list_studies(store: Store) -> tuple[str, ...]:
    """Names of all studies, oldest first."""
    with store.read() as connection:
        return tuple(connection.scalars(sa.select(schema.study.c.name).order_by(schema.study.c.id)))


_versions = schema.study_version
_SHOWN = (
    _versions.c.question, _versions.c.scale, _versions.c.criteria, _versions.c.guidelines, _versions.c.corrections,
    _versions.c.spans,
)  # fmt: skip
_STUDY = (
    sa.select(schema.study, _versions.c.number, _versions.c.id.label("version_id"), *_SHOWN)
    .join(_versions, _versions.c.study_id == schema.study.c.id)
    .where(schema.study.c.id == sa.bindparam("id"))
    .order_by(_versions.c.number.desc())
    .limit(1)
)


@reading
def study_of(connection: sa.Connection, study_id: int) -> Study:
    """Study with this id. Raises TutelageError if it does not exist."""
    row = connection.execute(_STUDY, {"id": study_id}).one_or_none()
    if row is None:
        raise TutelageError(f"There is no study {study_id} in this database.")
    return _study(row)


@functools.lru_cache(maxsize=64)
def _study(result: sa.Row) -> Study:
    """Convert a row of `_STUDY`; cached, because it is read at every question and answer and rarely changes."""
    row = result._mapping
    return value_of(
        Study, row, kind=find_kind(row["kind"]), plan=value_of(Plan, row), version=row["number"],
        presentation=presentation_from(row), languages=tuple(json.loads(row["languages"])),
    )  # fmt: skip


def presentation_from(row: sa.RowMapping) -> Presentation:
    """Convert a row with the columns of a version."""
    criteria, spans = (tuple(json.loads(row[name])) for name in ("criteria", "spans"))
    return value_of(Presentation, row, criteria=criteria, corrections=bool(row["corrections"]), spans=spans)


def present(store: Store, study_id: int, presentation: Presentation, *, actor: str = "owner") -> Study:
    """Change the question: adds a version unless equal. Questions already on screen are answered under their
    version."""
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        before = study_of(connection, study_id)
        if before.presentation == presentation:
            return before
        _add_version(connection, study_id, before.kind, before.version + 1, presentation, store.now())
        detail = {"version": before.version + 1, "sha256": presentation.sha256}
        record_event(connection, study_id, store.now(), actor, "study_version", before.name, **detail)
        return study_of(connection, study_id)


def plan_of(store: Store, study_id: int) -> Plan:
    return study_of(store, study_id).plan


def replan(store: Store, study_id: int, plan: Plan, *, actor: str = "owner") -> Study:
    """Change the plan from now on. A new overlap changes the target of all items without their own."""
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        before = study_of(connection, study_id)
        connection.execute(schema.study.update().where(schema.study.c.id == study_id).values(**asdict(plan)))
        if plan.overlap != before.plan.overlap:
            _retarget(connection, study_id, plan.overlap, store.now())
        changed = {name: value for name, value in asdict(plan).items() if getattr(before.plan, name) != value}
        record_event(connection, study_id, store.now(), actor, "plan_changed", before.name, **changed)
        return study_of(connection, study_id)


def set_languages(store: Store, study_id: int, languages: Sequence[str], *, actor: str = "owner") -> Study:
    """Set the languages of the raters' pages, the default first. The study's own texts and version stay unchanged."""
    check_languages(languages)
    with store.write() as connection:
        row = lock(connection, schema.study, study_id)
        before, after = row["languages"], json.dumps(list(languages))
        if before != after:
            connection.execute(schema.study.update().where(schema.study.c.id == study_id).values(languages=after))
            detail = {"languages": list(languages), "before": json.loads(before)}
            record_event(connection, study_id, store.now(), actor, "study_languages", row["name"], **detail)
        return study_of(connection, study_id)


def set_state(store: Store, study_id: int, state: State, *, actor: str = "owner") -> Study:
    """Open, pause or close the study. A paused study assigns nothing new but accepts pending answers."""
    if state not in ("open", "paused", "closed"):
        raise TutelageError(f"A study is open, paused or closed, not '{state}'.")
    with store.write() as connection:
        row = lock(connection, schema.study, study_id)
        connection.execute(schema.study.update().where(schema.study.c.id == study_id).values(state=state))
        record_event(connection, study_id, store.now(), actor, f"study_{state}", row["name"], before=row["state"])
        return study_of(connection, study_id)


def _add_version(
    connection: sa.Connection, study_id: int, kind: Kind, number: int, presentation: Presentation, now: int
) -> None:
    scales = sorted(kind.traits.scales)
    if presentation.scale not in scales:
        raise FieldError(
            "scale",
            f"scale is {presentation.scale}; in a study that {kind.traits.does} it is one of "
            f"{', '.join(map(str, scales))}.",
        )
    other = {"criteria": presentation.criteria, "corrections": presentation.corrections, "spans": presentation.spans}
    for name in (name for name, value in other.items() if value and kind.traits.steps):
        raise FieldError(name, "Where steps are judged, there are no criteria, better responses or marked words.")
    if kind.traits.rubrics and presentation.criteria:
        raise FieldError("criteria", "In this study the criteria are those of the rubric of each prompt; omit others.")
    row = {"study_id": study_id, "number": number, "created": now, "sha256": presentation.sha256}
    row |= asdict(presentation) | {"corrections": int(presentation.corrections)}
    row |= {name: json.dumps(row[name], ensure_ascii=False) for name in ("criteria", "spans")}
    insert_row(connection, schema.study_version, row)


def _retarget(connection: sa.Connection, study_id: int, overlap: int, now: int) -> None:
    items = schema.item
    mine = sa.and_(items.c.study_id == study_id, items.c.pool == "production", items.c.overlap.is_(None))
    target = sa.case((items.c.second == 1, max(overlap, 2)), else_=overlap)
    values = {"target": target, "room": room_for(target), "touched": touched_from(now)}
    connection.execute(items.update().where(mine).values(**values))


def room_for(target: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Number of raters still to assign to an item: its target minus answers and reservations."""
    items = schema.item
    left = target - items.c.answered - items.c.leased
    return sa.case((items.c.excluded.is_not(None), 0), (left < 0, 0), else_=left)


def touched_from(now: int) -> sa.ColumnElement[int]:
    """Times from `now` on, distinct for consecutive items: items are assigned in the order of these times."""
    return now + schema.item.c.id % 65_536


def list_versions(store: Store, study_id: int) -> tuple[Presentation, ...]:
    """All versions of the study's question, version 1 first."""
    query = sa.select(_versions).where(_versions.c.study_id == study_id).order_by(_versions.c.number)
    with store.read() as connection:
        return tuple(presentation_from(row) for row in connection.execute(query).mappings())
