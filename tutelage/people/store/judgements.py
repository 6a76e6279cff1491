"""Writing answers down, and reading them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.data.records import Judgement
from tutelage.people.answers import Answer, Canonical, displayed
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, inserted
from tutelage.people.store.leases import Lease

_judgements = schema.judgement


@dataclass(frozen=True)
class Stored:
    """A judgement as far as writing the next one needs it; `order` is that of display."""

    id: int
    assignment_id: int
    revision: int
    verdict: str
    order: tuple[int, ...]
    flagged: bool
    extra: bool
    active_ms: int | None
    key: str


_STORED = sa.select(
    *(
        _judgements.c[name]
        for name in ("id", "assignment_id", "revision", "verdict", "order", "flags", "extra")
    ),
    _judgements.c.active_ms,
    _judgements.c.idempotency_key,
)
_BY_KEY = _STORED.where(_judgements.c.idempotency_key == sa.bindparam("key"))
_LATEST = _STORED.where(_judgements.c.assignment_id == sa.bindparam("assignment"), _judgements.c.latest == 1)
_SUPERSEDE = _judgements.update().where(_judgements.c.id == sa.bindparam("judgement")).values(latest=0)
_FIRST_VERDICT = sa.select(_judgements.c.verdict).where(
    _judgements.c.item_id == sa.bindparam("item"),
    _judgements.c.rater_id == sa.bindparam("rater"),
    _judgements.c.repeat == 0,
    _judgements.c.latest == 1,
)


def by_key(connection: Connection, key: str) -> Stored | None:
    """The judgement that was sent under this idempotency key."""
    return _stored(connection.execute(_BY_KEY, {"key": key}).one_or_none())


def latest(connection: Connection, assignment_id: int) -> Stored | None:
    """The revision in force."""
    return _stored(connection.execute(_LATEST, {"assignment": assignment_id}).one_or_none())


def first_verdict(connection: Connection, item_id: int, rater_id: int) -> str | None:
    """What the rater said when the item was shown the first time."""
    return connection.scalar(_FIRST_VERDICT, {"item": item_id, "rater": rater_id})


def append(
    connection: Connection,
    lease: Lease,
    answer: Answer,
    canonical: Canonical,
    *,
    before: Stored | None,
    extra: bool,
    now: int,
) -> Stored:
    """Write a revision on top of `before`, which stays as it is but for not being the latest."""
    if before is not None:
        connection.execute(_SUPERSEDE, {"judgement": before.id})
    revision = 1 if before is None else before.revision + 1
    row = {
        "study_id": lease.study_id,
        "assignment_id": lease.id,
        "item_id": lease.item_id,
        "rater_id": lease.rater_id,
        "version_id": lease.version_id,
        "revision": revision,
        "latest": 1,
        "displayed": _text(displayed(answer)),
        "order": _text(lease.order),
        "verdict": canonical.verdict,
        "strength": canonical.strength,
        "ranking": _text(canonical.ranking) if canonical.ranking else None,
        "criteria": _text(dict(canonical.criteria)),
        "flags": _text(answer.flags),
        "reason": answer.reason,
        "repeat": int(lease.repeat),
        "extra": int(extra),
        "active_ms": answer.active_ms,
        "wall_ms": answer.wall_ms,
        "changes": answer.changes,
        "client": answer.client,
        "idempotency_key": answer.key,
        "created": now,
    }
    judgement_id = inserted(connection, _judgements, row)
    return Stored(
        judgement_id, lease.id, revision, canonical.verdict, lease.order, bool(answer.flags), extra, answer.active_ms,
        answer.key,
    )  # fmt: skip


def _stored(row: sa.Row | None) -> Stored | None:
    if row is None:
        return None
    return Stored(
        row.id, row.assignment_id, row.revision, row.verdict, tuple(json.loads(row.order)), row.flags != "[]",
        bool(row.extra), row.active_ms, row.idempotency_key,
    )  # fmt: skip


@dataclass(frozen=True)
class Vote:
    """A judgement with everything known about it. `rater_kind`, `sides` (the order of display) and `excluded` (why it
    does not count, if it does not) come with it; `pool` is production, gold or training."""

    id: int
    item: str
    prompt: str
    rater: str
    rater_kind: str
    pool: str
    round: int
    verdict: str
    strength: int
    ranking: tuple[int, ...]
    criteria: Mapping[str, str]
    displayed: Mapping[str, object]
    sides: tuple[int, ...]
    flags: tuple[str, ...]
    reason: str
    revision: int
    latest: bool
    repeat: bool
    extra: bool
    version: int
    active_ms: int | None
    wall_ms: int | None
    changes: int
    client: str
    key: str
    excluded: str | None
    created: int


def list_votes(
    store: Store, study_id: int, *, every_revision: bool = False, until: int | None = None
) -> tuple[Vote, ...]:
    """All judgements in the order they arrived: the latest revision of each, or every one. With `until`, as things
    stood when that judgement (by id) was the last."""
    with store.read() as connection:
        return tuple(iterate_votes(connection, study_id, every_revision=every_revision, until=until))


def iterate_votes(
    connection: sa.Connection, study_id: int, *, every_revision: bool = False, until: int | None = None
) -> Iterator[Vote]:
    """`list_votes` within a transaction, row by row."""
    items, prompts, raters, versions = schema.item, schema.prompt, schema.rater, schema.study_version
    exclusion = sa.func.coalesce(raters.c.excluded, items.c.excluded, _judgements.c.excluded)
    query = (
        sa.select(_judgements, items.c.key, items.c.pool, items.c.round, prompts.c.key.label("prompt_key"))
        .add_columns(raters.c.name, raters.c.kind, versions.c.number, exclusion.label("why_excluded"))
        .join(items, items.c.id == _judgements.c.item_id)
        .join(prompts, prompts.c.id == items.c.prompt_id)
        .join(raters, raters.c.id == _judgements.c.rater_id)
        .join(versions, versions.c.id == _judgements.c.version_id)
        .where(_judgements.c.study_id == study_id)
        .order_by(_judgements.c.id)
    )
    if until is not None:
        query = query.where(_judgements.c.id <= until)
    if not every_revision:
        query = query.where(_in_force(until))
    for row in connection.execute(query.execution_options(yield_per=1000)).mappings():
        yield _vote(row)


def _in_force(until: int | None) -> sa.ColumnElement[bool]:
    if until is None:
        return _judgements.c.latest == 1
    later = _judgements.alias()
    return ~sa.exists().where(
        later.c.assignment_id == _judgements.c.assignment_id,
        later.c.revision > _judgements.c.revision,
        later.c.id <= until,
    )


def list_judgements(store: Store, study_id: int) -> tuple[Judgement, ...]:
    """The latest answer of every rater to every production pair, as records; excluded ones, repeats and rankings are
    left out."""
    return tuple(
        as_record(vote)
        for vote in list_votes(store, study_id)
        if vote.pool == "production" and not vote.excluded and not vote.repeat and not vote.ranking
    )


def as_record(vote: Vote) -> Judgement:
    """The record that statistics and files use."""
    seconds = (vote.active_ms if vote.active_ms is not None else vote.wall_ms or 0) / 1000
    left = "a" if vote.sides[0] == 0 else "b"
    return Judgement(
        str(vote.id), vote.item, vote.rater, vote.verdict, vote.strength, left, seconds, vote.created / 1000  # type: ignore[arg-type]
    )  # fmt: skip


def _vote(row: sa.RowMapping) -> Vote:
    return Vote(
        id=row["id"],
        item=row["key"],
        prompt=row["prompt_key"],
        rater=row["name"],
        rater_kind=row["kind"],
        pool=row["pool"],
        round=row["round"],
        verdict=row["verdict"],
        strength=row["strength"],
        ranking=tuple(json.loads(row["ranking"])) if row["ranking"] else (),
        criteria=json.loads(row["criteria"]),
        displayed=json.loads(row["displayed"]),
        sides=tuple(json.loads(row["order"])),
        flags=tuple(json.loads(row["flags"])),
        reason=row["reason"],
        revision=row["revision"],
        latest=bool(row["latest"]),
        repeat=bool(row["repeat"]),
        extra=bool(row["extra"]),
        version=row["number"],
        active_ms=row["active_ms"],
        wall_ms=row["wall_ms"],
        changes=row["changes"],
        client=row["client"],
        key=row["idempotency_key"],
        excluded=row["why_excluded"],
        created=row["created"],
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
