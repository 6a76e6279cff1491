"""The models that raters chat with, and validation of messages to them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import sqlalchemy as sa

from tutelage.base import nouns
from tutelage.base.errors import TutelageError
from tutelage.people.store import schema
from tutelage.people.store.consents import renew_consent
from tutelage.people.store.engine import Connection, Store, insert_row, lock, reading, record_event, value_of
from tutelage.people.store.studies import study_of
from tutelage.people.validation import refuse_unstorable

LONGEST_MESSAGE = 20_000
MOST_TURNS = 100
MOST_OPENINGS = 10_000
_rows = schema.live


@dataclass(frozen=True)
class LiveModels:
    """The two models that raters chat with (folders, hub names or endpoint URLs; they may be equal), for at most
    `turns` messages. `openings` are suggested first messages, `sampling` the request options, `round` the round of the
    items, `id` the row."""

    model: str
    against: str
    turns: int = 4
    openings: tuple[str, ...] = ()
    sampling: Mapping[str, object] = field(default_factory=dict)
    round: int = 1
    id: int = 0

    def __post_init__(self) -> None:
        if not (self.model and self.against):
            raise TutelageError("A live conversation needs two models; the same one may be named twice.")
        if not 1 <= self.turns <= MOST_TURNS:
            raise TutelageError(f"turns is {self.turns}; a conversation has 1 to {MOST_TURNS} turns.")
        if len(self.openings) > MOST_OPENINGS:
            raise TutelageError(f"There are {len(self.openings):,} openings; at most {MOST_OPENINGS:,} are allowed.")
        for text in self.openings:
            check_message(text, "An opening")

    @property
    def names(self) -> tuple[str, str]:
        """Names of both models, in the order in which turns store their responses."""
        return self.model, self.against


def check_message(text: str, what: str = "The message") -> None:
    """Raises TutelageError for a message that cannot be sent."""
    if not text.strip():
        raise TutelageError(f"{what} is empty; write something.")
    if len(text) > LONGEST_MESSAGE:
        raise TutelageError(
            f"{what} has {nouns.counted(len(text), 'character')}; at most {LONGEST_MESSAGE:,} can be sent at once."
        )
    refuse_unstorable(text, what)


def set_live_models(store: Store, study_id: int, live: LiveModels, *, actor: str = "owner") -> tuple[LiveModels, bool]:
    """Set the models that raters chat with from their next message on. Returns the models in force, and whether they
    changed.

    Raises:
        TutelageError: the study does not compare pairs.
    """
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        study = study_of(connection, study_id)
        if not study.kind.traits.sides:
            raise TutelageError(
                f"'{study.name}' {study.kind.traits.does}; live conversations are for studies that compare pairs."
            )
        before = find_live_models(connection, study_id)
        if before is not None and _content(before) == _content(live):
            return before, False
        row = _content(live) | {"study_id": study_id, "created": store.now()}
        insert_row(connection, _rows, row)
        detail = {"models": list(live.names), "turns": live.turns, "openings": len(live.openings)}
        if before is None:  # live conversations extend the standard text
            renew_consent(connection, study_id, store.now(), actor=actor)
        record_event(connection, study_id, store.now(), actor, "live_models", f"round {live.round}", **detail)
        current = find_live_models(connection, study_id)
        assert current is not None
        return current, True


def _content(live: LiveModels) -> dict[str, object]:
    row = asdict(live)
    del row["id"]
    return row | {name: json.dumps(row[name], ensure_ascii=False) for name in ("openings", "sampling")}


_LIVE = sa.select(_rows).where(_rows.c.study_id == sa.bindparam("study")).order_by(_rows.c.id.desc()).limit(1)
_LIVE_OF = sa.select(_rows).where(_rows.c.id == sa.bindparam("id"))


@reading
def find_live_models(connection: Connection, study_id: int) -> LiveModels | None:
    """The models in force; None if the study has no live conversations."""
    row = connection.execute(_LIVE, {"study": study_id}).mappings().one_or_none()
    return None if row is None else _live(row)


def load_live_models(connection: Connection, live_id: int) -> LiveModels:
    """Models by row id, as referenced by turns."""
    return _live(connection.execute(_LIVE_OF, {"id": live_id}).mappings().one())


def _live(row: sa.RowMapping) -> LiveModels:
    texts = {"openings": tuple(json.loads(row["openings"])), "sampling": json.loads(row["sampling"])}
    return value_of(LiveModels, row, **texts)
