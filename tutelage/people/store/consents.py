"""What raters agree to: a study's own text, versioned, with what becomes of votes when somebody is to be forgotten and
how long people are kept."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

import sqlalchemy as sa

from tutelage.people.languages import ENGLISH, LANGUAGES, Sentence, say
from tutelage.people.settings import Consent
from tutelage.people.store import schema
from tutelage.people.store.engine import DAY_MS, Connection, Store, insert_row, lock, record_event, value_of
from tutelage.people.store.raters import Rater, consent, get_rater, list_raters

_KEPT = Sentence("Your answers, the reasons that you give, and how long you looked.")
_KEPT_LIVE = Sentence(
    "Your answers, the reasons that you give, and how long you looked; and your conversations, as you and the models "
    "write them: write nothing about yourself or others that should stay private."
)
_TEXTS = Sentence(
    "The texts are written by language models and may be wrong or unpleasant; you may always say that you cannot judge."
)
_PURPOSE = Sentence(
    "The answers train and measure language models. A better response that you write becomes text that they learn from."
    " Your name is not part of the training data."
)
_PURPOSE_LIVE = Sentence(
    "The answers train and measure language models. What you write to the models, and a better response that you write,"
    " become text that they learn from. Your name is not part of the training data."
)
_FREEDOM = Sentence(
    "Stop whenever you like. You can change an answer as long as you take part. Some questions have a known answer, "
    "and some come twice: that tells how sure answers are, not how good you are."
)
_rows, _texts, _events = schema.consent, schema.consent_text, schema.event


class Agreement(NamedTuple):
    """A rater's agreement, at a moment, to the text of a number; `language` and `sha256` of the text as shown, empty
    for raters who are no people."""

    at: int
    number: int
    language: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Agreements:
    """What raters agreed to, by their names, oldest first."""

    by_rater: Mapping[str, tuple[Agreement, ...]]

    def at(self, rater: str, moment: int) -> Agreement | None:
        """What a rater had agreed to last at a moment; None for one who had agreed to none."""
        made = self.by_rater.get(rater, ())
        place = bisect_right(made, moment, key=lambda each: each.at)
        return made[place - 1] if place else None

    def text_at(self, rater: str, moment: int) -> int | None:
        """The number of that text."""
        found = self.at(rater, moment)
        return None if found is None else found.number


def standard_points(*, live: bool) -> tuple[tuple[Sentence, tuple[Sentence, ...]], ...]:
    """The standard text as headings with their sentences; `live` where raters talk to models."""
    return (
        (Sentence("What is kept."), (_KEPT_LIVE if live else _KEPT, _TEXTS)),
        (Sentence("What it is for."), (_PURPOSE_LIVE if live else _PURPOSE,)),
        (Sentence("You are free."), (_FREEDOM,)),
    )


def shown_text(asked: Consent, *, live: bool, language: str = ENGLISH) -> str:
    """The text as raters see it, in Markdown: the study's own, in its one language, or the standard text."""
    if asked.text:
        return asked.text
    points = standard_points(live=live)
    return "".join(
        f"- **{say(heading, language)}** {' '.join(say(each, language) for each in sentences)}\n"
        for heading, sentences in points
    )


def is_standard(text: str) -> bool:
    """Whether a text is the standard one, in any language, with its lines broken anywhere."""
    plain = " ".join(text.split())
    return any(plain == " ".join(each.split()) for each in _standard_texts())


def _standard_texts() -> Iterator[str]:
    for live in (False, True):
        for code in LANGUAGES:
            yield shown_text(Consent(), live=live, language=code)


def text_hash(text: str) -> str:
    """The SHA-256 by which agreements name a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def agree(store: Store, rater_id: int, language: str, *, live: bool) -> None:
    """Note that the rater has read the present text in the language, and agrees; the text is kept as it was shown."""
    study_id = get_rater(store, rater_id).study_id
    text = shown_text(present_consent(store, study_id), live=live, language=language)
    keep_texts(store, study_id, [text])
    consent(store, rater_id, language=language, sha256=text_hash(text))


def keep_texts(store: Store, study_id: int, texts: Iterable[str]) -> None:
    """Keep texts that raters agreed to as they were shown, each once."""
    of_study = _texts.c.study_id == study_id
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        known = set(connection.scalars(sa.select(_texts.c.sha256).where(of_study)))
        for text in dict.fromkeys(texts):
            row = {"study_id": study_id, "sha256": text_hash(text), "text": text, "created": store.now()}
            if row["sha256"] not in known:
                insert_row(connection, _texts, row)


def kept_texts(store: Store, study_id: int) -> Mapping[str, str]:
    """The texts that raters agreed to, as they were shown, by their hashes."""
    query = sa.select(_texts.c.sha256, _texts.c.text).where(_texts.c.study_id == study_id)
    with store.read() as connection:
        return {row.sha256: row.text for row in connection.execute(query)}


def list_agreements(store: Store, study_id: int, last_event: int) -> Agreements:
    """What raters had agreed to when the event of that number happened."""
    query = (
        sa.select(_events.c.subject, _events.c.at, _events.c.detail)
        .where(_events.c.study_id == study_id, _events.c.action == "consent", _events.c.id <= last_event)
        .order_by(_events.c.at, _events.c.id)
    )
    found: dict[str, list[Agreement]] = {}
    with store.read() as connection:
        for row in connection.execute(query):
            told = json.loads(row.detail)
            made = Agreement(row.at, told["text"], told.get("language", ""), told.get("sha256", ""))
            found.setdefault(row.subject, []).append(made)
    return Agreements({rater: tuple(made) for rater, made in found.items()})


def restore_agreements(store: Store, study_id: int, agreements: Agreements) -> None:
    """Write down what the raters of an imported study had agreed to, with the moments."""
    with store.write(alone=True) as connection:
        for name, made in agreements.by_rater.items():
            for moment, number, language, sha256 in made:
                shown = {"language": language, "sha256": sha256} if sha256 else {}
                record_event(connection, study_id, moment, name, "consent", name, text=number, **shown)
            moment, number, _, _ = made[-1]
            mine = sa.and_(schema.rater.c.study_id == study_id, schema.rater.c.name == name)
            connection.execute(schema.rater.update().where(mine).values(consented=moment, agreed=number))


def ask_consent(store: Store, study_id: int, new: Consent, *, actor: str = "owner") -> int:
    """Ask raters to agree to this from now on, those included who agreed to another text; returns its number."""
    with store.write() as connection:
        study = lock(connection, schema.study, study_id)
        if load_consent(connection, study_id, study["consent"]) == new:
            return int(study["consent"])
        return _add_consent(connection, study_id, new, store.now(), actor)


def renew_consent(connection: Connection, study_id: int, now: int, *, actor: str = "owner") -> None:
    """Give the standard text a new number, so that raters are asked again, if it is in use and somebody agreed to
    it."""
    raters, number = schema.rater.c, _present_number(connection, study_id)
    agreed = sa.and_(raters.study_id == study_id, raters.kind == "human", raters.agreed == number)
    somebody = sa.select(raters.id).where(agreed, raters.consented.is_not(None)).limit(1)
    asked = load_consent(connection, study_id, number)
    if not asked.text and connection.scalar(somebody) is not None:
        _add_consent(connection, study_id, asked, now, actor)


def renew_if_former(store: Store, study_id: int, agreements: Agreements, *, actor: str = "owner") -> None:
    """`renew_consent` where people agreed to a standard text that is not the present one."""
    with store.write() as connection:
        number = _present_number(connection, study_id)
        present = set(map(text_hash, _standard_texts()))
        newest = (made[-1] for made in agreements.by_rater.values())
        if any(made.number == number and made.sha256 not in present for made in newest):
            renew_consent(connection, study_id, store.now(), actor=actor)


def _add_consent(connection: Connection, study_id: int, new: Consent, now: int, actor: str) -> int:
    mine = _rows.c.study_id == study_id
    number = (connection.scalar(sa.select(sa.func.max(_rows.c.number)).where(mine)) or 0) + 1
    insert_row(connection, _rows, asdict(new) | {"study_id": study_id, "number": number, "created": now})
    connection.execute(schema.study.update().where(schema.study.c.id == study_id).values(consent=number))
    detail = {"votes": new.votes, "retention_days": new.retention_days}
    record_event(connection, study_id, now, actor, "consent_version", str(number), **detail)
    return number


def list_consents(store: Store, study_id: int) -> tuple[Consent, ...]:
    """All versions, number 1 first; the standard text (number 0) is none of them."""
    query = sa.select(_rows).where(_rows.c.study_id == study_id).order_by(_rows.c.number)
    with store.read() as connection:
        return tuple(value_of(Consent, row) for row in connection.execute(query).mappings())


def consent_of(store: Store, study_id: int, number: int) -> Consent:
    """The version of that number."""
    with store.read() as connection:
        return load_consent(connection, study_id, number)


def present_consent(store: Store, study_id: int) -> Consent:
    """The version that raters agree to now."""
    with store.read() as connection:
        return load_consent(connection, study_id, _present_number(connection, study_id))


def _present_number(connection: Connection, study_id: int) -> int:
    number = connection.scalar(sa.select(schema.study.c.consent).where(schema.study.c.id == study_id))
    assert number is not None, "a study has a number of its text"
    return number


def load_consent(connection: Connection, study_id: int, number: int) -> Consent:
    """`consent_of` within a transaction."""
    query = sa.select(_rows).where(_rows.c.study_id == study_id, _rows.c.number == number)
    row = connection.execute(query).mappings().one_or_none()
    return Consent() if row is None else value_of(Consent, row)


def raters_due(store: Store, study_id: int) -> tuple[Rater, ...]:
    """The people whose time of retention is over, by the text that each agreed to."""
    days = {number: each.retention_days for number, each in enumerate(list_consents(store, study_id), 1)}
    now = store.now()
    found = []
    for rater in list_raters(store, study_id):
        kept, last = days.get(rater.agreed), max(rater.seen or 0, rater.consented or 0, rater.created)
        person = rater.kind == "human" and rater.role == "rater" and rater.forgotten is None
        if person and kept is not None and last + kept * DAY_MS <= now:
            found.append(rater)
    return tuple(found)
