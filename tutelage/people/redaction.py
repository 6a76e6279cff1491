"""Likely personal data in an export, and the same export without it.

Searched are the texts that people wrote in the study: reasons of answers and of exclusions, better responses, and live
conversations, the models' answers included, because models repeat what they read; not the prompts and responses that
the study was made with. Raters have pseudonyms in any case.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from tutelage.base.extras import MissingExtra
from tutelage.people.answers import Correction, Span
from tutelage.people.languages import Sentence
from tutelage.people.personal_data import KINDS, Finding, PersonalDataSearch, move_position, replace_findings
from tutelage.people.store.engine import Store
from tutelage.people.store.item_catalogue import Question
from tutelage.people.store.raters import Rater, list_raters
from tutelage.people.store.turns import LIVE
from tutelage.people.store.votes import Vote
from tutelage.people.training_data import LabelledStudy, Row

AROUND = 30
"""Characters that are shown to each side of what was found."""
_Find: TypeAlias = Callable[[str], Sequence[Finding]]


@dataclass(frozen=True)
class Place:
    """A place that seems to hold personal data: its kind, the sort of text, the item, and the words around it."""

    kind: str
    what: str
    item: str
    before: str
    found: str
    after: str

    @property
    def name(self) -> Sentence:
        """What the kind is called."""
        return KINDS[self.kind][0]


@dataclass(frozen=True)
class Hints:
    """What looks like personal data in an export; `problem` says why nothing was looked for, if so."""

    places: tuple[Place, ...] = ()
    problem: str = ""

    @property
    def counts(self) -> dict[str, int] | None:
        """How often each kind was found, in the order of `KINDS`; None where nothing was looked for."""
        counted = Counter(place.kind for place in self.places)
        return None if self.problem else {kind: counted[kind] for kind in KINDS if counted[kind]}

    @property
    def told(self) -> tuple[Sentence, ...]:
        """The counts in words, by kind."""
        return tuple(KINDS[kind][1](count) for kind, count in (self.counts or {}).items())

    @property
    def sentence(self) -> str:
        """The counts in words, in English; empty where there are none."""
        return ", ".join(self.told)


def find_places(store: Store, study_id: int, votes: Iterable[Vote], questions: Iterable[Question]) -> Hints:
    """Look for personal data in the texts of an export. A text that occurs again and again is looked at once."""
    try:
        search = search_of(store, study_id)
    except MissingExtra as error:
        return Hints(problem=str(error))
    return Hints(tuple(_places(votes, questions, search)))


def search_of(store: Store, study_id: int) -> PersonalDataSearch:
    """A search that knows the names of the people in the study.

    Raises:
        MissingExtra: the libraries that it takes are not installed.
    """
    return PersonalDataSearch(rater.name for rater in list_raters(store, study_id) if rater.kind == "human")


def redact_study(
    labelled: LabelledStudy, questions: Sequence[Question], search: PersonalDataSearch
) -> tuple[LabelledStudy, tuple[Question, ...]]:
    """The labelled study and its questions with `[email]`, `[phone]`, … for each finding. Spans mark the same words."""
    find = cache(search.find)
    before = {question.key: question for question in questions}
    after = {key: _question(question, find) for key, question in before.items()}
    votes = tuple(_vote(vote, before[vote.item], find) for vote in labelled.votes)
    by_number = {vote.id: vote for vote in votes}
    changed = replace(
        labelled,
        votes=votes,
        rows=tuple(_row(row, after[row.question.key]) for row in labelled.rows),
        bad=tuple(after[question.key] for question in labelled.bad),
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


def redact_rater(rater: Rater, search: PersonalDataSearch) -> Rater:
    """The rater with the reason of an exclusion as `redacted` writes it."""
    return replace(rater, excluded=rater.excluded and search.redact(rater.excluded))


def redact_reasons(
    excluded: Mapping[str, Mapping[str, str]], search: PersonalDataSearch
) -> dict[str, dict[str, str]]:
    """The reasons of exclusions, by scope and name, as `redacted` writes them."""
    return {
        scope: {name: search.redact(reason) for name, reason in reasons.items()}
        for scope, reasons in excluded.items()
    }


def _places(
    votes: Iterable[Vote], questions: Iterable[Question], search: PersonalDataSearch
) -> Iterator[Place]:
    seen: set[str] = set()
    for what, item, text in _texts(votes, questions):
        if text in seen:
            continue
        seen.add(text)
        for each in search.find(text):
            before, after = text[: each.start][-AROUND:], text[each.end :][:AROUND]
            yield Place(each.kind, what, item, before, text[each.start : each.end], after)


def _texts(votes: Iterable[Vote], questions: Iterable[Question]) -> Iterator[tuple[str, str, str]]:
    """What people wrote: the sort of each text, the item that it is about, and the text."""
    for vote in votes:
        yield Sentence("reason"), vote.item, vote.reason
        yield Sentence("reason of an exclusion"), vote.item, vote.excluded or ""
        if vote.correction is not None:
            yield Sentence("better response"), vote.item, vote.correction.text
    for question in questions:
        if question.item.origin == LIVE:
            for message in question.messages:
                written = Sentence("message") if message.role == "user" else Sentence("answer")
                yield written, question.key, message.content
            for text in question.texts:
                yield Sentence("answer"), question.key, text


def _question(question: Question, find: _Find) -> Question:
    if question.item.origin != LIVE:
        return question
    messages = tuple(replace(each, content=_clean(each.content, find)) for each in question.messages)
    completions = tuple(replace(each, text=_clean(each.text, find)) for each in question.completions)
    return replace(question, prompt=replace(question.prompt, messages=messages), completions=completions)


def _clean(text: str, find: _Find) -> str:
    return replace_findings(text, find(text))


def _correction(correction: Correction, find: _Find) -> Correction:
    return replace(correction, text=_clean(correction.text, find))


def _vote(vote: Vote, before: Question, find: _Find) -> Vote:
    correction, spans = vote.correction, vote.spans
    if correction is not None:
        correction = _correction(correction, find)
    if spans and before.item.origin == LIVE:
        spans = tuple(_span(span, find(before.texts[span.response])) for span in spans)
    excluded = vote.excluded and _clean(vote.excluded, find)
    return replace(
        vote, reason=_clean(vote.reason, find), excluded=excluded, correction=correction, spans=spans
    )


def _span(span: Span, findings: Sequence[Finding]) -> Span:
    return replace(
        span, start=move_position(span.start, findings), end=move_position(span.end, findings, end=True)
    )


def _row(row: Row, question: Question) -> Row:
    preference = replace(
        row.preference,
        messages=question.messages,
        chosen=question.texts[row.chosen],
        rejected=question.texts[row.rejected],
    )
    return replace(row, question=question, preference=preference)
