"""Detection and redaction of likely personal data in an export.

Searched are the texts written in the study: reasons for answers and exclusions, corrections, and live conversations,
including responses of models, which may repeat personal data; not the prompts and responses that the study was created
with. Raters have pseudonyms in any case.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeAlias

from tutelage.base.extras import MissingExtra
from tutelage.data.records import Message
from tutelage.data.transcripts import transcript_text
from tutelage.people.answers import Correction, map_displayed, map_texts, texts_in
from tutelage.people.images import turn_with_parts, with_parts
from tutelage.people.languages import Sentence
from tutelage.people.personal_data import KINDS, Finding, PersonalDataSearch, move_position, replace_findings
from tutelage.people.store.conversations import LIVE
from tutelage.people.store.engine import Store
from tutelage.people.store.item_catalogue import Question
from tutelage.people.store.raters import Rater, list_raters
from tutelage.people.store.votes import Vote
from tutelage.people.training_data import LabelledStudy, Row

AROUND = 30
"""Characters of context on each side of a finding."""
_Find: TypeAlias = Callable[[str], Sequence[Finding]]


@dataclass(frozen=True)
class Place:
    """A location of likely personal data: its kind, the type of text, the item, and the text around it."""

    kind: str
    what: str
    item: str
    before: str
    found: str
    after: str

    @property
    def name(self) -> Sentence:
        return KINDS[self.kind][0]


@dataclass(frozen=True)
class Hints:
    """Likely personal data in an export. `problem` is the reason if no search was possible."""

    places: tuple[Place, ...] = ()
    problem: str = ""

    @property
    def counts(self) -> dict[str, int] | None:
        """The numbers of findings by kind, in the order of `KINDS`; None if no search was possible."""
        counted = Counter(place.kind for place in self.places)
        return None if self.problem else {kind: counted[kind] for kind in KINDS if counted[kind]}

    @property
    def told(self) -> tuple[Sentence, ...]:
        """The counts in words, one sentence per kind."""
        return tuple(KINDS[kind][1](count) for kind, count in (self.counts or {}).items())

    @property
    def sentence(self) -> str:
        """The counts in words, in English; empty if there are none."""
        return ", ".join(self.told)


def find_places(store: Store, study_id: int, votes: Iterable[Vote], questions: Iterable[Question]) -> Hints:
    """Search the texts of an export for personal data; repeated texts are searched once."""
    try:
        search = search_of(store, study_id)
    except MissingExtra as error:
        return Hints(problem=str(error))
    return Hints(tuple(_places(votes, questions, search)))


def search_of(store: Store, study_id: int) -> PersonalDataSearch:
    """A search for personal data, including the names of people in the study. Raises MissingExtra if the libraries of
    the extra `collect` are not installed."""
    return PersonalDataSearch(rater.name for rater in list_raters(store, study_id) if rater.kind == "human")


def redact_study(
    labelled: LabelledStudy, questions: Sequence[Question], search: PersonalDataSearch
) -> tuple[LabelledStudy, tuple[Question, ...]]:
    """The labelled study and its questions, with findings replaced by `[email]`, `[phone]`, … and spans shifted
    accordingly."""
    find, votes = cache(search.find), redact_votes(labelled.votes, questions, search)
    before = {question.key: question for question in questions}
    after = {key: _question(question, find) for key, question in before.items()}
    by_number = {vote.id: vote for vote in votes}
    changed = replace(
        labelled,
        votes=votes,
        rows=tuple(_row(row, after[row.question.key]) for row in labelled.rows),
        bad=tuple(after[question.key] for question in labelled.bad),
        rated=tuple(replace(row, question=after[row.question.key]) for row in labelled.rated),
        corrections=tuple(
            replace(
                each,
                vote=by_number[each.vote.id],
                question=after[each.question.key],
                correction=_correction(each.correction, find),
            )
            for each in labelled.corrections
        ),
    )
    return changed, tuple(after.values())


def redact_votes(votes: Iterable[Vote], questions: Sequence[Question], search: PersonalDataSearch) -> tuple[Vote, ...]:
    """The votes with findings in their texts replaced, and spans shifted accordingly."""
    find = cache(search.find)
    before = {question.key: question for question in questions}
    return tuple(_vote(vote, before[vote.item], find) for vote in votes)


def redact_rater(rater: Rater, search: PersonalDataSearch) -> Rater:
    """The rater with a redacted reason for exclusion."""
    return replace(rater, excluded=rater.excluded and search.redact(rater.excluded))


def redact_reasons(excluded: Mapping[str, Mapping[str, str]], search: PersonalDataSearch) -> dict[str, dict[str, str]]:
    """The reasons for exclusions, redacted, by scope and name."""
    return {
        scope: {name: search.redact(reason) for name, reason in reasons.items()} for scope, reasons in excluded.items()
    }


def _places(votes: Iterable[Vote], questions: Iterable[Question], search: PersonalDataSearch) -> Iterator[Place]:
    texts: set[str] = set()
    for what, item, text in _texts(votes, questions):
        if text in texts:
            continue
        texts.add(text)
        for each in search.find(text):
            before, after = text[: each.start][-AROUND:], text[each.end :][:AROUND]
            yield Place(each.kind, what, item, before, text[each.start : each.end], after)


def _texts(votes: Iterable[Vote], questions: Iterable[Question]) -> Iterator[tuple[str, str, str]]:
    """The texts to search: the type of each, its item, and the text."""
    for vote in votes:
        yield Sentence("reason"), vote.item, vote.reason
        for text in texts_in(vote.content):
            yield Sentence("reason"), vote.item, text
        yield Sentence("reason of an exclusion"), vote.item, vote.excluded or ""
        if vote.correction is not None:
            yield Sentence("better response"), vote.item, vote.correction.text
    for question in questions:
        if question.item.origin == LIVE:
            for message in question.messages:
                kind = Sentence("message") if message.role == "user" else Sentence("answer")
                yield kind, question.key, message.content if message.is_text else transcript_text((message,))
            for text in question.texts:
                yield Sentence("answer"), question.key, text


def _question(question: Question, find: _Find) -> Question:
    if question.item.origin != LIVE:
        return question
    messages = tuple(_message(each, find) for each in question.messages)
    completions = tuple(
        replace(
            each,
            text=_clean(each.text, find),
            steps=tuple(
                _clean(step, find) if isinstance(step, str) else tuple(_message(message, find) for message in step)
                for step in each.steps
            ),
        )
        for each in question.completions
    )
    return replace(question, prompt=replace(question.prompt, messages=messages), completions=completions)


def _message(message: Message, find: _Find) -> Message:
    """A message with its content and the arguments of its calls redacted."""
    clean = partial(_clean, find=find)
    calls = []
    for call in message.calls:
        arguments = _value(json.loads(call.arguments), clean)
        calls.append(replace(call, arguments=json.dumps(arguments, ensure_ascii=False)))
    return replace(message, content=clean(message.content), thinking=clean(message.thinking), calls=tuple(calls))


def _value(value: object, clean: Callable[[str], str]) -> object:
    """A JSON value with its texts and names redacted; a number that is personal data becomes a text."""
    if isinstance(value, dict):
        return {clean(name): _value(each, clean) for name, each in value.items()}
    if isinstance(value, list):
        return [_value(each, clean) for each in value]
    if value is None or isinstance(value, bool):
        return value
    text = clean(str(value))
    return text if isinstance(value, str) or text != str(value) else value


def _clean(text: str, find: _Find) -> str:
    return replace_findings(text, find(text))


def _correction(correction: Correction, find: _Find) -> Correction:
    return replace(correction, text=_clean(correction.text, find))


def _vote(vote: Vote, before: Question, find: _Find) -> Vote:
    correction, spans = vote.correction, vote.spans
    if correction is not None:
        correction = _correction(correction, find)
    if spans and before.item.origin == LIVE:
        found = [find(before.texts[span.response]) for span in spans]
        spans = tuple(
            replace(span, start=move_position(span.start, each), end=move_position(span.end, each, end=True))
            for span, each in zip(spans, found, strict=True)
        )
    excluded = vote.excluded and _clean(vote.excluded, find)
    clean = partial(_clean, find=find)
    return replace(
        vote, reason=clean(vote.reason), excluded=excluded, correction=correction, spans=spans,
        content=map_texts(vote.content, clean), displayed=map_displayed(vote.displayed, clean),
    )  # fmt: skip


def _row(row: Row, question: Question) -> Row:
    preference = replace(
        row.preference,
        messages=with_parts(question.messages),
        chosen=turn_with_parts(question.turns[row.chosen]),
        rejected=turn_with_parts(question.turns[row.rejected]),
    )
    return replace(row, question=question, preference=preference)
