"""Import of votes from files: upload, assignment of columns and choices, preview, and an all-or-nothing import on
confirmation."""

import shlex
from collections.abc import Mapping

from starlette.responses import JSONResponse, Response

from tutelage.base.errors import TutelageError
from tutelage.data.tables import Table
from tutelage.people.languages import Sentence
from tutelage.people.operations import IMPORT
from tutelage.people.validation import FieldError
from tutelage.people.vote_mapping import ImportReport, VoteMapping
from tutelage.people.web.call import Call, Refusal
from tutelage.people.web.forms import form_page, read_settings
from tutelage.people.web.uploads import ENDINGS, LONGEST_UPLOAD, Upload

NEEDED = {
    "a": Sentence("First response"),
    "b": Sentence("Second response"),
    "choice_column": Sentence("Choice"),
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
    table = upload.read()
    report = IMPORT.run(call.store, call.here.id, table, _mapping(call, table), call.me.name)
    call.site.uploads.drop(call.me.id)
    return form(call, report=report)


def _upload(call: Call) -> Upload | None:
    token = call.text("file")
    return call.site.uploads.find(call.me.id, token) if token else None


def form(call: Call, error: TutelageError | None = None, *, report: ImportReport | None = None) -> Response:
    """The upload form, the preview of the uploaded file, or the report on its import."""
    upload, table, mapping, preview, command = _upload(call), None, None, None, ""
    if call.text("file") and upload is None and report is None:
        error = FieldError("file", GONE)
    try:
        if upload is not None:
            table = upload.read()
            mapping = IMPORT.settings_for(table, {})
            mapping = _mapping(call, table)
            command = _command(call, upload, table, mapping)
            preview = IMPORT.look(call.store, call.here.id, table, mapping)
    except TutelageError as found:
        error = error or found
    return form_page(
        call,
        "owner/import.html",
        error,
        upload=upload,
        table=table,
        mapping=mapping,
        preview=preview,
        command=command,
        report=report,
        needed=NEEDED,
        optional=OPTIONAL,
        meanings=CALLED,
        endings=ENDINGS,
        longest=LONGEST_UPLOAD // 1024**2,
        place="import",
    )


def _mapping(call: Call, table: Table) -> VoteMapping:
    """The mapping from the form; initially, a guess."""
    submitted = any(call.values(each.name) for each in IMPORT.parameters)
    mapping: VoteMapping = read_settings(call, IMPORT) if submitted else IMPORT.settings_for(table, {})
    return mapping


def _command(call: Call, upload: Upload, table: Table, mapping: VoteMapping) -> str:
    """The equivalent command line."""
    guess = IMPORT.settings_for(table, {})
    where = str(call.store.path) if call.store.path else f"{call.here.name} --db {call.store.address}"
    words = ["tutelage collect import", where, shlex.quote(upload.name)]
    for each in IMPORT.parameters:
        value, flag = getattr(mapping, each.name), f"--{each.flag.replace('_', '-')}"
        if value == getattr(guess, each.name):
            continue
        texts = value if isinstance(value, tuple) else () if value is True else (value or "",)
        values = [shlex.quote(text) for text in texts]
        words += [f"{flag} {text}" for text in values] if each.append else [" ".join([flag, *values])]
    return " ".join(words)
