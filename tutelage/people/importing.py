"""Import of votes from tables, and of ready pairs as questions.

Nothing is dropped in silence: `ImportReport.dropped` counts what could not be used, by reason, with the first places.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from tutelage.data.identity import prompt_id, stable_id
from tutelage.data.records import CompletionRecord, Messages, Preference, Prompt, Split, user
from tutelage.data.tables import Table
from tutelage.errors import TutelageError
from tutelage.people.answers import Answer
from tutelage.people.kinds.kind import Kind
from tutelage.people.kinds.values import Screen
from tutelage.people.store.bulk import AnswerRecord, write_answers
from tutelage.people.store.engine import Store
from tutelage.people.store.exports import list_versions
from tutelage.people.store.items import Item, add_items
from tutelage.people.store.raters import add_rater, list_raters
from tutelage.people.store.studies import study_of

HELD_OUT_SHARE = 10
SHOWN = 5

CHOICES: Mapping[str, tuple[str, int]] = {
    "a": ("a", 2), "b": ("b", 2), "model_a": ("a", 2), "model_b": ("b", 2), "tie": ("tie", 0), "equal": ("tie", 0),
    "a-is-slightly-better": ("a", 1), "a-is-better": ("a", 2), "a-is-much-better": ("a", 3),
    "b-is-slightly-better": ("b", 1), "b-is-better": ("b", 2), "b-is-much-better": ("b", 3),
    "both_bad": ("both_bad", 0), "bothbad": ("both_bad", 0), "tie (bothbad)": ("both_bad", 0), "skip": ("skip", 0),
}  # fmt: skip
"""What the words for a choice mean: verdict and strength. Spelling in capitals or small letters does not matter."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table of votes. The first five are needed; `time` is read as ISO 8601 or as seconds since the
    epoch; `choices` gives the meaning of other words than those in `CHOICES`."""

    prompt: str = "prompt"
    a: str = "completion_a"
    b: str = "completion_b"
    choice: str = "preference"
    rater: str = "evaluator"
    model_a: str | None = None
    model_b: str | None = None
    time: str | None = None
    reason: str | None = None
    choices: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportReport:
    """The result of an import. `revised` votes replace an earlier one of the same rater on the same pair; `known` ones
    had been imported before; `dropped` counts the rows that could not be used, with the first few places."""

    votes: int
    revised: int
    known: int
    items: int
    raters: int
    dropped: Mapping[str, tuple[int, tuple[str, ...]]]


@dataclass(frozen=True)
class Pairs:
    """Questions made of ready pairs, for `add_items`; `identical` counts pairs of equal texts, which ask nothing."""

    prompts: tuple[Prompt, ...]
    completions: tuple[CompletionRecord, ...]
    items: tuple[Item, ...]
    identical: int


def pairs_to_judge(preferences: Iterable[Preference], *, origin: str = "imported") -> Pairs:
    """Ready pairs as questions, whatever was preferred: which response is a depends on the texts alone, so that the
    imported label cannot be guessed from the order."""
    prompts: dict[str, Prompt] = {}
    completions: dict[str, CompletionRecord] = {}
    items: dict[str, Item] = {}
    identical = 0
    for pair in preferences:
        if pair.chosen == pair.rejected:
            identical += 1
            continue
        prompt = _prompt(pair.messages)
        both = [_completion(prompt, text, "") for text in (pair.chosen, pair.rejected)]
        item = _item(prompt, [completion.id for completion in both], origin)
        prompts[prompt.id], items[item.key] = prompt, item
        completions |= {completion.id: completion for completion in both}
    return Pairs(tuple(prompts.values()), tuple(completions.values()), tuple(items.values()), identical)


def import_votes(
    store: Store,
    study_id: int,
    table: Table,
    columns: Columns,
    *,
    actor: str = "owner",
) -> ImportReport:
    """Take votes from a table (`data.tables.read_table`). Prompts, responses, items and raters are made as they occur;
    the same table again adds nothing.

    A study that asks for more than a side reads columns such as an export's `votes.csv` has (`Kind.cells`) instead of
    the choice. The side that the file calls a is taken to have been shown on the left. A second vote of a rater on a
    pair counts as a change of mind: the last one is in force.

    Raises:
        TutelageError: a column is missing, or no row can be used.
    """
    asked = study_of(store, study_id).kind
    shown = list_versions(store, study_id)[0]
    _require_columns(table, columns, asked)
    read = _VoteReader(columns, asked, Screen(2, shown.scale, shown.criteria))
    for broken in table.broken:
        read.drop(broken.reason, broken.where)
    told = [vote for row in table.rows if (vote := read.vote(row.where, row.values)) is not None]
    if not told:
        reasons = "; ".join(f"{reason} ({count})" for reason, (count, _) in read.dropped.items())
        raise TutelageError(f"No row of {table.source} holds a vote that can be used: {reasons}.")
    added = add_items(
        store, study_id, read.prompts.values(), read.completions.values(), read.items.values(), actor=actor
    )
    known = {rater.name for rater in list_raters(store, study_id)}
    new = [name for name in dict.fromkeys(vote.rater for vote in told) if name not in known]
    for name in new:
        add_rater(store, study_id, name, detail={"source": table.source}, actor=actor)
    written = write_answers(store, study_id, told, source=table.source, actor=actor)
    revised = len(told) - len({(vote.item, vote.rater) for vote in told})
    return ImportReport(written.new, revised, written.known, added.items, len(new), read.dropped)


class _VoteReader:
    """Reads votes from the rows of a table, and collects the prompts, responses and items that they speak of."""

    def __init__(self, columns: Columns, kind: Kind, screen: Screen) -> None:
        self.columns, self.kind, self.screen = columns, kind, screen
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[str, CompletionRecord] = {}
        self.items: dict[str, Item] = {}
        self.dropped: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._keys: dict[str, int] = {}

    def vote(self, where: str, values: Mapping[str, object]) -> AnswerRecord | None:
        """The row's vote, if it holds one; what it speaks of is remembered."""
        names = self.columns
        asked, rater, word = (_text(values, name) for name in (names.prompt, names.rater, names.choice))
        texts = [_text(values, name) for name in (names.a, names.b)]
        meaning = self._meaning(word, values)
        if not asked or not all(texts):
            self.drop("the prompt or a response is missing", where)
            return None
        if not rater or meaning is None:
            known = (
                f"the choice '{word}' is not known"
                if self.kind.traits.sides
                else "columns of its kind are missing"
            )
            self.drop(known if rater else "no rater is named", where)
            return None
        try:
            if meaning.content:
                self.kind.check(meaning, self.screen)
        except TutelageError as error:
            self.drop(str(error), where)
            return None
        prompt = _prompt(user(asked))
        models = [_text(values, name) for name in (names.model_a, names.model_b)]
        shown = [_completion(prompt, text, model) for text, model in zip(texts, models, strict=True)]
        if shown[0].id == shown[1].id:
            self.drop("both responses are the same text", where)
            return None
        item = _item(prompt, [completion.id for completion in shown], "imported")
        self.prompts[prompt.id], self.items[item.key] = prompt, item
        self.completions |= {completion.id: completion for completion in shown}
        return self._told(item, shown, rater, meaning, values)

    def _meaning(self, word: str, values: Mapping[str, object]) -> Answer | None:
        """What a row says, a as the left side."""
        if not self.kind.traits.sides:
            return self.kind.read(values, self.screen)
        verdict, strength = self.columns.choices.get(word) or CHOICES.get(word.lower(), ("", 0))
        return Answer({"a": "left", "b": "right"}.get(verdict, verdict), strength) if verdict else None

    def _told(
        self,
        item: Item,
        shown: Sequence[CompletionRecord],
        rater: str,
        meaning: Answer,
        values: Mapping[str, object],
    ) -> AnswerRecord:
        sides = tuple(item.responses.index(completion.id) for completion in shown)
        created = _milliseconds(_text(values, self.columns.time))
        reason = _text(values, self.columns.reason)
        said = [
            meaning.choice,
            str(meaning.strength),
            *([str(dict(meaning.content))] if meaning.content else []),
        ]
        name = stable_id(item.key, rater, str(sides), *said, str(created), reason)
        self._keys[name] = self._keys.get(name, 0) + 1
        answer = replace(meaning, reason=reason, client="import", key=f"{name}-{self._keys[name]}")
        return AnswerRecord(item.key, rater, sides, answer, created)

    def drop(self, reason: str, where: str) -> None:
        """Count a row that cannot be used."""
        count, places = self.dropped.get(reason, (0, ()))
        self.dropped[reason] = (count + 1, (*places, where)[:SHOWN])


def _text(values: Mapping[str, object], name: str | None) -> str:
    value = values.get(name) if name else None
    return "" if value is None else str(value).strip()


def _require_columns(table: Table, columns: Columns, kind: Kind) -> None:
    choice = [columns.choice] if kind.traits.sides else []
    needed = [columns.prompt, columns.a, columns.b, *choice, columns.rater]
    needed += [name for name in (columns.model_a, columns.model_b, columns.time, columns.reason) if name]
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise TutelageError(
            f"{table.source} has no column {', '.join(repr(name) for name in missing)}; it has "
            f"{', '.join(table.columns)}. Say which columns hold the votes."
        )


def _prompt(messages: Messages) -> Prompt:
    key = prompt_id(messages)
    split: Split = "held_out" if int(stable_id("split", key), 16) % HELD_OUT_SHARE == 0 else "train"
    return Prompt(key, messages, split)


def _completion(prompt: Prompt, text: str, sampler: str) -> CompletionRecord:
    return CompletionRecord(stable_id(prompt.id, sampler, text), prompt.id, text, sampler)


def _item(prompt: Prompt, responses: Sequence[str], origin: str) -> Item:
    """The canonical order is that of the responses' ids, which are hashes: as good as random."""
    a, b = sorted(responses)
    return Item(stable_id(prompt.id, a, b), prompt.id, (a, b), origin)


def _milliseconds(text: str) -> int:
    """A time as ISO 8601 (in UTC where it does not say) or as seconds since the epoch; 0 where there is none."""
    if not text:
        return 0
    try:
        return int(float(text) * 1000)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise TutelageError(f"'{text}' is no time: give ISO 8601 or seconds since the epoch.") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
