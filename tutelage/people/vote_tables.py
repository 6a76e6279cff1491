"""Votes from tables: the votes of each row, and what cannot be used.

`VotesRead.dropped` counts unusable votes by reason, with their first locations.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.readers import RowPlace, TableRow, Values
from tutelage.data.records import CompletionRecord, Messages, Prompt, Step, stable_id, user
from tutelage.data.row_values import Cells, Unusable
from tutelage.data.rubrics import COLUMNS, Rubric, rubric_of, rubric_rows
from tutelage.data.tables import Table
from tutelage.data.traces import split_text, trace_text
from tutelage.data.vote_rows import (
    CHOICES,
    cell_text,
    cell_time,
    choice_names,
    fold_choice,
    fold_name,
    meaning_name,
    rater_names,
    rejected_rows,
    status_columns,
    text_names,
    unused_columns,
)
from tutelage.people.answers import Answer
from tutelage.people.kinds.kind import Kind, Screen
from tutelage.people.languages import Sentence, counted
from tutelage.people.store.bulk import AnswerRecord
from tutelage.people.store.items import Item
from tutelage.people.store.raters import refuse_name
from tutelage.people.table_items import (
    completion_of,
    conversation_in,
    in_steps,
    is_conversation,
    item_of,
    prompt_of,
    read_steps,
)
from tutelage.people.validation import FieldError, StudyError, refuse_unstorable
from tutelage.people.vote_mapping import VoteMapping


def require_columns(table: Table, mapping: VoteMapping, kind: Kind) -> None:
    """Raises FieldError for the first missing column, listing the columns of the table; TutelageError for a table of
    pairs without votes."""
    missing = {
        column: field
        for column, field in mapping.columns.items()
        if column not in table.columns
        and (kind.traits.sides or field != "choice_column")
        and not (kind.traits.steps and field == "b")
    }
    if {"chosen", "rejected"} <= set(table.columns) and {"rater", "annotators"} & set(missing.values()):
        raise StudyError(
            "%(source)s holds pairs without votes (chosen, rejected). To ask people about them, make questions of "
            "them: tutelage collect init STUDY --from-pairs %(source)s.",
            source=str(table.source),
        )
    if missing:
        raise FieldError(
            next(iter(missing.values())),
            "%(source)s has no column %(missing)s; it has %(known)s. Say which columns hold the votes.",
            source=str(table.source),
            missing=", ".join(repr(name) for name in missing),
            known=_listed(table.columns),
        )


def _listed(names: Sequence[str], most: int = 30) -> str:
    listed = ", ".join(names[:most])
    if len(names) <= most:
        return listed
    return counted(
        "%(shown)s and %(count)s other", "%(shown)s and %(count)s others", count=len(names) - most, shown=listed
    )


SHOWN = 5
Places: TypeAlias = tuple[int, tuple[str, ...]]
Dropped: TypeAlias = Mapping[str, Places]
"""Unusable votes by reason: their number and first locations."""
IDENTICAL = Sentence("both responses are the same text")


@dataclass(frozen=True)
class VotesRead:
    """The votes of a table, with their prompts, responses and items. `words` counts the choices, `meanings` has a word
    of `vote_rows.MEANINGS` for each that is known. `faults` are the unusable votes by reason, with their first
    locations, `left_out` the valid votes without information and those of rejected work; `rejected` counts the rows of
    rejected work that are kept; `remarks` are sentences about them, names in several spellings and columns without
    use."""

    votes: tuple[AnswerRecord, ...]
    prompts: Mapping[str, Prompt]
    completions: Mapping[str, CompletionRecord]
    items: Mapping[str, Item]
    words: Mapping[str, int]
    meanings: Mapping[str, str]
    faults: Dropped
    left_out: Dropped
    rejected: int
    remarks: tuple[str, ...]

    @property
    def dropped(self) -> Dropped:
        """All votes of the table that are not in `votes`."""
        return {**self.faults, **self.left_out}


def read_votes(table: Table, mapping: VoteMapping, kind: Kind, screen: Screen) -> VotesRead:
    """Read the votes of a table without storing them.

    For kinds of questions other than pairs, columns as in an export's `votes.csv` (`Kind.cells`) replace the choice
    column. Where steps are judged, the only response is in the column of the first: a list of steps, or a text whose
    blank lines separate them. Where criteria are judged, the row has the rubric. Names and texts are the same by the
    rules of `data.vote_rows`. Raises TutelageError if a column is missing."""
    require_columns(table, mapping, kind)
    reader = _VoteReader(mapping, kind, screen)
    for broken in table.broken:
        reader.drop(broken.reason, broken.where)
    rejected = rejected_rows(table, mapping.columns)
    ballots: list[_Ballot] = []
    for number, row in enumerate(table.rows):
        if number in rejected and not mapping.keep_rejected:
            reader.leave_out(rejected[number], row.where)
        else:
            ballots += reader.ballots(row)
    remarks = reader.join(ballots)
    votes = tuple(filter(None, map(reader.vote, ballots)))
    used = mapping.columns.keys() | reader.content_columns
    unused = unused_columns(table, used | status_columns(table, used))
    kept = len(rejected) if mapping.keep_rejected else 0
    if kept:
        remarks.append(
            counted("One row of rejected work is kept", "%(count)s rows of rejected work are kept", count=kept)
        )
    return VotesRead(
        votes,
        reader.prompts,
        reader.completions,
        reader.items,
        reader.words,
        reader.meanings,
        reader.faults(),
        reader.left_out,
        kept,
        tuple([*remarks, unused] if unused else remarks),
    )


class _Ballot(NamedTuple):
    """The cells of one vote: `texts` are the prompt and both responses, or the only one. A prompt of several messages
    has its last one in `texts`. `steps` are those of the only response, `rubric` the criteria, if these are judged."""

    where: str
    values: Mapping[str, object]
    rater: str
    word: str
    texts: tuple[str, ...]
    messages: Messages = ()
    steps: tuple[Step, ...] = ()
    rubric: Rubric = ()


class _VoteReader:
    """Reads votes from the rows of a table, and collects their prompts, responses and items."""

    def __init__(self, mapping: VoteMapping, kind: Kind, screen: Screen) -> None:
        self.mapping, self.kind, self.screen = mapping, kind, screen
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[str, CompletionRecord] = {}
        self.items: dict[str, Item] = {}
        self.words: Counter[str] = Counter()
        self.meanings: dict[str, str] = {}
        self.left_out: dict[str, Places] = {}
        self.content_columns: set[str] = set()
        """Columns that hold the answers of other kinds of questions than pairs."""
        own = mapping.meanings
        self._known = {**CHOICES, **{fold_choice(word): meaning for word, meaning in own.items()}, **own}
        self._faults: dict[str, Places] = {}
        self._keys: Counter[str] = Counter()

    def ballots(self, row: TableRow) -> Iterator[_Ballot]:
        """The cells of the votes of a row, if there are all of them."""
        try:
            yield from self._ballots(row)
        except (Unusable, TutelageError) as error:
            self.drop(error.args[0], row.where)

    def _ballots(self, row: TableRow) -> list[_Ballot]:
        names, values = self.mapping, row.values
        messages = conversation_in(values, names.prompt)
        parts = [messages[-1].content] if messages else [cell_text(values, name) for name in names.prompt]
        prompt = "\n\n".join(filter(None, parts))
        steps = read_steps(values, names.a) if self.kind.traits.steps else ()
        responses = (trace_text(steps),) if steps else [cell_text(values, column) for column in (names.a, names.b)]
        texts = (prompt, *responses)
        if not all(texts):
            raise Unusable(Sentence("the prompt or a response is missing"))
        for text in texts:
            refuse_unstorable(text, Sentence("A text"))
            if is_conversation(text):
                raise Unusable(Sentence("a text is a list of messages as JSON; give the last message as text"))
        if names.annotators:
            voters = [(name, cell_text(values, name)) for name in names.annotators if cell_text(values, name)]
        else:
            word = cell_text(values, names.choice_column) if self.kind.traits.sides else ""
            voters = [(cell_text(values, names.rater), word)]
        if not all(rater for rater, _ in voters):
            raise Unusable(Sentence("no rater is named"))
        rubric = self._rubric(values) if self.kind.traits.rubrics else ()
        return [_Ballot(row.where, values, rater, word, texts, messages, steps, rubric) for rater, word in voters]

    def _rubric(self, values: Mapping[str, object]) -> Rubric:
        """The rubric of a row's prompt."""
        cells = Cells(values)
        rubric = rubric_of(cells, "the row")
        self.content_columns |= cells.read_columns
        return rubric

    def join(self, ballots: Sequence[_Ballot]) -> list[str]:
        """Find the names and texts that are the same. Returns remarks about those in several spellings."""
        self._raters = rater_names(each.rater for each in ballots)
        self._choices = choice_names(each.word for each in ballots)
        self._texts = text_names(text for each in ballots for text in each.texts)
        remarks = (
            self._raters.remark(
                "One rater is written in several ways: %(names)s",
                "%(count)s raters are written in several ways: %(names)s",
            ),
            self._choices.remark(
                "One choice is written in several ways: %(names)s",
                "%(count)s choices are written in several ways: %(names)s",
            ),
            self._texts.remark(
                "One prompt or response is written in several ways: %(names)s",
                "%(count)s prompts or responses are written in several ways: %(names)s",
            ),
        )
        return list(filter(None, remarks))

    def vote(self, ballot: _Ballot) -> AnswerRecord | None:
        """The vote of a ballot; None if it is unusable. Adds its prompt, responses and item to those of the reader."""
        try:
            refuse_name(self._raters.of[ballot.rater])
            meaning = self._meaning(ballot)
            created = cell_time(ballot.values, self.mapping.time or "")
            return self._record(ballot, meaning, created)
        except (Unusable, TutelageError) as error:
            self.drop(error.args[0], ballot.where)
            return None

    def _meaning(self, ballot: _Ballot) -> Answer:
        """The answer of a ballot, with a as the left side.

        Raises:
            Unusable: the word for the choice is unknown, or columns are missing.
            TutelageError: the content of an answer to another kind of question than pairs is invalid.
        """
        if not self.kind.traits.sides:
            return self._content(ballot)
        word = self._choices.of[ballot.word]
        self.words[word] += 1
        meaning = self._known.get(ballot.word) or self._known.get(fold_choice(ballot.word))
        if meaning is not None:
            verdict, strength = meaning
            self.meanings[word] = meaning_name(verdict, strength)
            return Answer({"a": "left", "b": "right"}.get(verdict, verdict), strength)
        raise Unusable(Sentence("the choice '%(word)s' is not known", word=word[:50]))

    def _content(self, ballot: _Ballot) -> Answer:
        """The answer of a row for kinds of questions other than pairs."""
        cells = Cells(ballot.values)
        screen = replace(self.screen, rubric=ballot.rubric)
        if self.kind.traits.steps:
            screen = replace(screen, places=1, steps=len(self._steps_of(ballot)))
        meaning = self.kind.read(cells, screen)
        self.content_columns |= cells.read_columns
        if meaning is None:
            raise Unusable(_unread(ballot.values, cells.read_columns))
        if meaning.content:
            self.kind.check(meaning, screen)
        return meaning

    def _record(self, ballot: _Ballot, meaning: Answer, created: int) -> AnswerRecord | None:
        request, *texts = (self._texts.of[text] for text in ballot.texts)
        prompt = prompt_of(ballot.messages or user(request))
        if ballot.rubric:
            prompt = replace(prompt, data={COLUMNS[0]: rubric_rows(ballot.rubric)})
            self._refuse_other_rubric(prompt)
        models = [cell_text(ballot.values, name or "") for name in (self.mapping.model_a, self.mapping.model_b)]
        both = [completion_of(prompt, text, model) for text, model in zip(texts, models, strict=False)]
        if ballot.steps:
            both = [in_steps(prompt, each, self._steps_of(ballot)) for each in both]
        if len(both) > 1 and both[0].id == both[1].id:
            self.leave_out(IDENTICAL, ballot.where)
            return None
        item = item_of(prompt, [completion.id for completion in both], "imported")
        self.prompts[prompt.id], self.items[item.key] = prompt, item
        self.completions |= {completion.id: completion for completion in both}
        rater = self._raters.of[ballot.rater]
        sides = tuple(item.responses.index(completion.id) for completion in both)
        reason = cell_text(ballot.values, self.mapping.reason or "")
        parts = [meaning.choice, str(meaning.strength), *([str(dict(meaning.content))] if meaning.content else [])]
        name = stable_id(item.key, fold_name(rater), str(sides), *parts, str(created), reason)
        self._keys[name] += 1
        answer = replace(meaning, reason=reason, client="import", key=f"{name}-{self._keys[name]}")
        return AnswerRecord(item.key, rater, sides, answer, created)

    def _steps_of(self, ballot: _Ballot) -> tuple[Step, ...]:
        """The steps of a ballot: of a text, those of its chosen spelling."""
        text = ballot.texts[1]
        return split_text(self._texts.of[text]) if ballot.steps == split_text(text) else ballot.steps

    def _refuse_other_rubric(self, prompt: Prompt) -> None:
        earlier = self.prompts.get(prompt.id)
        if earlier is not None and earlier.data != prompt.data:
            raise Unusable(Sentence("an earlier row has the same prompt with another rubric"))

    def drop(self, reason: str, where: str) -> None:
        """Count an unusable vote."""
        _count(self._faults, reason, where)

    def leave_out(self, reason: str, where: str) -> None:
        """Count a vote that is valid, but is not imported."""
        _count(self.left_out, reason, where)

    def faults(self) -> dict[str, Places]:
        """Unusable votes by reason. Of reasons that differ only in the value, the most frequent are listed
        individually."""
        alike: dict[str, list[str]] = {}
        for reason in sorted(self._faults, key=lambda each: -self._faults[each][0]):
            alike.setdefault(reason.message if isinstance(reason, Sentence) else reason, []).append(reason)
        reasons: dict[str, Places] = {}
        for group in alike.values():
            reasons |= {reason: self._faults[reason] for reason in group[:SHOWN]}
            others = [self._faults[reason] for reason in group[SHOWN:]]
            if others:
                like = counted("%(count)s other like it", "%(count)s others like it", count=len(others))
                places = tuple(place for _, some in others for place in some)[:SHOWN]
                reasons[like] = (sum(count for count, _ in others), places)
        return reasons


def _count(dropped: dict[str, Places], reason: str, where: str) -> None:
    """Count a vote, with its location unless there are `SHOWN` already; locations of rows become sentences."""
    count, places = dropped.get(reason, (0, ()))
    if len(places) < SHOWN:
        places = (*places, where.sentence() if isinstance(where, RowPlace) else where)
    dropped[reason] = count + 1, places


def _unread(values: Values, columns: Collection[str]) -> Sentence:
    """Why the columns of a kind, which were looked for, give no answer."""
    if any(values.get(column) in (None, "") for column in columns):
        return Sentence("columns of its kind are missing")
    return Sentence("values that are not known in %(columns)s", columns=", ".join(sorted(columns)))
