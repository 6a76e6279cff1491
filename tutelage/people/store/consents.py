"""What raters agree to: a study's own text, versioned, with what becomes of votes when somebody is to be forgotten and
how long people are kept."""

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.errors import TutelageError
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, inserted, lock, record_event
from tutelage.people.store.raters import Rater, list_raters
from tutelage.people.texts import refuse_unstorable

VotesOfForgotten: TypeAlias = Literal["keep", "erase"]
LONGEST_CONSENT = 50_000
_DAY_MS = 86_400_000
_rows = schema.consent


@dataclass(frozen=True)
class Consent:
    """A text that raters agree to, in Markdown; empty is the standard text. When a rater is forgotten, `votes` are kept
    under a number or erased. A rater is forgotten `retention_days` after the last sign of life (None: never)."""

    text: str = ""
    votes: VotesOfForgotten = "keep"
    retention_days: int | None = None

    def __post_init__(self) -> None:
        if self.votes not in ("keep", "erase"):
            raise TutelageError(
                f"votes is '{self.votes}'; those of a forgotten rater are kept (keep) or not (erase)."
            )
        if self.retention_days is not None and not 1 <= self.retention_days <= 36_500:
            raise TutelageError(f"retention_days is {self.retention_days}; it is from 1 to 36,500.")
        if len(self.text) > LONGEST_CONSENT:
            raise TutelageError(
                f"text has {len(self.text):,} characters; at most {LONGEST_CONSENT:,} are kept."
            )
        refuse_unstorable(self.text, "text")


def ask_consent(store: Store, study_id: int, consent: Consent, *, actor: str = "owner") -> int:
    """Ask raters to agree to this from now on, those included who agreed to another text; returns its number."""
    with store.write() as connection:
        study = lock(connection, schema.study, study_id)
        if load_consent(connection, study_id, study["consent"]) == consent:
            return int(study["consent"])
        mine = _rows.c.study_id == study_id
        number = (connection.scalar(sa.select(sa.func.max(_rows.c.number)).where(mine)) or 0) + 1
        row = asdict(consent) | {"study_id": study_id, "number": number, "created": store.now()}
        inserted(connection, _rows, row)
        connection.execute(schema.study.update().where(schema.study.c.id == study_id).values(consent=number))
        detail = {"votes": consent.votes, "retention_days": consent.retention_days}
        record_event(connection, study_id, store.now(), actor, "consent_version", str(number), **detail)
        return number


def list_consents(store: Store, study_id: int) -> tuple[Consent, ...]:
    """All versions, number 1 first; the standard text (number 0) is none of them."""
    query = sa.select(_rows).where(_rows.c.study_id == study_id).order_by(_rows.c.number)
    with store.read() as connection:
        return tuple(_consent(row) for row in connection.execute(query).mappings())


def consent_of(store: Store, study_id: int, number: int) -> Consent:
    """The version of that number."""
    with store.read() as connection:
        return load_consent(connection, study_id, number)


def load_consent(connection: Connection, study_id: int, number: int) -> Consent:
    """`consent_of` within a transaction."""
    query = sa.select(_rows).where(_rows.c.study_id == study_id, _rows.c.number == number)
    row = connection.execute(query).mappings().one_or_none()
    return Consent() if row is None else _consent(row)


def raters_due(store: Store, study_id: int) -> tuple[Rater, ...]:
    """The people whose time of retention is over, by the text that each agreed to."""
    days = {number: each.retention_days for number, each in enumerate(list_consents(store, study_id), 1)}
    now = store.now()
    found = []
    for rater in list_raters(store, study_id):
        kept, last = days.get(rater.agreed), max(rater.seen or 0, rater.consented or 0, rater.created)
        person = rater.kind == "human" and rater.role == "rater" and rater.forgotten is None
        if person and kept is not None and last + kept * _DAY_MS <= now:
            found.append(rater)
    return tuple(found)


def _consent(row: sa.RowMapping) -> Consent:
    return Consent(row["text"], row["votes"], row["retention_days"])
