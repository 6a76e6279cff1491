"""Consent texts: a study's own text, in versions, with its rules for votes on erasure and for retention."""

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
from tutelage.people.store.engine import DAY_MS, Connection, Store, insert_row, lock, reading, record_event, value_of
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
_KEPT_USE = Sentence(
    "Your conversations, as you and the model write them, and what you say of its answers: write nothing about "
    "yourself or others that should stay private."
)
_TEXTS_USE = Sentence("The answers are written by a language model and may be wrong or unpleasant.")
_PURPOSE_USE = Sentence(
    "People judge the answers too, and language models learn from them and from what you write. You are known by a "
    "number, not by a name."
)
_FREEDOM_USE = Sentence("You can agree or not, change your mind at any time, and have deleted what is kept about you.")
_FREEDOM = Sentence(
    "Stop whenever you like. You can change an answer as long as you take part. Some questions have a known answer, "
    "and some come twice: that tells how sure answers are, not how good you are."
)
_rows, _texts, _events = schema.consent, schema.consent_text, schema.event


class Agreement(NamedTuple):
    """A rater's agreement to the consent text with this number; `language` and `sha256` of the text as shown, empty for
    raters that are not people."""

    at: int
    number: int
    language: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Agreements:
    """Raters' agreements by rater name, oldest first."""

    by_rater: Mapping[str, tuple[Agreement, ...]]

    def at(self, rater: str, moment: int) -> Agreement | None:
        """Latest agreement of a rater at a moment; None if there was none."""
        agreements = self.by_rater.get(rater, ())
        place = bisect_right(agreements, moment, key=lambda each: each.at)
        return agreements[place - 1] if place else None


def standard_points(*, live: bool, use: bool = False) -> tuple[tuple[Sentence, tuple[Sentence, ...]], ...]:
    """Headings of the standard text with their sentences; `live` if raters chat with models, `use` for users of a
    served model."""
    if use:
        return (
            (Sentence("What is kept."), (_KEPT_USE, _TEXTS_USE)),
            (Sentence("What it is for."), (_PURPOSE_USE,)),
            (Sentence("You are free."), (_FREEDOM_USE,)),
        )
    return (
        (Sentence("What is kept."), (_KEPT_LIVE if live else _KEPT, _TEXTS)),
        (Sentence("What it is for."), (_PURPOSE_LIVE if live else _PURPOSE,)),
        (Sentence("You are free."), (_FREEDOM,)),
    )


def shown_text(consent: Consent, *, live: bool, use: bool = False, language: str = ENGLISH) -> str:
    """The text as shown to raters, or to users of a served model (`use`), in Markdown: the study's own text, in its
    only language, or the standard text."""
    if consent.text:
        return consent.text
    points = standard_points(live=live, use=use)
    return "".join(
        f"- **{say(heading, language)}** {' '.join(say(each, language) for each in sentences)}\n"
        for heading, sentences in points
    )


def is_standard(text: str) -> bool:
    """Whether a text is the standard text in any language, ignoring line breaks."""
    plain = " ".join(text.split())
    return any(plain == " ".join(each.split()) for each in _standard_texts())


def _standard_texts() -> Iterator[str]:
    for live, use in ((False, False), (True, False), (True, True)):
        for code in LANGUAGES:
            yield shown_text(Consent(), live=live, use=use, language=code)


def text_hash(text: str) -> str:
    """SHA-256 that identifies a text in agreements."""
    return hashlib.sha256(text.encode()).hexdigest()


def agree(store: Store, rater_id: int, language: str, *, live: bool, use: bool = False) -> None:
    """Record that the rater, or user of a served model, agrees to the current text in this language; the text is stored
    as shown."""
    study_id = get_rater(store, rater_id).study_id
    text = shown_text(present_consent(store, study_id), live=live, use=use, language=language)
    keep_texts(store, study_id, [text])
    consent(store, rater_id, language=language, sha256=text_hash(text))


def keep_texts(store: Store, study_id: int, texts: Iterable[str]) -> None:
    """Store consent texts as shown, each once."""
    of_study = _texts.c.study_id == study_id
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        hashes = set(connection.scalars(sa.select(_texts.c.sha256).where(of_study)))
        for text in dict.fromkeys(texts):
            row = {"study_id": study_id, "sha256": text_hash(text), "text": text, "created": store.now()}
            if row["sha256"] not in hashes:
                insert_row(connection, _texts, row)


def kept_texts(store: Store, study_id: int) -> Mapping[str, str]:
    """Consent texts as shown, by hash."""
    query = sa.select(_texts.c.sha256, _texts.c.text).where(_texts.c.study_id == study_id)
    with store.read() as connection:
        return {row.sha256: row.text for row in connection.execute(query)}


def list_agreements(store: Store, study_id: int, last_event: int) -> Agreements:
    """Raters' agreements up to this event."""
    query = (
        sa.select(_events.c.subject, _events.c.at, _events.c.detail)
        .where(_events.c.study_id == study_id, _events.c.action == "consent", _events.c.id <= last_event)
        .order_by(_events.c.at, _events.c.id)
    )
    agreements: dict[str, list[Agreement]] = {}
    with store.read() as connection:
        for row in connection.execute(query):
            detail = json.loads(row.detail)
            agreement = Agreement(row.at, detail["text"], detail.get("language", ""), detail.get("sha256", ""))
            agreements.setdefault(row.subject, []).append(agreement)
    return Agreements({rater: tuple(history) for rater, history in agreements.items()})


def restore_agreements(store: Store, study_id: int, agreements: Agreements) -> None:
    """Record the agreements of an imported study, with their times."""
    with store.write(alone=True) as connection:
        for name, agreed in agreements.by_rater.items():
            for moment, number, language, sha256 in agreed:
                version = {"language": language, "sha256": sha256} if sha256 else {}
                record_event(connection, study_id, moment, name, "consent", name, text=number, **version)
            moment, number, _, _ = agreed[-1]
            mine = sa.and_(schema.rater.c.study_id == study_id, schema.rater.c.name == name)
            connection.execute(schema.rater.update().where(mine).values(consented=moment, agreed=number))


def ask_consent(store: Store, study_id: int, new: Consent, *, actor: str = "owner") -> int:
    """Ask all raters to agree to a new text, including those who agreed to another one; returns its number."""
    with store.write() as connection:
        study = lock(connection, schema.study, study_id)
        if consent_of(connection, study_id, study["consent"]) == new:
            return int(study["consent"])
        return _add_consent(connection, study_id, new, store.now(), actor)


def renew_consent(connection: Connection, study_id: int, now: int, *, actor: str = "owner") -> None:
    """Give the standard text a new number, so that raters are asked again, if it is in use and has agreements."""
    raters, number = schema.rater.c, _present_number(connection, study_id)
    agreed = sa.and_(raters.study_id == study_id, raters.kind == "human", raters.agreed == number)
    somebody = sa.select(raters.id).where(agreed, raters.consented.is_not(None)).limit(1)
    current = consent_of(connection, study_id, number)
    if not current.text and connection.scalar(somebody) is not None:
        _add_consent(connection, study_id, current, now, actor)


def renew_if_former(store: Store, study_id: int, agreements: Agreements, *, actor: str = "owner") -> None:
    """`renew_consent` if raters agreed to an outdated standard text."""
    with store.write() as connection:
        number = _present_number(connection, study_id)
        present = set(map(text_hash, _standard_texts()))
        newest = (history[-1] for history in agreements.by_rater.values())
        if any(agreement.number == number and agreement.sha256 not in present for agreement in newest):
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
    """All versions, number 1 first, without the standard text (number 0)."""
    query = sa.select(_rows).where(_rows.c.study_id == study_id).order_by(_rows.c.number)
    with store.read() as connection:
        return tuple(value_of(Consent, row) for row in connection.execute(query).mappings())


def present_consent(store: Store, study_id: int) -> Consent:
    """Version that raters agree to now."""
    with store.read() as connection:
        return consent_of(connection, study_id, _present_number(connection, study_id))


def _present_number(connection: Connection, study_id: int) -> int:
    number = connection.scalar(sa.select(schema.study.c.consent).where(schema.study.c.id == study_id))
    assert number is not None, "a study has a number of its text"
    return number


@reading
def consent_of(connection: Connection, study_id: int, number: int) -> Consent:
    """Version with this number."""
    query = sa.select(_rows).where(_rows.c.study_id == study_id, _rows.c.number == number)
    row = connection.execute(query).mappings().one_or_none()
    return Consent() if row is None else value_of(Consent, row)


def raters_due(store: Store, study_id: int) -> tuple[Rater, ...]:
    """People whose retention period, according to the text that each agreed to, is over."""
    days = {number: each.retention_days for number, each in enumerate(list_consents(store, study_id), 1)}
    now = store.now()
    due = []
    for rater in list_raters(store, study_id):
        retention, last = days.get(rater.agreed), max(rater.seen or 0, rater.consented or 0, rater.created)
        person = rater.kind == "human" and rater.role == "rater" and rater.forgotten is None
        if person and retention is not None and last + retention * DAY_MS <= now:
            due.append(rater)
    return tuple(due)
