"""Loaders of files and hub data sets as records, with an account of all skipped rows.

    loaded = load_preferences("pairs.jsonl")
    print(loaded.describe())
    for preference in loaded.records: ...

Each loader recognises the format by its columns (`tutelage.data.record_formats` lists them). Preference files also
provide demonstrations (the chosen side), and all files provide prompts.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Generic, Literal, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.base.garbage import without_collection
from tutelage.base.nouns import counted
from tutelage.data.annotations import Exported, Parts
from tutelage.data.export_values import ExportReader, exported
from tutelage.data.images import COLUMNS, column_images, has_images, place_images
from tutelage.data.labelling_exports import LABELLING
from tutelage.data.readers import Values
from tutelage.data.record_files import parser
from tutelage.data.record_formats import DEMONSTRATIONS, PREFERENCES, PROMPTS, TEXTS, UNPAIRED, remarks
from tutelage.data.records import (
    Comparison,
    CompletionRecord,
    Demonstration,
    Messages,
    Preference,
    Prompt,
    RatedSteps,
    UnpairedAnswer,
    spoken,
)
from tutelage.data.row_values import Account, Cells, ImageInRow, LeftOut, Unusable
from tutelage.data.step_formats import STEPS
from tutelage.data.table_format import RowFormat, recognise, unchanged
from tutelage.data.tables import Table, read_table
from tutelage.data.traces import TRACE_PAIRS, TRACES, TracePair, has_trace
from tutelage.data.tracker_exports import TRACKERS

T = TypeVar("T")
Own = TypeVar("Own", CompletionRecord, Comparison)
T_co = TypeVar("T_co", covariant=True)

TOLERATED = 0.1  # fraction of rows that may be unusable
ALWAYS_TOLERATED = 5  # rows, regardless of the total
EXAMPLES = 3


def annotation_formats(parts: Parts) -> tuple[RowFormat[Exported], ...]:
    """The formats of exports whose prompts and responses are in these parts. Every column counts as read: a tracker's
    rows have dozens of measurements."""

    def parser_of(read: ExportReader) -> Callable[[Values], Exported]:
        return lambda values: exported(read, dict(values), parts)

    return tuple(RowFormat(name, (), parser_of(read), fits=fits) for name, fits, read in (*TRACKERS, *LABELLING))


KINDS: Mapping[str, Sequence[RowFormat[object]]] = {
    "an export for `tutelage import`": annotation_formats(Parts()),
    "preferences": PREFERENCES,
    "rated steps": STEPS,
    "single answers labelled good or bad": UNPAIRED,
    "demonstrations": DEMONSTRATIONS,
    "prompts": PROMPTS,
}


@dataclass(frozen=True)
class SkippedRow:
    """Rows skipped for one reason. `examples` are the places of the first few ("line 12")."""

    reason: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.examples) else ""
        return f"{self.count} × {self.reason} ({', '.join(self.examples)}{more})"


@dataclass(frozen=True)
class LoadedRecords(Generic[T_co]):
    """Records of a source. `rows` counts all of its rows: records, rows skipped as unusable, and rows left out for
    the reason in `notes`. `places` are the places of the records ("line 12")."""

    source: str
    format: str
    columns: tuple[str, ...]
    rows: int
    records: tuple[T_co, ...]
    skipped: tuple[SkippedRow, ...] = ()
    notes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()

    @property
    def placed(self) -> Iterator[tuple[T_co, str]]:
        """The records, each with its place."""
        return zip(self.records, self.places, strict=True)

    def of(self, placed: Iterable[tuple[T, str]], *notes: str) -> "LoadedRecords[T]":
        """Records made of these, with their places, and further notes."""
        pairs = list(placed)
        records, places = tuple(one for one, _ in pairs), tuple(place for _, place in pairs)
        every = (*self.notes, *notes)
        return LoadedRecords(self.source, self.format, self.columns, self.rows, records, self.skipped, every, places)

    def only(self, condition: Callable[[T_co], bool]) -> "LoadedRecords[T_co]":
        """The records that meet the condition, with their places."""
        return self.of((one, place) for one, place in self.placed if condition(one))

    def describe(self) -> str:
        """Summarise loaded and skipped rows, a line each."""
        count = len(self.records)
        read = f"{count:,} of {counted(self.rows, 'row')}" if count <= self.rows else counted(self.rows, "row")
        head = f"{self.source}: {read}, read as {self.format}"
        return "\n".join([head, *(f"  skipped {item}" for item in self.skipped), *(f"  {note}" for note in self.notes)])


@without_collection()
def load_demonstrations(
    source: str | Path, *, answers: Literal["last", "every"] = "last", tolerate: float = TOLERATED
) -> LoadedRecords[Demonstration]:
    """Load conversations with completions to imitate: demonstrations, the chosen side of preferences, or plain text.

    Of a conversation with several assistant turns the last one is the completion; with answers="every" each is, after
    the turns before it, so that one row becomes several records.

    Raises TutelageError if the source cannot be read, has no known format, or more than `tolerate` of its rows (and
    more than five) cannot be used. So do all loaders.
    """
    loaded = load(source, "demonstrations", DEMONSTRATIONS, tolerate=tolerate)
    conversations = [record for record in loaded.records if any(turn.role == "assistant" for turn in record.messages)]
    every = answers == "every"
    made = [(one, place) for record, place in loaded.placed for one in (*(_earlier(record) if every else ()), record)]
    learnt = [(one, place) for one, place in made if one.weight]
    notes = []
    if conversations:
        use = f"each of which is a record: {len(made):,} in all" if every else "of which only the last is the response"
        notes.append(f"{counted(len(conversations), 'conversation', 'has')} several answers, {use}")
    if len(learnt) < len(made):
        notes.append(f"{counted(len(made) - len(learnt), 'answer')} left out: of weight 0")
    if not learnt:
        raise TutelageError(f"No answer of {source} can be learnt: each has the weight 0.")
    return loaded.of(learnt, *notes)


def _earlier(record: Demonstration) -> Iterator[Demonstration]:
    """The assistant's turns before the completion, each after the turns before it."""
    for index, turn in enumerate(record.messages):
        if turn.role == "assistant":
            yield Demonstration(record.messages[:index], spoken(turn), turn.weight)


def load_preferences(
    source: str | Path | Table, *, tolerate: float = TOLERATED, images: bool = False
) -> LoadedRecords[Preference]:
    """Load preference pairs; pairs of equal texts are skipped. With `images`, messages may have images; without, a row
    with one is refused, as by all loaders."""
    return load(source, "preferences", PREFERENCES, tolerate=tolerate, accept=_refuse_equal_sides, images=images)


def load_prompts(source: str | Path, *, tolerate: float = TOLERATED, images: bool = False) -> LoadedRecords[Prompt]:
    """Load prompts from any kind of data; a row's own columns are in `Prompt.data`. Duplicate prompts are kept once,
    with the columns of their first row."""
    table = read_table(source)
    form = recognise(table, "prompts", PROMPTS, KINDS)
    loaded = _records(table, form, tolerate, _once_each(), images=images)
    loaded = replace(loaded, notes=(*loaded.notes, *remarks(form.spelt(table), loaded.columns)))
    if loaded.format == "text" and loaded.rows == 1 and "\n" in loaded.records[0].messages[0].content:
        raise TutelageError(f"{source} is one prompt of several lines; separate prompts by blank lines.")
    return loaded


def load_texts(source: str | Path) -> LoadedRecords[str]:
    """Load documents for pretraining: the column `text`, or a .txt file."""
    return load(source, "texts", TEXTS)


def load_unpaired(source: str | Path) -> LoadedRecords[UnpairedAnswer]:
    """Load single completions labelled good or bad: prompt, completion, label."""
    return load(source, "single answers labelled good or bad", UNPAIRED)


def load_steps(source: str | Path) -> LoadedRecords[RatedSteps]:
    """Load completions in rated steps. A row may give several; those without a rated step are left out."""
    loaded = load(source, "rated steps", STEPS)
    made = [(one, place) for several, place in loaded.placed for one in several]
    rated = [(one, place) for one, place in made if any(label is not None for label in one.labels)]
    if not rated:
        raise TutelageError(f"No step of {source} is rated: each label is null.")
    notes = []
    if len(made) > len(loaded.records):
        notes.append(
            f"{counted(len(made), 'completion')}: of each row the chosen steps, and each other candidate for a step"
        )
    if len(rated) < len(made):
        notes.append(f"{counted(len(made) - len(rated), 'completion')} left out: none of its steps is rated")
    return loaded.of(rated, *notes)


def load_traces(source: str | Path | Table) -> LoadedRecords[RatedSteps]:
    """Load completions in steps, rated or not: the first of each row, which has the chosen steps."""
    loaded = load(source, "traces", TRACES)
    return loaded.of((several[0], place) for several, place in loaded.placed)


def load_trace_pairs(source: str | Path) -> LoadedRecords[TracePair] | None:
    """Load pairs of traces; None if no side of a row has several messages."""
    table = read_table(source)
    forms = (form for form in TRACE_PAIRS if any(has_trace(form, row.values) for row in form.spelt(table).rows))
    form = next(forms, None)
    return None if form is None else _records(table, form, TOLERATED, lambda pair: None)


def load_completions(source: str | Path) -> LoadedRecords[CompletionRecord]:
    """Load sampled completions in Tutelage's format."""
    return _load_own(source, "completions", CompletionRecord)


def load_comparisons(source: str | Path) -> LoadedRecords[Comparison]:
    """Load comparisons in Tutelage's format."""
    return _load_own(source, "comparisons", Comparison)


def _load_own(source: str | Path, what: str, kind: type[Own]) -> LoadedRecords[Own]:
    columns = tuple(field.name for field in fields(kind))
    needs = tuple(field.name for field in fields(kind) if field.default is MISSING)
    own: RowFormat[Own] = RowFormat(", ".join(columns), needs, parser(kind), columns)
    seen: set[str] = set()

    def accept(record: Own) -> None:
        if record.id in seen:
            raise Unusable("the id of an earlier row")
        seen.add(record.id)

    return load(source, what, (own,), accept=accept)


def load(
    source: str | Path | Table,
    what: str,
    formats: Sequence[RowFormat[T]],
    *,
    tolerate: float = TOLERATED,
    accept: Callable[[T], None] = lambda record: None,
    images: bool = False,
) -> LoadedRecords[T]:
    """Load the records of a source in one of `formats`. `accept` inspects each record (and may remember earlier ones)
    and raises `Unusable` or `LeftOut` to reject it."""
    table = source if isinstance(source, Table) else read_table(source)
    return _records(table, recognise(table, what, formats, KINDS), tolerate, accept, images=images)


@without_collection()
def _records(
    table: Table, form: RowFormat[T], tolerate: float, accept: Callable[[T], None], *, images: bool = False
) -> LoadedRecords[T]:
    table = form.spelt(table)
    form.check_exhaustive(table)
    _refuse_columns_of_images(table, form, images)
    rows, without = form.arrange(table.rows)
    unusable: dict[str, list[str]] = defaultdict(list)
    for broken in (*table.broken, *without):
        unusable[broken.reason].append(broken.where)
    left_out: Counter[tuple[str, str]] = Counter()
    account = Account()
    records: list[T] = []
    places: list[str] = []
    for row in rows:
        cells = Cells(row.values, form.metadata, images=images)
        try:
            record = form.parse(cells)
            if images:
                record = _with_images(record, cells)
            accept(record)
            records.append(record)
            places.append(row.where)
            if form.arrange is unchanged:
                account.add(cells, row.where)
        except ImageInRow as found:
            raise _image(table, row.where, f"{found}; leave such rows out") from found
        except Unusable as reason:
            unusable[str(reason)].append(row.where)
        except LeftOut as left:
            left_out[left.thing, left.reason] += 1
    for row in () if form.arrange is unchanged else table.rows:
        account.add(Cells(row.values, form.metadata.union(form.needs)), row.where)
    loaded = LoadedRecords(
        table.source,
        form.name,
        form.columns(table),
        len(rows) + len(table.broken) + len(without),
        tuple(records),
        tuple(SkippedRow(reason, len(where), tuple(where[:EXAMPLES])) for reason, where in unusable.items()),
        (
            *(f"{counted(count, thing)} left out: {why}" for (thing, why), count in left_out.items()),
            *filter(None, [form.remark(table.rows)]),
            *account.notes(),
        ),
        tuple(places),
    )
    _refuse_too_many(loaded, tolerate)
    return loaded


def _refuse_columns_of_images(table: Table, form: RowFormat[object], images: bool) -> None:
    columns = [column for column in COLUMNS if column in table.columns and column not in form.needs]
    if columns and (not images or form.arrange is not unchanged):
        for row in table.rows:
            if column_images(row.values):
                what = f"an image in the column {columns[0]}; take the column out to use the texts"
                raise _image(table, row.where, what)


def _image(table: Table, where: str, what: str) -> TutelageError:
    return TutelageError(
        f"{table.source}, {where}: {what}. Here only text is read; `tutelage collect init` shows images to people, in "
        "pairs (--from-pairs) and in the prompts of samples (--from-sample)."
    )


def _with_images(record: T, cells: Cells) -> T:
    """The record with the images of the columns `images` and `image` in its messages."""
    addresses = column_images(cells)
    if not (addresses or has_images(record)):
        return record
    if not isinstance(record, Prompt | Preference):
        raise Unusable("an image beside a record without messages")
    record = replace(record, messages=place_images(record.messages, addresses))
    if isinstance(record, Prompt):
        data = {name: value for name, value in record.data.items() if name not in COLUMNS}
        record = replace(record, data=data)
    return record


def _refuse_too_many(loaded: LoadedRecords[object], tolerate: float) -> None:
    bad = sum(item.count for item in loaded.skipped)
    reasons = "; ".join([*map(str, loaded.skipped), *(() if loaded.records else loaded.notes)])
    if not loaded.records:
        raise TutelageError(
            f"No row of {loaded.source} can be used ({counted(loaded.rows, 'row')} read as {loaded.format}): {reasons}."
        )
    if bad > max(ALWAYS_TOLERATED, tolerate * loaded.rows):
        raise TutelageError(
            f"{bad:,} of the {counted(loaded.rows, 'row')} of {loaded.source} cannot be used (read as "
            f"{loaded.format}), more than the {tolerate:.0%} tolerated: {reasons}."
        )


def _refuse_equal_sides(preference: Preference) -> None:
    one, other = (turn.strip() if isinstance(turn, str) else turn for turn in (preference.chosen, preference.rejected))
    if one == other:
        raise Unusable("chosen equals rejected")


def _once_each() -> Callable[[Prompt], None]:
    ids: set[str] = set()
    seen: dict[Messages, Prompt] = {}

    def accept(prompt: Prompt) -> None:
        first = seen.get(prompt.messages)
        if first is not None and first.data != prompt.data:
            raise LeftOut("row", "the prompt is in an earlier row, with other columns, which are kept")
        if first is not None:
            raise LeftOut("row", "the prompt is in an earlier row, and is kept once")
        if prompt.id in ids:
            raise Unusable("the id of an earlier, different prompt")
        seen[prompt.messages] = prompt
        ids.add(prompt.id)

    return accept
