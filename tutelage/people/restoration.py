"""Restoration of a study from its export: the same items, raters, judgements, versions and exclusions."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.data.images import BadImage, ImageFile, image_file
from tutelage.data.record_files import from_row
from tutelage.data.records import CompletionRecord, Prompt, step_from
from tutelage.people.answers import answer_from
from tutelage.people.export import file_hash
from tutelage.people.images import FOLDER, NAME
from tutelage.people.manifest import FORMAT
from tutelage.people.settings import Consent, Plan
from tutelage.people.store.bulk import AnswerRecord, write_answers
from tutelage.people.store.consents import (
    Agreement,
    Agreements,
    ask_consent,
    is_standard,
    keep_texts,
    renew_if_former,
    restore_agreements,
)
from tutelage.people.store.engine import Store
from tutelage.people.store.exclusions import exclude
from tutelage.people.store.items import Item, add_items
from tutelage.people.store.raters import insert_rater
from tutelage.people.store.studies import Presentation, Study, create_study, present, study_of
from tutelage.people.store.votes import list_votes


def import_export(store: Store, folder: Path, *, name: str | None = None, actor: str = "owner") -> Study:
    """Restore the study that was exported to this folder, optionally under another name. Posteriors are the same as in
    the original; future random choices (order of sides, golds) differ. Raises TutelageError if the folder does not
    contain an export, a file is missing or was modified, or the name is taken."""
    manifest = _manifest(folder)
    facts = manifest["study"]
    versions = [
        Presentation(**row | {name: tuple(row[name]) for name in ("criteria", "spans")}) for row in manifest["versions"]
    ]
    study = create_study(
        store,
        name or facts["name"],
        kind=facts["kind"],
        presentation=versions[0],
        plan=Plan(**facts["plan"]),
        languages=facts["languages"],
        actor=actor,
    )
    for version in versions[1:]:
        present(store, study.id, version, actor=actor)
    _add_items(store, study, folder, manifest["images"], actor)
    # In an export without names, raters are named by their pseudonyms.
    raters = [row | {"name": row.get("name", row["rater"])} for row in _lines(folder, "raters.jsonl")]
    names = {row["rater"]: row["name"] for row in raters}
    with store.write(alone=True) as connection:
        for row in raters:
            insert_rater(
                connection, study.id, row["name"], now=store.now(), kind=row["kind"], role=row["role"],
                quota=row["quota"], detail=row["detail"], actor=actor,
            )  # fmt: skip
    rows = [row | {"rater": names[row["rater"]]} for row in _lines(folder, "votes.jsonl")]
    write_answers(store, study.id, [_answer_record(row) for row in rows], source=str(folder), actor=actor)
    _agree_again(store, study, manifest["consents"], raters, rows, actor)
    excluded = manifest["excluded"]
    by_name = {names.get(rater, rater): reason for rater, reason in excluded["rater"].items()}
    _exclude_again(store, study, excluded | {"rater": by_name}, folder, actor)
    return study_of(store, study.id)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TutelageError(f"{folder} does not contain an export of Tutelage: {error}.") from error
    if manifest.get("format") != FORMAT:
        raise TutelageError(
            f"{folder} has the format {manifest.get('format')!r}, but this version of Tutelage reads {FORMAT!r}. "
            "Import it with the version that exported it, or export the study again with this version."
        )
    for name, facts in manifest["files"].items():
        path = folder / name
        if not path.exists():
            raise TutelageError(f"{path} is missing from the export.")
        if file_hash(path) != facts["sha256"]:
            raise TutelageError(f"{path} was changed after the export; import an unmodified copy.")
    return manifest


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    with (folder / name).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _add_items(store: Store, study: Study, folder: Path, count: int, actor: str) -> None:
    """Add the items, and the `count` images of the export."""
    rows = _lines(folder, "items.jsonl")
    prompts = {row["prompt"]["id"]: from_row(Prompt, row["prompt"]) for row in rows}
    completions = {
        each["id"]: CompletionRecord(**each | {"steps": tuple(map(step_from, each.get("steps", ())))})
        for row in rows
        for each in row["completions"]
    }
    items = [Item(**row["item"] | {"responses": tuple(row["item"]["responses"])}) for row in rows]
    # Every image, whatever names it; a text may name one that the study never had.
    paths = [path for path in sorted((folder / FOLDER).glob("*")) if re.fullmatch(NAME, path.name)]
    if len(paths) != count:
        raise TutelageError(f"Images are missing from the export: {folder / FOLDER} has {len(paths)} of {count}.")
    images = map(_image, paths)
    add_items(store, study.id, prompts.values(), completions.values(), items, images=images, actor=actor)


def _image(path: Path) -> ImageFile:
    """An image of an export, after checking that its content has the hash in its name."""
    try:
        image = image_file(path.read_bytes())
    except OSError as error:
        raise TutelageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except BadImage as error:
        raise TutelageError(f"{path} was changed after the export ({error}); import an unmodified copy.") from error
    if image.name != path.name:
        raise TutelageError(f"{path} was changed after the export; import an unmodified copy.")
    return image


def _answer_record(row: Mapping[str, Any]) -> AnswerRecord:
    sides = tuple(row["sides"])
    return AnswerRecord(
        row["item"], row["rater"], sides, answer_from(row, sides), row["created"], row["version"], row["chosen_by"],
        row["repeat"], row["extra"],
    )  # fmt: skip


def _agree_again(
    store: Store,
    study: Study,
    texts: Iterable[Mapping[str, Any]],
    raters: Iterable[Mapping[str, Any]],
    votes: Iterable[Mapping[str, Any]],
    actor: str,
) -> None:
    """Restore the consent texts and the consents of raters, as recorded with votes and, for the latest, with raters."""
    rows = [row for row in texts if row["version"] is not None]
    numbered = {row["version"]: row for row in rows if row["version"]}
    for _, row in sorted(numbered.items()):
        text = "" if is_standard(row["text"]) else row["text"]
        ask_consent(store, study.id, Consent(text, row["votes"], row["retention_days"]), actor=actor)
    keep_texts(store, study.id, [row["text"] for row in rows if "languages" in row])
    by_rater: dict[str, dict[tuple[int, str], Agreement]] = {}

    def add(name: str, row: Mapping[str, Any], number: int, moment: int) -> None:
        language, text = row["consent_language"] or "", row["consent_text"] or ""
        consents = by_rater.setdefault(name, {})
        earlier = consents.get((number, text))
        at = min(moment, earlier.at) if earlier else moment
        consents[number, text] = Agreement(at, number, language, text)

    for row in raters:
        if row["consented"] is not None:
            add(row["name"], row, row["agreed"], row["consented"])
    for row in votes:
        if row["consent"] is not None:
            add(row["rater"], row, row["consent"], row["created"])
    agreements = Agreements({name: tuple(sorted(consents.values())) for name, consents in by_rater.items()})
    restore_agreements(store, study.id, agreements)
    renew_if_former(store, study.id, agreements, actor=actor)


def _exclude_again(store: Store, study: Study, excluded: Mapping[str, Any], folder: Path, actor: str) -> None:
    for scope in ("rater", "item"):
        for name, reason in excluded[scope].items():
            exclude(store, study.id, scope, name, reason, actor=actor)
    if excluded["judgement"]:
        keys = {str(row["id"]): row["key"] for row in _lines(folder, "votes.jsonl")}
        numbers = {vote.key: str(vote.id) for vote in list_votes(store, study.id, every_revision=True)}
        for number, reason in excluded["judgement"].items():
            exclude(store, study.id, "judgement", numbers[keys[number]], reason, actor=actor)
