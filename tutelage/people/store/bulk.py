"""Bulk insertion of answers, for imports: the same rows as for single answers, with the counters updated at the end."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.data.rubrics import Rubric
from tutelage.people.answers import Answer, Canonical
from tutelage.people.kinds.kind import Screen
from tutelage.people.store import schema
from tutelage.people.store.additions import count_steps, rubric_from_text
from tutelage.people.store.assignments import screen_from
from tutelage.people.store.completions import USE
from tutelage.people.store.engine import Connection, Store, chunks, record_event
from tutelage.people.store.exclusions import count_again
from tutelage.people.store.judgements import ItemFacts, judgement_row, row_of, tally
from tutelage.people.store.studies import Study, study_of

VOTES_IMPORTED = "votes_imported"
"""Action of the audit trail; its subject is the name of the file or folder."""
_CHUNK = 5_000
_judgements, _assignments, _items, _raters = schema.judgement, schema.assignment, schema.item, schema.rater


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer from a file. `sides` is the display order; answers with the same item, rater and `repeat` are revisions
    in this order; `version` is the version number of the question."""

    item: str
    rater: str
    sides: tuple[int, ...]
    answer: Answer
    created: int
    version: int = 1
    chosen_by: str = "import"
    repeat: bool = False
    extra: bool = False


def write_answers(
    store: Store, study_id: int, records: Sequence[AnswerRecord], *, source: str, actor: str = "owner"
) -> tuple[int, int]:
    """Store answers, all or none. Items, raters and versions must exist; answers whose keys are in the study are
    skipped. Returns the numbers of new answers and of these. Raises TutelageError if an answer refers to an item, rater
    or version that is not in the study."""
    with store.write(alone=True) as connection:
        return insert_answers(connection, study_id, records, store.now(), source=source, actor=actor, rejected=0)


def insert_answers(
    connection: Connection,
    study_id: int,
    records: Sequence[AnswerRecord],
    now: int,
    *,
    source: str,
    actor: str,
    **more: object,
) -> tuple[int, int]:
    """`write_answers` within an exclusive write transaction. The event of the audit trail has `more` details."""
    keys = sa.select(_judgements.c.idempotency_key).where(_judgements.c.study_id == study_id)
    stored = set(connection.scalars(keys))
    fresh = [each for each in records if each.answer.key not in stored]
    ids = _Ids.of(connection, study_id)
    assignments = _write_assignments(connection, study_id, fresh, ids)
    _write_judgements(connection, study_id, fresh, ids, assignments)
    count_again(connection, _assignments.c.study_id == study_id, now)
    _tallies(connection, study_id)
    known = len(records) - len(fresh)
    detail = {"new": len(fresh), "known": known, **more}
    record_event(connection, study_id, now, actor, VOTES_IMPORTED, source, **detail)
    return len(fresh), known


@dataclass(frozen=True)
class _Ids:
    """Internal ids by the names used in files."""

    item: Mapping[str, int]
    rater: Mapping[str, int]
    version: Mapping[int, int]

    @classmethod
    def of(cls, connection: Connection, study_id: int) -> "_Ids":
        def numbers(table: sa.Table, name: str) -> dict:
            query = sa.select(table.c[name], table.c.id).where(table.c.study_id == study_id)
            return {row[0]: row[1] for row in connection.execute(query)}

        versions = numbers(schema.study_version, "number")
        return cls(numbers(_items, "key"), numbers(_raters, "name"), versions)

    def find(self, kind: str, name: str | int) -> int:
        number = getattr(self, kind).get(name)
        if number is None:
            raise TutelageError(f"An answer refers to the {kind} '{name}', which is not in the study.")
        return int(number)


_Place = tuple[int, int, int]


def _place(each: AnswerRecord, ids: _Ids) -> _Place:
    return ids.find("item", each.item), ids.find("rater", each.rater), int(each.repeat)


def _write_assignments(
    connection: Connection, study_id: int, records: Sequence[AnswerRecord], ids: _Ids
) -> dict[_Place, tuple[int, int]]:
    """Map of place to (assignment, number of revisions). Creates missing assignments; all get the state of the last
    answer."""
    places = _places(connection, study_id)
    last = {_place(each, ids): each for each in records}
    missing = [
        {
            "study_id": study_id, "item_id": place[0], "rater_id": place[1], "repeat": place[2],
            "chosen_by": each.chosen_by, "state": _state(each), "extra": int(each.extra), "counted": 1,
            "version_id": ids.find("version", each.version), "order": str(list(each.sides)),
            "lease_ends": each.created, "created": each.created, "closed": each.created,
        }
        for place, each in last.items()
        if place not in places
    ]  # fmt: skip
    for rows in chunks(missing, _CHUNK):
        connection.execute(_assignments.insert(), rows)
    change = _assignments.update().where(_assignments.c.id == sa.bindparam("assignment"))
    for place, each in last.items():
        if place in places:
            values = {"assignment": places[place][0], "state": _state(each), "closed": each.created}
            connection.execute(change, values)
    return _places(connection, study_id)


def _places(connection: Connection, study_id: int) -> dict[_Place, tuple[int, int]]:
    revisions = sa.func.coalesce(sa.func.max(_judgements.c.revision), 0)
    query = (
        sa.select(_assignments.c.item_id, _assignments.c.rater_id, _assignments.c.repeat, _assignments.c.id, revisions)
        .outerjoin(_judgements, _judgements.c.assignment_id == _assignments.c.id)
        .where(_assignments.c.study_id == study_id)
        .group_by(_assignments.c.id, _assignments.c.item_id, _assignments.c.rater_id, _assignments.c.repeat)
    )
    return {(row[0], row[1], row[2]): (row[3], row[4]) for row in connection.execute(query)}


def _state(each: AnswerRecord) -> str:
    return "skipped" if each.answer.choice == "skip" else "done"


def _write_judgements(
    connection: Connection,
    study_id: int,
    records: Sequence[AnswerRecord],
    ids: _Ids,
    assignments: Mapping[_Place, tuple[int, int]],
) -> None:
    places = [_place(each, ids) for each in records]
    touched = {assignments[place][0] for place in places if assignments[place][1]}
    for some in chunks(sorted(touched), _CHUNK):
        change = _judgements.update().where(_judgements.c.assignment_id.in_(some), _judgements.c.latest == 1)
        connection.execute(change.values(latest=0))
    study = study_of(connection, study_id)
    versions = sa.select(schema.study_version).where(schema.study_version.c.study_id == study_id)
    screens = {row["number"]: screen_from(row, 0) for row in connection.execute(versions).mappings()}
    steps = _steps_by_item(connection, study_id) if study.kind.traits.steps else {}
    rubrics = _rubrics(connection, study_id)
    left, counted = Counter(places), Counter[_Place]()
    rows = []
    for place, each in zip(places, records, strict=True):
        counted[place] += 1
        left[place] -= 1
        assignment_id, before = assignments[place]
        version_id = ids.find("version", each.version)
        screen = replace(screens[each.version], places=len(each.sides))
        screen = replace(screen, steps=steps.get(place[0], 0), rubric=rubrics.get(place[0], ()))
        canonical = _canonical(each, study, screen)
        row = row_of(each.answer, canonical, each.sides, before + counted[place], each.repeat, each.extra, each.created)
        row |= {"study_id": study_id, "assignment_id": assignment_id, "item_id": place[0], "rater_id": place[1]}
        rows.append(row | {"version_id": version_id, "latest": int(left[place] == 0)})
    for some_rows in chunks(rows, _CHUNK):
        connection.execute(_judgements.insert(), some_rows)


def _steps_by_item(connection: Connection, study_id: int) -> dict[int, int]:
    """The number of steps of the only response of each item."""
    links, responses = schema.item_response, schema.response
    query = sa.select(links.c.item_id, responses.c.steps).join(responses, responses.c.id == links.c.response_id)
    query = query.where(responses.c.study_id == study_id)
    return {row.item_id: count_steps(row.steps) for row in connection.execute(query)}


def _rubrics(connection: Connection, study_id: int) -> dict[int, Rubric]:
    """Rubrics of the prompts of a study, by id of the item; none if its kind does not ask about them."""
    prompts = schema.prompt
    query = sa.select(_items.c.id, prompts.c.rubric).join(prompts, prompts.c.id == _items.c.prompt_id)
    query = query.where(_items.c.study_id == study_id, prompts.c.rubric.is_not(None))
    return {row.id: rubric_from_text(row.rubric) for row in connection.execute(query)}


def _canonical(each: AnswerRecord, study: Study, screen: Screen) -> Canonical:
    """The answer in canonical order. Raises TutelageError for invalid content, since files may hold anything."""
    if each.answer.content:
        study.kind.check(each.answer, screen)
    return study.kind.canonical(each.answer, each.sides, screen)


def _tallies(connection: Connection, study_id: int) -> None:
    """Recompute the tallies of all raters of the study from the latest judgements."""
    query = (
        sa.select(_judgements, _items.c.pool, _items.c.gold, _items.c.lengths, schema.assignment.c.chosen_by)
        .join(_items, _items.c.id == _judgements.c.item_id)
        .join(schema.assignment, schema.assignment.c.id == _judgements.c.assignment_id)
        .where(_judgements.c.study_id == study_id, _judgements.c.latest == 1)
        .order_by(_judgements.c.repeat, _judgements.c.id)
    )
    totals: dict[int, Counter[str]] = {}
    first: dict[tuple[int, int], str] = {}
    for row in connection.execute(query.execution_options(yield_per=1000)):
        place = (row.item_id, row.rater_id)
        lengths = tuple(json.loads(row.lengths))
        repeated = first.get(place) if row.repeat else None
        about = ItemFacts(row.pool, row.gold, lengths, repeated, shuffled=row.chosen_by != USE)
        totals.setdefault(row.rater_id, Counter()).update(tally(judgement_row(row), about))
        first.setdefault(place, row.verdict)
    for rater_id, total in totals.items():
        values = {name: total[name] for name in schema.TALLIES}
        connection.execute(_raters.update().where(_raters.c.id == rater_id).values(**values))
