"""Votes read from tables: which columns hold what, what the words for a choice mean, and the votes of the rows.

Votes that cannot be used are counted in `VotesRead.dropped`, by reason, with the first places.
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
"""What the words for a choice mean: verdict and strength. Spelling in capitals or small letters does not matter."""
MEANINGS = tuple(
    word for word in CHOICES if word not in ("model_a", "model_b", "equal", "bothbad", "tie (bothbad)")
)
"""The words that a table's own words may be given the meaning of."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table of votes. `prompt` may be several, joined by blank lines. A row holds one vote, of the
    rater in `rater`; or, with `annotators`, the votes of so many raters, each in a column of its own that is named
    after the rater, where an empty cell is no vote. `time` is read as ISO 8601 or as seconds since the epoch; `choices`
    gives the meaning of other words than those in `CHOICES`."""

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
        """The columns that make up the prompt."""
        return (self.prompt,) if isinstance(self.prompt, str) else self.prompt


def meaning_of(text: str) -> tuple[str, int]:
    """The verdict and strength that a word of `MEANINGS` stands for.

    Raises:
        FieldError: it is none of them.
    """
    refusal = Sentence("“%(given)s” is no meaning of a choice; it is one of %(known)s.")
    return find_named("means", text.strip().lower(), CHOICES, refusal, known=MEANINGS)


def require_columns(table: Table, columns: Columns, kind: Kind) -> None:
    """Raises FieldError for the first missing column, with those there are; for a table of pairs, with what to do."""
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
    """The columns that are read, each with the field of `Columns` that names it."""
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
        "%(shown)s and %(count)s other",
        "%(shown)s and %(count)s others",
        count=len(names) - most,
        shown=shown,
    )


HELD_OUT_SHARE = 10
SHOWN = 5
YEAR_10000 = 253_402_300_800
"""Seconds since the epoch that are no time any more."""
Places: TypeAlias = tuple[int, tuple[str, ...]]
Dropped: TypeAlias = Mapping[str, Places]
"""Votes that cannot be used, by reason: how many, and the first few places."""
IDENTICAL = Sentence("both responses are the same text")


@dataclass(frozen=True)
class VotesRead:
    """The votes of a table, with their prompts, responses and items. `words` counts the words for a choice; `dropped`
    unusable votes by reason, with the first places."""

    votes: tuple[AnswerRecord, ...]
    prompts: Mapping[str, Prompt]
    completions: Mapping[str, CompletionRecord]
    items: Mapping[str, Item]
    words: Mapping[str, int]
    dropped: Dropped

    @property
    def faults(self) -> Dropped:
        """What was dropped because something is wrong with it; a vote on two equal texts only says nothing."""
        return {reason: told for reason, told in self.dropped.items() if reason != IDENTICAL}


def read_votes(table: Table, columns: Columns, kind: Kind, screen: Screen) -> VotesRead:
    """Read the votes of a table, which are not written anywhere yet.

    A study that asks for more than a side reads columns such as an export's `votes.csv` has (`Kind.cells`) instead of
    the choice. The side that the file calls a is taken to have been shown on the left.

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
    """Reads votes from the rows of a table, and collects the prompts, responses and items that they speak of."""

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
        """The votes of a row; what they speak of is remembered."""
        names = self.columns
        if not names.annotators:
            said = [(_text(values, names.rater), _text(values, names.choice))]
        else:
            said = [(name.strip(), _text(values, name)) for name in names.annotators if _text(values, name)]
        for rater, word in said:
            vote = self._vote(where, values, rater, word)
            if vote is not None:
                yield vote

    def _vote(self, where: str, values: Mapping[str, object], rater: str, word: str) -> AnswerRecord | None:
        names = self.columns
        asked = "\n\n".join(filter(None, (_text(values, name) for name in names.prompts)))
        texts = [_text(values, name) for name in (names.a, names.b)]
        if not asked or not all(texts):
            self.drop(Sentence("the prompt or a response is missing"), where)
            return None
        if not rater:
            self.drop(Sentence("no rater is named"), where)
            return None
        meaning = self._meaning(word, values, where)
        if meaning is None:
            return None
        prompt = prompt_of(user(asked))
        models = [_text(values, name) for name in (names.model_a, names.model_b)]
        shown = [completion_of(prompt, text, model) for text, model in zip(texts, models, strict=True)]
        if shown[0].id == shown[1].id:
            self.drop(IDENTICAL, where)
            return None
        item = item_of(prompt, [completion.id for completion in shown], "imported")
        self.prompts[prompt.id], self.items[item.key] = prompt, item
        self.completions |= {completion.id: completion for completion in shown}
        return self._told(item, shown, rater, meaning, values)

    def _meaning(self, word: str, values: Mapping[str, object], where: str) -> Answer | None:
        """What a row says, a as the left side; what cannot be used is dropped."""
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
        """An answer of a kind that asks for more than a side."""
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
        shown: Sequence[CompletionRecord],
        rater: str,
        meaning: Answer,
        values: Mapping[str, object],
    ) -> AnswerRecord:
        sides = tuple(item.responses.index(completion.id) for completion in shown)
        created = milliseconds(_text(values, self.columns.time))
        reason = _text(values, self.columns.reason)
        said = [
            meaning.choice,
            str(meaning.strength),
            *([str(dict(meaning.content))] if meaning.content else []),
        ]
        name = stable_id(item.key, rater, str(sides), *said, str(created), reason)
        self._keys[name] += 1
        answer = replace(meaning, reason=reason, client="import", key=f"{name}-{self._keys[name]}")
        return AnswerRecord(item.key, rater, sides, answer, created)

    def drop(self, reason: str, where: str) -> None:
        """Count a vote that cannot be used."""
        count, places = self._dropped.get(reason, (0, ()))
        self._dropped[reason] = (count + 1, _with(places, where))

    def reasons(self) -> dict[str, Places]:
        """What was dropped, by reason. Of the words that are not known, the most frequent ones are named."""
        unknown = sorted(self._unknown.items(), key=lambda each: (-each[1][0], each[0]))
        found: dict[str, Places] = {
            Sentence("the choice '%(word)s' is not known", word=word[:50]): told
            for word, told in unknown[:SHOWN]
        }
        others = unknown[SHOWN:]
        if others:
            places = tuple(place for _, (_, some) in others for place in some)[:SHOWN]
            total = sum(count for _, (count, _) in others)
            told = counted(
                "%(count)s other choice is not known",
                "%(count)s other choices are not known",
                count=len(others),
            )
            found[told] = (total, places)
        return self._dropped | found


def prompt_of(messages: Messages) -> Prompt:
    """A prompt under its own hash, one in ten of them held out."""
    key = prompt_id(messages)
    split: Split = "held_out" if int(stable_id("split", key), 16) % HELD_OUT_SHARE == 0 else "train"
    return Prompt(key, messages, split)


def completion_of(prompt: Prompt, text: str, sampler: str) -> CompletionRecord:
    """A response under its own hash."""
    return CompletionRecord(stable_id(prompt.id, sampler, text), prompt.id, text, sampler)


def item_of(prompt: Prompt, responses: Sequence[str], origin: str) -> Item:
    """A pair. The canonical order is that of the responses' ids, which are hashes: as good as random."""
    a, b = sorted(responses)
    return Item(stable_id(prompt.id, a, b), prompt.id, (a, b), origin)


def milliseconds(text: str) -> int:
    """A time as ISO 8601 (in UTC where it does not say) or as seconds since the epoch; 0 where there is none."""
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
    """The first few places, one more among them; those of rows as sentences."""
    if len(places) == SHOWN:
        return places
    return (*places, where.sentence() if isinstance(where, RowPlace) else where)


def _text(values: Mapping[str, object], name: str | None) -> str:
    """A cell as text. Numbers that files keep as 1.0 are 1, as people write them."""
    value = values.get(name) if name else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()
