"""Votes from tables: the roles of columns, the meanings of choice words, and the votes of each row.

`VotesRead.dropped` counts unusable votes by reason, with their first locations.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.readers import RowPlace
from tutelage.data.records import CompletionRecord, Messages, Prompt, Split, prompt_id, stable_id, user
from tutelage.data.tables import Table
from tutelage.people.answers import Answer
from tutelage.people.kinds.kind import Kind, Screen
from tutelage.people.languages import Sentence, counted
from tutelage.people.store.bulk import AnswerRecord
from tutelage.people.store.items import Item
from tutelage.people.validation import FieldError, find_named

CHOICES: Mapping[str, tuple[str, int]] = {
    "a": ("a", 2), "b": ("b", 2), "model_a": ("a", 2), "model_b": ("b", 2), "tie": ("tie", 0), "equal": ("tie", 0),
    "a-is-slightly-better": ("a", 1), "a-is-better": ("a", 2), "a-is-much-better": ("a", 3),
    "b-is-slightly-better": ("b", 1), "b-is-better": ("b", 2), "b-is-much-better": ("b", 3),
    "both_bad": ("both_bad", 0), "bothbad": ("both_bad", 0), "tie (bothbad)": ("both_bad", 0), "skip": ("skip", 0),
}  # fmt: skip
"""Verdict and strength by choice word, case-insensitive."""
MEANINGS = tuple(word for word in CHOICES if word not in ("model_a", "model_b", "equal", "bothbad", "tie (bothbad)"))
"""The meanings that can be assigned to the choice words of a table."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table of votes. `prompt` may name several columns, which are joined by blank lines. A row holds
    one vote by the rater in column `rater`; with `annotators`, it holds one vote per annotator, each in the column
    named after the annotator (empty: no vote). `time` is ISO 8601 or seconds since the epoch. `choices` maps words
    beyond those in `CHOICES` to verdict and strength."""

    prompt: str | tuple[str, ...] = "prompt"
    a: str = "completion_a"
    b: str = "completion_b"
    choice: str = "preference"
    rater: str = "evaluator"
    model_a: str | None = None
    model_b: str | None = None
    time: str | None = None
    reason: str | None = None
    choices: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    annotators: tuple[str, ...] = ()

    @property
    def prompts(self) -> tuple[str, ...]:
        """The columns of the prompt."""
        return (self.prompt,) if isinstance(self.prompt, str) else self.prompt


def meaning_of(text: str) -> tuple[str, int]:
    """The verdict and strength of a word in `MEANINGS`.

    Raises:
        FieldError: the word is not in `MEANINGS`.
    """
    refusal = Sentence("“%(given)s” is no meaning of a choice; it is one of %(known)s.")
    return find_named("means", text.strip().lower(), CHOICES, refusal, known=MEANINGS)


def require_columns(table: Table, columns: Columns, kind: Kind) -> None:
    """Raises FieldError for the first missing column, listing the columns of the table; TutelageError for a table of
    pairs without votes."""
    needed = _needed(columns, kind)
    missing = {name: field for name, field in needed if name not in table.columns}
    if {"chosen", "rejected"} <= set(table.columns) and {"rater", "annotators"} & set(missing.values()):
        raise TutelageError(
            Sentence(
                "%(source)s holds pairs without votes (chosen, rejected). To ask people about them, make questions of "
                "them: tutelage collect init STUDY --from-pairs %(source)s.",
                source=str(table.source),
            )
        )
    if missing:
        raise FieldError(
            next(iter(missing.values())),
            "%(source)s has no column %(missing)s; it has %(known)s. Say which columns hold the votes.",
            source=str(table.source),
            missing=", ".join(repr(name) for name in missing),
            known=_listed(table.columns),
        )


def _needed(columns: Columns, kind: Kind) -> list[tuple[str, str]]:
    """The required columns, each with its field of `Columns`."""
    who = [(name, "annotators") for name in columns.annotators] or [(columns.rater, "rater")]
    if kind.traits.sides and not columns.annotators:
        who = [(columns.choice, "choice"), *who]
    others = ((getattr(columns, field), field) for field in ("model_a", "model_b", "time", "reason"))
    return [
        *((name, "prompt") for name in columns.prompts),
        (columns.a, "a"),
        (columns.b, "b"),
        *who,
        *((name, field) for name, field in others if name),
    ]


def _listed(names: Sequence[str], most: int = 30) -> str:
    shown = ", ".join(names[:most])
    if len(names) <= most:
        return shown
    return counted(
        "%(shown)s and %(count)s other", "%(shown)s and %(count)s others", count=len(names) - most, shown=shown
    )


HELD_OUT_SHARE = 10
SHOWN = 5
YEAR_10000 = 253_402_300_800
"""Seconds since the epoch; larger values are not accepted as times."""
Places: TypeAlias = tuple[int, tuple[str, ...]]
Dropped: TypeAlias = Mapping[str, Places]
"""Unusable votes by reason: their number and first locations."""
IDENTICAL = Sentence("both responses are the same text")


@dataclass(frozen=True)
class VotesRead:
    """The votes of a table, with their prompts, responses and items. `words` counts choice words; `dropped` counts
    unusable votes by reason, with their first locations."""

    votes: tuple[AnswerRecord, ...]
    prompts: Mapping[str, Prompt]
    completions: Mapping[str, CompletionRecord]
    items: Mapping[str, Item]
    words: Mapping[str, int]
    dropped: Dropped

    @property
    def faults(self) -> Dropped:
        """Votes dropped because of an error; votes on identical responses are valid, but carry no information."""
        return {reason: places for reason, places in self.dropped.items() if reason != IDENTICAL}


def read_votes(table: Table, columns: Columns, kind: Kind, screen: Screen) -> VotesRead:
    """Read the votes of a table without storing them.

    For kinds of questions other than pairs, columns as in an export's `votes.csv` (`Kind.cells`) replace the choice
    column. Side a of the file is assumed to have been displayed on the left.

    Raises:
        TutelageError: a column is missing.
    """
    require_columns(table, columns, kind)
    reader = _VoteReader(columns, kind, screen)
    for broken in table.broken:
        reader.drop(broken.reason, broken.where)
    votes = tuple(vote for row in table.rows for vote in reader.votes(row.where, row.values))
    return VotesRead(votes, reader.prompts, reader.completions, reader.items, reader.words, reader.reasons())


class _VoteReader:
    """Reads votes from the rows of a table, and collects their prompts, responses and items."""

    def __init__(self, columns: Columns, kind: Kind, screen: Screen) -> None:
        self.columns, self.kind, self.screen = columns, kind, screen
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[str, CompletionRecord] = {}
        self.items: dict[str, Item] = {}
        self.words: Counter[str] = Counter()
        self._dropped: dict[str, Places] = {}
        self._unknown: dict[str, Places] = {}
        self._keys: Counter[str] = Counter()

    def votes(self, where: str, values: Mapping[str, object]) -> Iterator[AnswerRecord]:
        """The votes of a row. Adds their prompts, responses and items to those of the reader."""
        names = self.columns
        if not names.annotators:
            words = [(_text(values, names.rater), _text(values, names.choice))]
        else:
            words = [(name.strip(), _text(values, name)) for name in names.annotators if _text(values, name)]
        for rater, word in words:
            vote = self._vote(where, values, rater, word)
            if vote is not None:
                yield vote

    def _vote(self, where: str, values: Mapping[str, object], rater: str, word: str) -> AnswerRecord | None:
        names = self.columns
        request = "\n\n".join(filter(None, (_text(values, name) for name in names.prompts)))
        texts = [_text(values, name) for name in (names.a, names.b)]
        if not request or not all(texts):
            self.drop(Sentence("the prompt or a response is missing"), where)
            return None
        if not rater:
            self.drop(Sentence("no rater is named"), where)
            return None
        meaning = self._meaning(word, values, where)
        if meaning is None:
            return None
        prompt = prompt_of(user(request))
        models = [_text(values, name) for name in (names.model_a, names.model_b)]
        both = [completion_of(prompt, text, model) for text, model in zip(texts, models, strict=True)]
        if both[0].id == both[1].id:
            self.drop(IDENTICAL, where)
            return None
        item = item_of(prompt, [completion.id for completion in both], "imported")
        self.prompts[prompt.id], self.items[item.key] = prompt, item
        self.completions |= {completion.id: completion for completion in both}
        return self._told(item, both, rater, meaning, values)

    def _meaning(self, word: str, values: Mapping[str, object], where: str) -> Answer | None:
        """The answer of a row, with a as the left side; None if it is unusable, in which case it is counted as
        dropped."""
        if not self.kind.traits.sides:
            return self._content(values, where)
        self.words[word] += 1
        verdict, strength = self.columns.choices.get(word) or CHOICES.get(word.lower(), ("", 0))
        if verdict:
            return Answer({"a": "left", "b": "right"}.get(verdict, verdict), strength)
        count, places = self._unknown.get(word, (0, ()))
        self._unknown[word] = (count + 1, _with(places, where))
        return None

    def _content(self, values: Mapping[str, object], where: str) -> Answer | None:
        """The answer of a row for kinds of questions other than pairs."""
        meaning = self.kind.read(values, self.screen)
        if meaning is None:
            self.drop(Sentence("columns of its kind are missing"), where)
            return None
        try:
            if meaning.content:
                self.kind.check(meaning, self.screen)
        except TutelageError as error:
            self.drop(error.args[0], where)
            return None
        return meaning

    def _told(
        self,
        item: Item,
        completions: Sequence[CompletionRecord],
        rater: str,
        meaning: Answer,
        values: Mapping[str, object],
    ) -> AnswerRecord:
        sides = tuple(item.responses.index(completion.id) for completion in completions)
        created = milliseconds(_text(values, self.columns.time))
        reason = _text(values, self.columns.reason)
        parts = [meaning.choice, str(meaning.strength), *([str(dict(meaning.content))] if meaning.content else [])]
        name = stable_id(item.key, rater, str(sides), *parts, str(created), reason)
        self._keys[name] += 1
        answer = replace(meaning, reason=reason, client="import", key=f"{name}-{self._keys[name]}")
        return AnswerRecord(item.key, rater, sides, answer, created)

    def drop(self, reason: str, where: str) -> None:
        """Count an unusable vote."""
        count, places = self._dropped.get(reason, (0, ()))
        self._dropped[reason] = (count + 1, _with(places, where))

    def reasons(self) -> dict[str, Places]:
        """Dropped votes by reason. The most frequent unknown choice words are listed individually."""
        unknown = sorted(self._unknown.items(), key=lambda each: (-each[1][0], each[0]))
        reasons: dict[str, Places] = {
            Sentence("the choice '%(word)s' is not known", word=word[:50]): places for word, places in unknown[:SHOWN]
        }
        others = unknown[SHOWN:]
        if others:
            places = tuple(place for _, (_, some) in others for place in some)[:SHOWN]
            total = sum(count for _, (count, _) in others)
            reason = counted(
                "%(count)s other choice is not known", "%(count)s other choices are not known", count=len(others)
            )
            reasons[reason] = (total, places)
        return self._dropped | reasons


def prompt_of(messages: Messages) -> Prompt:
    """The prompt of messages, with their hash as its id; one in ten prompts is held out."""
    key = prompt_id(messages)
    split: Split = "held_out" if int(stable_id("split", key), 16) % HELD_OUT_SHARE == 0 else "train"
    return Prompt(key, messages, split)


def completion_of(prompt: Prompt, text: str, sampler: str) -> CompletionRecord:
    """The record of a response, with its hash as the id."""
    return CompletionRecord(stable_id(prompt.id, sampler, text), prompt.id, text, sampler)


def item_of(prompt: Prompt, responses: Sequence[str], origin: str) -> Item:
    """A pair as an item. Its canonical order is that of the response ids, which are hashes and thus effectively
    random."""
    a, b = sorted(responses)
    return Item(stable_id(prompt.id, a, b), prompt.id, (a, b), origin)


def milliseconds(text: str) -> int:
    """Milliseconds since the epoch of a time in ISO 8601 (UTC by default) or in seconds since the epoch; 0 if empty."""
    if not text:
        return 0
    try:
        seconds = float(text)
    except ValueError:
        seconds = inf
    if abs(seconds) < YEAR_10000:
        return int(seconds * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise FieldError(
            "time", "“%(given)s” is no time: give ISO 8601 or seconds since the epoch.", given=text[:50]
        ) from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _with(places: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Append a location unless there are `SHOWN` already; locations of rows become sentences."""
    if len(places) == SHOWN:
        return places
    return (*places, where.sentence() if isinstance(where, RowPlace) else where)


def _text(values: Mapping[str, object], name: str | None) -> str:
    """A cell as text; whole numbers stored as floats (1.0) are written without decimals."""
    value = values.get(name) if name else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()
