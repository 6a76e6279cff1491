"""Feedback of users of a served model, as questions of a study that raters confirm or not.

A user is a rater under a pseudonym, HMAC-SHA-256 of an id that the application chooses, with the secret of the study:
consent, reliability, retention and forgetting are those of raters. A completion is kept (`keep_completion`) if its user
agreed to the present text of the study and it belongs to the share that is kept. What the user says of it
(`give_feedback`) is an item of the study with the user's vote, and is asked of raters until it has all its answers:

    good or bad           the completion as a single response
    a better version      the completion beside the version, which is better
    a preferred one       the completion beside another of the same conversation, which is better

The completion becomes a response with the first feedback. What is said twice counts once; the last word counts.
"""

import hashlib
import hmac
from dataclasses import dataclass, replace

from tutelage.base.errors import TutelageError
from tutelage.people.answers import BAD, GOOD, LONGEST_NAME, Answer, Correction, check_correction
from tutelage.people.assignment import reserve_turn
from tutelage.people.languages import LANGUAGES
from tutelage.people.store import completions, judgements
from tutelage.people.store.additions import StoredResponse, add_single_item
from tutelage.people.store.completions import USE, WRITTEN, KeptCompletion, ServedCompletion
from tutelage.people.store.consents import agree, present_consent, shown_text, text_hash
from tutelage.people.store.engine import DAY_MS, Connection, Store
from tutelage.people.store.rater_erasure import Forgotten, forget
from tutelage.people.store.raters import (
    NameTaken,
    Rater,
    find_rater,
    has_stand_ins,
    insert_rater,
    lock_rater,
    update_rater,
)
from tutelage.people.store.studies import Study, study_of
from tutelage.people.submission import submit_within
from tutelage.people.validation import storable


class OutdatedConsent(TutelageError):
    """The text that a user agreed to is not the present one of the study."""


class UnknownCompletion(TutelageError):
    """There is no completion of this id, of this user or any more."""


@dataclass(frozen=True)
class UserFeedback:
    """What a user says of a completion: whether it is `good`; a `better` version; the id of a completion that the user
    has `preferred` to it. None where the user says nothing."""

    completion: str
    good: bool | None = None
    better: str | None = None
    preferred: str | None = None

    def __post_init__(self) -> None:
        if (self.good, self.better, self.preferred) == (None, None, None):
            raise TutelageError("The feedback is empty: give a thumb, a better version or a preferred completion.")
        if self.preferred == self.completion:
            raise TutelageError("A completion cannot be preferred to itself: name another one.")


def refuse_other_kinds(study: Study) -> None:
    """Raises TutelageError for a study that takes no feedback from use."""
    if not study.kind.traits.single:
        raise TutelageError(
            f"'{study.name}' {study.kind.traits.does}; feedback from use needs a study that also asks about single "
            "responses, of another --kind (see `tutelage collect init --help`)."
        )


def user_pseudonym(study: Study, user: str) -> str:
    """The name of a user in the study: HMAC-SHA-256 of the application's id, keyed by the study's secret."""
    digest = hmac.new(bytes.fromhex(study.secret), f"user|{user}".encode(), hashlib.sha256).hexdigest()
    return f"user-{digest[:20]}"


def consent_text(store: Store, study_id: int, language: str) -> str:
    """The text that users agree to, in Markdown."""
    return shown_text(present_consent(store, study_id), live=True, use=True, language=language)


def admit_user(store: Store, study_id: int, user: str, consent: str) -> Rater:
    """The user as a rater, added with the first agreement; `consent` is the hash of the text that the user agreed to.

    Raises:
        OutdatedConsent: it is not that of the present text.
        TutelageError: the user's id is empty.
    """
    if not user.strip():
        raise TutelageError("A user needs an id that is not empty.")
    study = study_of(store, study_id)
    language = next((code for code in LANGUAGES if text_hash(consent_text(store, study_id, code)) == consent), None)
    if language is None:
        raise OutdatedConsent(
            "The text that the user agreed to is not the present one: show the present one, and ask again."
        )
    name = user_pseudonym(study, user)
    rater = find_rater(store, study_id, name)
    if rater is None:
        try:
            with store.write(alone=has_stand_ins(store, study_id)) as connection:
                rater = insert_rater(connection, study_id, name, now=store.now(), detail={"origin": USE}, actor=name)
        except NameTaken:  # by another request of the same user
            rater = find_rater(store, study_id, name)
            assert rater is not None, "only a rater takes a name"
    if rater.consented is None or rater.agreed != study.consent:
        agree(store, rater.id, language, live=True, use=True)
    return rater


def is_in_share(study: Study, key: str, share: float) -> bool:
    """Whether a completion belongs to the share that is kept."""
    return study.chance("share", key) < share


def keep_completion(store: Store, study_id: int, rater_id: int, served: ServedCompletion) -> bool:
    """Store a completion of a user who agreed, so that feedback can refer to it even after a crash of this process.
    Characters that databases cannot store are replaced. Returns whether it was stored; it is not if the user was
    forgotten meanwhile. Raises Unavailable if the database cannot be written at the moment."""
    messages = tuple(replace(message, content=storable(message.content)) for message in served.messages)
    text = None if served.text is None else storable(served.text)
    with store.write(lasting=False) as connection:
        if lock_rater(connection, rater_id).forgotten is not None:
            return False
        stored, now = replace(served, messages=messages, text=text), store.now()
        completions.insert_completion(connection, study_id, rater_id, stored, now)
        update_rater(connection, rater_id, seen=now)
        return True


def give_feedback(store: Store, study_id: int, user: str, feedback: UserFeedback, *, days: float) -> None:
    """Store what a user says of a completion of the last `days`; on disk when this returns.

    Raises:
        UnknownCompletion: the user has no such completion, or no longer.
        TutelageError: the version or the preferred completion is invalid.
        Unavailable: the database cannot be written at the moment; nothing was saved, send the same again.
    """
    since = store.now() - round(days * DAY_MS)
    with store.write() as connection:
        study = study_of(connection, study_id)
        rater = find_rater(connection, study_id, user_pseudonym(study, user))
        if rater is None:
            raise _unknown(feedback.completion)
        rater = lock_rater(connection, rater.id)
        desk = _Desk(store, connection, study, rater)
        completion = desk.find(feedback.completion, since)
        if feedback.good is not None:
            desk.ask(f"use-{completion.key}", (desk.response(completion),), Answer(GOOD if feedback.good else BAD))
            completions.set_outcome(connection, completion.id, float(feedback.good), store.now())
        if feedback.better is not None:
            desk.write_better(completion, feedback.better)
            if feedback.good is None:
                completions.set_outcome(connection, completion.id, 0.0, store.now())
        if feedback.preferred is not None:
            desk.prefer(completion, desk.find(feedback.preferred, since))


def forget_user(store: Store, study_id: int, user: str) -> Forgotten:
    """Erase a user, on the user's own request, as `rater_erasure.forget` erases a rater. Raises UnknownCompletion if
    nothing of the user is kept."""
    rater = find_rater(store, study_id, user_pseudonym(study_of(store, study_id), user))
    if rater is None:
        raise UnknownCompletion("Nothing of this user is kept.")
    return forget(store, rater.id, actor=rater.name)


def _unknown(key: str) -> UnknownCompletion:
    return UnknownCompletion(
        f"There is no completion {key[:LONGEST_NAME]!r} of this user: it was never kept, or has expired since."
    )


@dataclass(frozen=True)
class _Desk:
    """A transaction in which a user says something; the user's row is locked."""

    store: Store
    connection: Connection
    study: Study
    rater: Rater

    def find(self, key: str, since: int) -> KeptCompletion:
        """A completion of the user."""
        completion = completions.find_completion(self.connection, self.study.id, storable(key))
        if completion is None or completion.rater_id != self.rater.id or completion.created < since:
            raise _unknown(key)
        return completion

    def response(self, completion: KeptCompletion) -> StoredResponse:
        """The completion as a response."""
        number = completions.become_response(self.connection, self.study.id, completion)
        return completions.response_of(self.connection, number)

    def write_better(self, completion: KeptCompletion, text: str) -> None:
        """Ask about a better version; an earlier version of the same completion no longer counts."""
        check_correction(Correction(text, 0), (completion.text,))
        original, last, number = self.response(completion), None, 0
        while (later := self._version(completion, number + 1)) is not None:
            last, number = later, number + 1
        if last is None or last[1] != text:
            if last is not None:
                key, now = f"use-{completion.key}-better-{number}", self.store.now()
                completions.replace_item(self.connection, self.study.id, key, actor=self.rater.name, now=now)
            number += 1
            key = f"{completion.key}-better-{number}"
            version = completions.insert_text(
                self.connection, self.study.id, completion, key, text, sampler=WRITTEN, finished=True
            )
        else:
            version = last[0]
        displayed = (original, completions.response_of(self.connection, version))
        self.ask(f"use-{completion.key}-better-{number}", displayed, Answer("right", 1))

    def prefer(self, completion: KeptCompletion, other: KeptCompletion) -> None:
        """Ask about two completions of one conversation, of which the user prefers the other."""
        if completion.messages != other.messages:
            raise TutelageError("The two completions reply to different conversations, so they cannot be compared.")
        if completion.text == other.text:
            raise TutelageError("The two completions have the same text, so neither is better.")
        first, second = sorted((completion, other), key=lambda each: each.id)
        pair = (self.response(first), self.response(second))
        choice = "right" if other.id == second.id else "left"
        self.ask(f"use-{first.key}-{second.key}", pair, Answer(choice, 1))

    def ask(self, key: str, displayed: tuple[StoredResponse, ...], answer: Answer) -> None:
        """Add the item unless it exists, with the responses as the user saw them, and store the user's vote unless it
        is the last one."""
        order = tuple(range(len(displayed)))
        if self.study.chance("canonical", key) < 0.5:
            order = order[::-1]
        item_id = completions.item_of_key(self.connection, self.study.id, key)
        if item_id is None:
            item_id = add_single_item(
                self.connection, self.study, key, tuple(displayed[place] for place in order),
                origin=USE, round=1, second=self.study.chance("second", key), now=self.store.now(),
            )  # fmt: skip
        question = reserve_turn(self.store, self.connection, self.study, self.rater, item_id, order, chosen_by="use")
        before = judgements.find_judgements(self.connection, self.study.id, "", question.id)[1]
        previous = judgements.displayed_answer(self.connection, before.id) if before is not None else None
        if previous != (answer.choice, answer.strength):
            submit_within(self.connection, question.id, answer, self.store.now(), rater_id=self.rater.id)

    def _version(self, completion: KeptCompletion, number: int) -> tuple[int, str] | None:
        """Id and text of a version that the user wrote of a completion, by its number from 1."""
        return completions.find_text(self.connection, self.study.id, f"{completion.key}-better-{number}")
