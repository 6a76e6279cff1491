"""Import of votes from files: upload, assignment of columns and choices, preview, and an all-or-nothing import on
confirmation."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

from starlette.responses import JSONResponse, Response

from tutelage.base.errors import TutelageError
from tutelage.data.tables import Table
from tutelage.people import list_raters
from tutelage.people.answers import Answer
from tutelage.people.kinds.kind import Kind
from tutelage.people.languages import Sentence
from tutelage.people.store.raters import folded
from tutelage.people.validation import FieldError
from tutelage.people.vote_import import ImportReport, import_votes, study_screen
from tutelage.people.vote_tables import Columns, VotesRead, meaning_of, read_votes
from tutelage.people.web.call import Call, Refusal
from tutelage.people.web.forms import form_page
from tutelage.people.web.uploads import ENDINGS, LONGEST_UPLOAD, Upload

ROWS = 5
WORDS = 20
"""Maximum number of choice words to list, most frequent first."""
USUAL: Mapping[str, tuple[str, ...]] = {
    "a": ("completion_a", "response_a", "answer_a", "output_a", "response_1", "output_1", "answer_1", "a"),
    "b": ("completion_b", "response_b", "answer_b", "output_b", "response_2", "output_2", "answer_2", "b"),
    "choice": ("preference", "choice", "winner", "verdict", "label", "vote"),
    "rater": ("evaluator", "rater", "annotator", "annotator_id", "worker", "worker_id", "judge", "user"),
    "model_a": ("model_a", "model_1"),
    "model_b": ("model_b", "model_2"),
    "time": ("timestamp", "time", "created", "date"),
    "reason": ("reason", "why", "comment", "justification"),
}
"""Common column names, by the field of `Columns`."""
USUAL_PROMPTS = ("prompt", "question", "instruction", "input", "query", "context")
NEEDED = {
    "a": Sentence("First response"),
    "b": Sentence("Second response"),
    "choice": Sentence("Choice"),
    "rater": Sentence("Rater"),
}
OPTIONAL = {
    "model_a": Sentence("Model of the first"),
    "model_b": Sentence("Model of the second"),
    "time": Sentence("Time"),
    "reason": Sentence("Reason"),
}

GONE = Sentence("That file is not here any more; send it again.")
CALLED: Mapping[str, Sentence] = {
    "a": Sentence("the first is better"),
    "b": Sentence("the second is better"),
    "tie": Sentence("equal"),
    "a-is-slightly-better": Sentence("the first is slightly better"),
    "a-is-much-better": Sentence("the first is much better"),
    "b-is-slightly-better": Sentence("the second is slightly better"),
    "b-is-much-better": Sentence("the second is much better"),
    "both_bad": Sentence("both bad"),
    "skip": Sentence("can’t judge"),
}
"""The meanings that a choice word can be assigned, each once, with their names."""


@dataclass(frozen=True)
class Preview:
    """The preview of an import: the parsed votes, the numbers of new items and raters, the choice words with their
    meanings, and the equivalent command."""

    read: VotesRead
    new_raters: int
    raters: int
    words: tuple[tuple[str, int, str], ...]
    other_words: int
    command: str


def form(call: Call) -> Response:
    """The upload form, or the preview of the uploaded file."""
    return _page(call)


def receive(call: Call) -> Response:
    """Store an uploaded file and redirect to its preview."""
    upload = call.site.uploads.keep(call.me.id, call.text("name"), call.body)
    try:
        upload.read()
    except TutelageError:
        call.site.uploads.drop(call.me.id)
        raise
    return JSONResponse({"address": f"/owner/import?file={upload.token}"})


def take(call: Call) -> Response:
    """Import the uploaded file."""
    upload = _upload(call)
    if upload is None:
        raise Refusal(404, GONE)
    try:
        table = upload.read()
        columns = _columns(call, table)
        report = import_votes(
            call.store, call.here.id, table, columns, partial=bool(call.text("partial")), actor=call.me.name
        )
    except TutelageError as error:
        return _page(call, error)
    call.site.uploads.drop(call.me.id)
    return _page(call, report=report)


def _upload(call: Call) -> Upload | None:
    token = call.text("file")
    return call.site.uploads.find(call.me.id, token) if token else None


def _page(call: Call, error: TutelageError | None = None, *, report: ImportReport | None = None) -> Response:
    upload, table, columns, preview = _upload(call), None, None, None
    if call.text("file") and upload is None and report is None:
        error = FieldError("file", GONE)
    try:
        if upload is not None:
            table = upload.read()
            columns = _columns(call, table)
            preview = _preview(call, upload, table, columns)
    except TutelageError as found:
        error = error or found
    return form_page(
        call,
        "owner/import.html",
        error,
        upload=upload,
        table=table,
        columns=columns,
        preview=preview,
        report=report,
        needed=NEEDED,
        optional=OPTIONAL,
        meanings=CALLED,
        meant=partial(_meant, call.here.kind),
        endings=ENDINGS,
        longest=LONGEST_UPLOAD // 1024**2,
        rows=ROWS,
        place="import",
    )


def _columns(call: Call, table: Table) -> Columns:
    """The columns from the form; initially, those with common names."""
    if not _given(call, "prompt"):
        return _guess(table.columns)
    words, means = _given(call, "word"), _given(call, "means")
    choices = {word: meaning_of(meaning) for word, meaning in zip(words, means, strict=False) if meaning}
    return Columns(
        prompt=_given(call, "prompt"),
        annotators=_given(call, "annotators"),
        choices=choices,
        a=call.text("a"),
        b=call.text("b"),
        choice=call.text("choice"),
        rater=call.text("rater"),
        model_a=call.text("model_a") or None,
        model_b=call.text("model_b") or None,
        time=call.text("time") or None,
        reason=call.text("reason") or None,
    )


def _given(call: Call, name: str) -> tuple[str, ...]:
    return tuple(call.fields.get(name) or call.query.get(name) or ())


def _guess(columns: Sequence[str]) -> Columns:
    """The columns with common names, ignoring case."""
    originals = {folded(name): name for name in columns}
    usual = {
        field: next((originals[name] for name in names if name in originals), None) for field, names in USUAL.items()
    }
    prompts = tuple(originals[name] for name in USUAL_PROMPTS if name in originals)[:1]
    default = Columns()
    values = {field.name: getattr(default, field.name) for field in fields(Columns)}
    values |= {name: column for name, column in usual.items() if column or name in OPTIONAL}
    return Columns(**values | {"prompt": prompts or default.prompts})


def _preview(call: Call, upload: Upload, table: Table, columns: Columns) -> Preview:
    kind = call.here.kind
    read = read_votes(table, columns, kind, study_screen(call.store, call.here.id))
    names = {folded(rater.name) for rater in list_raters(call.store, call.here.id)}
    raters = {folded(vote.rater) for vote in read.votes}
    words = sorted(read.words.items(), key=lambda each: (-each[1], each[0]))
    listed = tuple((word, count, _means(columns, word)) for word, count in words[:WORDS])
    return Preview(
        read, len(raters - names), len(raters), listed, len(words) - len(listed), _command(call, upload, columns)
    )


def _means(columns: Columns, word: str) -> str:
    """The current meaning of a choice word, one of `CALLED`; empty if unknown."""
    found = columns.choices.get(word)
    try:
        verdict = found or meaning_of(word)
    except TutelageError:
        return ""
    return next(meaning for meaning in CALLED if meaning_of(meaning) == verdict)


def _meant(kind: Kind, answer: Answer) -> str:
    """The meaning of a vote, in the order of the columns."""
    if not kind.traits.sides:
        return answer.choice
    verdict = {"left": "a", "right": "b"}.get(answer.choice, answer.choice)
    return next(CALLED[each] for each in CALLED if meaning_of(each) == (verdict, answer.strength))


def _command(call: Call, upload: Upload, columns: Columns) -> str:
    """The equivalent command line."""
    default = Columns()
    where = str(call.store.path) if call.store.path else f"{call.here.name} --db {call.store.address}"
    words = ["tutelage collect import", where, shlex.quote(upload.name)]
    if columns.prompts != default.prompts:
        words.append(f"--prompt {' '.join(map(shlex.quote, columns.prompts))}")
    names = ("a", "b", *(() if columns.annotators else ("choice", "rater")), *OPTIONAL)
    for name in names:
        value = getattr(columns, name)
        if value and value != getattr(default, name):
            flag = {"choice": "choice-column"}.get(name, name.replace("_", "-"))
            words.append(f"--{flag} {shlex.quote(value)}")
    if columns.annotators:
        words.append(f"--annotators {' '.join(map(shlex.quote, columns.annotators))}")
    for word in columns.choices:
        words.append(f"--choice {shlex.quote(f'{word}={_means(columns, word)}')}")
    return " ".join(words)
