"""Export of votes: a preview with the fate of every vote, the equivalent command, and the download."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from tutelage.base.errors import TutelageError
from tutelage.people import Selection, label_study, list_questions, list_votes
from tutelage.people.export import export_command, export_study, preference_row
from tutelage.people.languages import Sentence
from tutelage.people.manifest import describe
from tutelage.people.operations import EXPORT
from tutelage.people.redaction import find_places
from tutelage.people.store.events import list_exports
from tutelage.people.store.studies import list_versions
from tutelage.people.validation import FieldError, record_number
from tutelage.people.web.call import Call
from tutelage.people.web.forms import form_page, read_value
from tutelage.people.web.pages.owner.items import item_address

FEW_ENOUGH = 20_000
"""Maximum number of judgements for an automatic preview."""
TOO_MANY = 200_000
"""Number of judgements from which exports are left to the command line."""
ROWS = 5
PLACES = 20
"""Maximum number of places with personal data to list."""
FATES = {
    "used": (Sentence("used"), Sentence("in a preference below")),
    "outvoted": (Sentence("outvoted"), Sentence("equal or both bad, beside a pair that was decided")),
    "tied": (Sentence("tied"), Sentence("of pairs that most found equal")),
    "both_bad": (Sentence("both bad"), Sentence("of pairs that most found bad; they become single bad responses")),
    "too_few": (Sentence("too few"), Sentence("of pairs with fewer votes for a side than asked for")),
    "identical": (Sentence("identical"), Sentence("of pairs whose responses are the same text")),
    "adjudication": (
        Sentence("adjudication"),
        Sentence("judgements by an owner or a reviewer, which decide a label by themselves"),
    ),
    "gold": (Sentence("gold"), Sentence("on known answers: they measure the rater")),
    "training": (Sentence("training"), Sentence("practice")),
    "repeat": (Sentence("repeat"), Sentence("asked again: they measure how consistent a rater is")),
    "skipped": (Sentence("skipped"), Sentence("could not be judged")),
    "excluded": (Sentence("excluded"), Sentence("by an owner, with a reason")),
    "other_kind": (Sentence("other kind"), Sentence("by a kind of rater that is not chosen here")),
    "other_version": (Sentence("other version"), Sentence("on a version of the question that is not chosen here")),
    "superseded": (Sentence("superseded"), Sentence("changed later by the rater")),
}
"""Names and explanations of the fates of judgements."""


def form(call: Call, error: TutelageError | None = None) -> Response:
    """The export form with a preview of its result."""
    try:
        selection = selection_from(call)
    except FieldError as wrong:
        selection, error = Selection(), error or wrong
    cached = call.site.keeper.whole(call.here)
    redacts = call.text("redact") == "yes"
    judgements = cached.value.survey.counts.judgements if cached.value is not None else TOO_MANY
    previewing = judgements < FEW_ENOUGH or (call.text("preview") and judgements < TOO_MANY)
    preview = None
    try:
        preview = _preview(call, selection) if previewing and error is None else None
    except TutelageError as wrong:
        error = wrong
    hints = None
    if preview:
        votes = list_votes(call.store, call.here.id, every_revision=True)
        listed = [vote for vote in votes if selection.lists(vote.rater_kind)]
        hints = find_places(call.store, call.here.id, listed, list_questions(call.store, call.here.id))
    return form_page(
        call,
        "owner/export.html",
        error,
        selection=selection,
        versions=range(1, len(list_versions(call.store, call.here.id)) + 1),
        preview=preview,
        fates=FATES,
        hints=hints,
        redact=redacts,
        most_places=PLACES,
        address=item_address,
        command=export_command(call.store, call.here.name, selection, redact=redacts),
        exports=list_exports(call.store, call.here.id)[:10],
        too_many=judgements >= TOO_MANY,
        place="export",
    )


def download(call: Call) -> Response:
    """The export as one archive."""
    folder = Path(tempfile.mkdtemp(prefix="tutelage-export-"))
    try:
        export_study(
            call.store,
            call.here.id,
            folder / "export",
            selection_from(call),
            redact=call.text("redact") == "yes",
            actor=call.me.name,
        )
        archive = shutil.make_archive(str(folder / "archive"), "zip", folder / "export")
    except FieldError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return form(call, error)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    name = "".join(letter if letter.isalnum() else "-" for letter in call.here.name).strip("-") or "study"
    tidy = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
    return FileResponse(archive, media_type="application/zip", filename=f"{name}.zip", background=tidy)


def selection_from(call: Call) -> Selection:
    """The selection from the form, with defaults for missing fields. Raises FieldError if it is invalid."""
    versions = [record_number(each) for each in call.values("versions") if each]
    if not all(versions):
        raise FieldError("versions", "Versions of the question are numbers.")
    parameters = [each for each in EXPORT.parameters if each.name != "versions" and call.values(each.name)]
    values: dict[str, Any] = {each.name: read_value(call, each) for each in parameters}
    return Selection(**values, versions=tuple(versions) or None)


def _preview(call: Call, selection: Selection) -> Mapping[str, object]:
    labelled = label_study(call.store, call.here.id, selection)
    manifest = describe(call.store, call.here, selection, labelled)
    fates = dict(cast(Mapping[str, int], manifest["judgements"]))
    total = fates.pop("total")
    rows = [preference_row(row, call.here.name) for row in labelled.rows[:ROWS]]
    return {
        "total": total,
        "fates": {name: count for name, count in fates.items() if count},
        "rows": rows,
        "counts": manifest["rows"],
        "corrections": manifest["corrections"],
        "notes": manifest["notes"],
        "selection": asdict(selection),
    }
