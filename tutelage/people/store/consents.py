"""What raters agree to: a study's own text, versioned, with what becomes of votes when somebody is to be forgotten and
how long people are kept."""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.errors import TutelageError
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, inserted, lock, record_event
from tutelage.people.store.raters import Rater, list_raters
from tutelage.people.texts import refuse_unstorable

STANDARD = """\
- **What is kept.** Your answers, the reasons that you give, and how long you looked{live}. The texts are written by
  language models and may be wrong or unpleasant; you may always say that you cannot judge.
- **What it is for.** The answers train and measure language models. Your name is not part of the training data.
- **You are free.** Stop whenever you like. You can change an answer as long as you take part. Some questions have a
  known answer, and some come twice: that tells how sure answers are, not how good you are.
"""
"""What a study without a text of its own shows, in Markdown; with `STANDARD_LIVE` where raters talk to models."""
STANDARD_LIVE = (
    "; and your conversations, as you and the models write them: write nothing about yourself or others that should "
    "stay private"
)
VotesOfForgotten: TypeAlias = Literal["keep", "erase"]
LONGEST_CONSENT = 50_000
_DAY_MS = 86_400_000
_rows, _events = schema.consent, schema.event


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


@dataclass(frozen=True)
class Agreements:
    """The texts that raters agreed to: by the name of the rater, the moments and the numbers of the texts, oldest
    first."""

    by_rater: Mapping[str, tuple[tuple[int, int], ...]]

    def text_at(self, rater: str, moment: int) -> int | None:
        """The number of the text that a rater had agreed to last at a moment; None for one who had agreed to none."""
        made = self.by_rater.get(rater, ())
        place = bisect_right(made, moment, key=lambda each: each[0])
        return made[place - 1][1] if place else None


def shown_text(consent: Consent, *, live: bool) -> str:
    """The text as raters see it, in Markdown: their study's own, or the standard text."""
    return consent.text or STANDARD.format(live=STANDARD_LIVE if live else "")


def list_agreements(store: Store, study_id: int, last_event: int) -> Agreements:
    """What raters had agreed to when the event of that number happened."""
    query = (
        sa.select(_events.c.subject, _events.c.at, _events.c.detail)
        .where(_events.c.study_id == study_id, _events.c.action == "consent", _events.c.id <= last_event)
        .order_by(_events.c.at, _events.c.id)
    )
    found: dict[str, list[tuple[int, int]]] = {}
    with store.read() as connection:
        for row in connection.execute(query):
            found.setdefault(row.subject, []).append((row.at, json.loads(row.detail).get("text", 0)))
    return Agreements({rater: tuple(made) for rater, made in found.items()})


def restore_agreements(store: Store, study_id: int, agreements: Agreements) -> None:
    """Write down what the raters of an imported study had agreed to, with the moments."""
    with store.write(alone=True) as connection:
        for name, made in agreements.by_rater.items():
            for moment, number in made:
                record_event(connection, study_id, moment, name, "consent", name, text=number)
            moment, number = made[-1]
            mine = sa.and_(schema.rater.c.study_id == study_id, schema.rater.c.name == name)
            connection.execute(schema.rater.update().where(mine).values(consented=moment, agreed=number))


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
