"""Audit trail of a study, and records of its exports."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Store, insert_row, record_event, value_of
from tutelage.people.store.votes import Snapshot


@dataclass(frozen=True)
class ExportRecord:
    """Record of an export: its time, snapshot, selection and manifest."""

    id: int
    created: int
    snapshot: Snapshot
    selection: Mapping[str, object]
    manifest: Mapping[str, object]


def record_export(
    store: Store,
    study_id: int,
    snapshot: Snapshot,
    selection: Mapping[str, object],
    manifest: Mapping[str, object],
    *,
    actor: str,
) -> int:
    """Store the record of an export; returns its id."""
    now = store.now()
    row = {
        "study_id": study_id, "last_judgement": snapshot.last_judgement, "last_event": snapshot.last_event,
        "settings": json.dumps(selection), "manifest": json.dumps(manifest, ensure_ascii=False), "created": now,
    }  # fmt: skip
    with store.write() as connection:
        export_id = insert_row(connection, schema.export, row)
        record_event(connection, study_id, now, actor, "exported", f"export {export_id}")
        return export_id


def record_reading(store: Store, study_id: int, what: str, *, actor: str) -> None:
    """Record in the audit trail that a program read this part of the study."""
    with store.write(lasting=False) as connection:
        record_event(connection, study_id, store.now(), actor, "exported", what)


def list_exports(store: Store, study_id: int) -> tuple[ExportRecord, ...]:
    """All exports of a study, newest first."""
    table = schema.export
    query = sa.select(table).where(table.c.study_id == study_id).order_by(table.c.id.desc())
    with store.read() as connection:
        return tuple(
            value_of(
                ExportRecord,
                row,
                snapshot=value_of(Snapshot, row),
                selection=json.loads(row["settings"]),
                manifest=json.loads(row["manifest"]),
            )
            for row in connection.execute(query).mappings()
        )


@dataclass(frozen=True)
class Event:
    """An entry of the audit trail."""

    id: int
    at: int
    actor: str
    action: str
    subject: str
    detail: Mapping[str, object]


def list_events(store: Store, study_id: int, *, action: str | None = None, limit: int = 100) -> tuple[Event, ...]:
    """Audit trail, newest first."""
    events = schema.event
    query = sa.select(events).where(events.c.study_id == study_id).order_by(events.c.id.desc()).limit(limit)
    if action is not None:
        query = query.where(events.c.action == action)
    with store.read() as connection:
        return tuple(
            value_of(Event, row, detail=json.loads(row["detail"])) for row in connection.execute(query).mappings()
        )
