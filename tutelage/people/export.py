"""Export of a study as files: rows for training, every judgement, and a manifest that accounts for all of them.

    preferences.jsonl   TRL's explicit-prompt preference columns, with p_chosen, weight, margin and its origin
    unpaired.jsonl      responses that raters found bad (both of a pair): TRL's prompt, completion, label
    demonstrations.jsonl  better responses that raters wrote, and the better answers of live conversations: TRL's
                        prompt, completion, and a weight
    corrections.jsonl   the better responses as preferences over those that they correct
    spans.jsonl         words that raters marked as wrong; no data for training
    votes.jsonl         every judgement with all its revisions, as displayed and canonical
    votes.csv           the judgements in force, for spreadsheets; cells cannot act as formulas
    items.jsonl, raters.jsonl, manifest.json

Corrections and spans have files only where the study asks for them. `restoring.import_export` makes the same study of
all this again, with the same posteriors.
"""

import csv
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from tutelage import __version__
from tutelage.data.records import Demonstration
from tutelage.data.rows import to_row, write_jsonl
from tutelage.data.unpaired import UnpairedAnswer
from tutelage.errors import TutelageError
from tutelage.people.aggregate import agreements
from tutelage.people.corrected import IN_USE, CorrectedAnswer
from tutelage.people.kinds import find_kind
from tutelage.people.preferences import LabelledStudy, Row, label_study
from tutelage.people.selection import FATES, Selection, fate
from tutelage.people.store.catalogue import Question, list_questions
from tutelage.people.store.conversations import LIVE, find_live_models
from tutelage.people.store.engine import Store
from tutelage.people.store.exports import list_versions, record_export
from tutelage.people.store.raters import Rater, list_raters
from tutelage.people.store.studies import Study, study_of
from tutelage.people.store.votes import Snapshot, Vote, list_exclusions, vote_row

FORMAT = "tutelage-export/1"
MANY_TIES = 0.05
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export_study(
    store: Store,
    study_id: int,
    folder: Path,
    selection: Selection | None = None,
    *,
    at: Snapshot | None = None,
    actor: str = "owner",
) -> dict[str, object]:
    """Export a study into a new folder, all files or none; returns the manifest. The study keeps a record of the
    export.

    Raises:
        TutelageError: the folder is there already, cannot be written, or the selection would mix versions.
    """
    if folder.exists():
        raise TutelageError(f"{folder} exists already; an export goes into a new folder.")
    selection = selection or Selection()
    study = study_of(store, study_id)
    labelled = label_study(store, study_id, selection, at)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        manifest = describe(store, study, selection, labelled)
        manifest["files"] = _write_files(partial, store, study, labelled, selection)
        (partial / "manifest.json").write_text(_pretty(manifest), encoding="utf-8")
        os.replace(partial, folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise TutelageError(
            f"The export cannot be written to {folder}: {error.strerror or error}."
        ) from error
    record_export(store, study_id, labelled.snapshot, asdict(selection), manifest, actor=actor)
    return manifest


def describe(store: Store, study: Study, selection: Selection, labelled: LabelledStudy) -> dict[str, object]:
    """The manifest of an export without its files: what was exported, from which votes, and the fate of all other
    votes."""
    fates = {name: labelled.fates.get(name, 0) for name in FATES}
    excluded = list_exclusions(store, study.id, labelled.snapshot)
    counted = [vote for vote in labelled.votes if fate(vote, selection) == "counts"]
    return {
        "format": FORMAT,
        "tutelage": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(store.clock())),
        "study": {
            "name": study.name,
            "kind": study.kind.name,
            "plan": asdict(study.plan),
            "created": study.created,
        },
        "versions": [asdict(presentation) for presentation in list_versions(store, study.id)],
        "snapshot": asdict(labelled.snapshot),
        "selection": asdict(selection),
        "judgements": {"total": len(labelled.votes), **fates},
        "rows": {
            "preferences": len(labelled.rows),
            "by_split": dict(Counter(str(row.question.prompt.split) for row in labelled.rows)),
            "unpaired": sum(len(question.texts) for question in labelled.bad),
            "demonstrations": len(labelled.corrections),
            "corrections": sum(len(each.pairs) for each in labelled.corrections),
            "spans": sum(len(vote.spans) for vote in _marking(labelled, selection)),
        },
        "corrections": {
            "total": sum(labelled.correction_fates.values()),
            **labelled.correction_fates,
        },
        "reliability": labelled.labels.accuracy,
        "strength_agreement": labelled.labels.strength_agreement,
        "agreements": {name: alpha.value for name, alpha in agreements(counted).items()},
        "excluded": asdict(excluded),
        "notes": list(_notes(fates, selection)),
    }


def preference_row(row: Row, study: str) -> dict[str, object]:
    """A preference as a line of preferences.jsonl."""
    chosen, rejected = row.question.completions[row.chosen], row.question.completions[row.rejected]
    return to_row(row.preference) | {
        "n_votes": sum(row.label.counts.values()),
        "votes": dict(row.label.counts),
        "strength": row.strength,
        "item_id": row.question.key,
        "chosen_id": chosen.id,
        "rejected_id": rejected.id,
        "chosen_model": chosen.sampler,
        "rejected_model": rejected.sampler,
        "split": row.question.prompt.split,
        "round": row.question.item.round,
        "study": study,
    }


def reconciliation(labelled: LabelledStudy, selection: Selection) -> tuple[str, ...]:
    """The numbers of judgements by fate, as one line that adds up, followed by remarks."""
    fates = {name: labelled.fates.get(name, 0) for name in FATES}
    parts = " + ".join(f"{count:,} {name}" for name, count in fates.items() if count)
    counted = Counter(vote.rater_kind for vote in labelled.votes if fate(vote, selection) == "counts")
    mixed = counted["simulated"] and counted["human"]
    simulated = (
        [f"{counted['simulated']} of the judgements that count are by simulated raters."] if mixed else []
    )
    line = f"{len(labelled.votes):,} judgements = {parts or '0'}"
    return line, *_notes(fates, selection), *simulated


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _notes(fates: Mapping[str, int], selection: Selection) -> Iterator[str]:
    decided = fates["used"] + fates["tied"]
    if selection.ties == "drop" and decided and fates["tied"] / decided >= MANY_TIES:
        yield (
            f"{fates['tied'] / decided:.0%} of the votes are on pairs found equal and were dropped; keep ties "
            "and train with the loss davidson to use them."
        )
    if fates["other_kind"]:
        kinds = ", ".join(selection.kinds)
        yield (
            f"{fates['other_kind']} judgements by raters of other kinds than {kinds} are left out (see --kinds)."
        )


def _write_files(
    folder: Path, store: Store, study: Study, labelled: LabelledStudy, selection: Selection
) -> dict[str, object]:
    rows = (preference_row(row, study.name) for row in labelled.rows)
    files: dict[str, Iterable[Mapping[str, object]]] = {
        "preferences.jsonl": rows,
        "unpaired.jsonl": _bad_rows(labelled.bad),
        "votes.jsonl": map(vote_row, labelled.votes),
        "items.jsonl": map(_item_row, list_questions(store, study.id)),
        "raters.jsonl": (_rater_row(rater, labelled) for rater in list_raters(store, study.id)),
    }
    shown = list_versions(store, study.id)
    corrects = any(version.corrections for version in shown)
    if corrects or find_live_models(store, study.id) is not None:
        corrected = {each.question.key for each in labelled.corrections}
        chosen = [row for row in labelled.rows if row.question.key not in corrected]
        turns = _demonstrations(chosen, study.name)
        files["demonstrations.jsonl"] = chain(_demonstration_rows(labelled, study.name), turns)
    if corrects:
        files["corrections.jsonl"] = _correction_rows(labelled, study.name)
    if any(version.spans for version in shown):
        files["spans.jsonl"] = _span_rows(_marking(labelled, selection), list_questions(store, study.id))
    counts = {name: write_jsonl(folder / name, lines) for name, lines in files.items()}
    counts["votes.csv"] = _write_csv(folder / "votes.csv", labelled.votes)
    return {name: {"rows": count, "sha256": file_hash(folder / name)} for name, count in counts.items()}


def _demonstrations(rows: Iterable[Row], study: str) -> Iterator[dict[str, object]]:
    """The chosen answers of turns of live conversations, for supervised fine-tuning; turns found equal chose none."""
    for row in rows:
        if row.question.item.origin == LIVE and row.preference.p_chosen > 0.5:
            shown = Demonstration(row.preference.messages, row.preference.chosen)
            model = row.question.completions[row.chosen].sampler
            yield to_row(shown) | {
                "item_id": row.question.key,
                "model": model,
                "split": row.question.prompt.split,
                "round": row.question.item.round,
                "study": study,
            }


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bad_rows(questions: Iterable[Question]) -> Iterator[dict[str, object]]:
    for question in questions:
        for completion in question.completions:
            row = to_row(UnpairedAnswer(question.messages, completion.text, False))
            yield row | {"item_id": question.key, "completion_id": completion.id, "model": completion.sampler}


def _demonstration_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    for each in labelled.corrections:
        yield to_row(each.demonstration) | _origin(each, study)


def _correction_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    for each in labelled.corrections:
        for index, preference in each.pairs:
            original = each.question.completions[index]
            named = {"rejected_id": original.id, "rejected_model": original.sampler}
            yield to_row(preference) | named | _origin(each, study)


def _origin(each: CorrectedAnswer, study: str) -> dict[str, object]:
    question = each.question
    return {
        "item_id": question.key,
        "judgement": each.vote.id,
        "rater": each.vote.rater,
        "split": question.prompt.split,
        "round": question.item.round,
        "study": study,
    }


def _marking(labelled: LabelledStudy, selection: Selection) -> Iterator[Vote]:
    """The votes whose spans are used: those whose corrections would be."""
    return (vote for vote in labelled.votes if vote.spans and fate(vote, selection) in IN_USE)


def _span_rows(votes: Iterable[Vote], questions: Sequence[Question]) -> Iterator[dict[str, object]]:
    """A line per span. It names the response by its id in items.jsonl and has no column with a text to learn from."""
    by_key = {question.key: question for question in questions}
    for vote in votes:
        for span in vote.spans:
            completion = by_key[vote.item].completions[span.response]
            yield {
                "item_id": vote.item,
                "completion_id": completion.id,
                "model": completion.sampler,
                "judgement": vote.id,
                "rater": vote.rater,
                "category": span.category,
                "start": span.start,
                "end": span.end,
                "words": completion.text[span.start : span.end],
            }


def _item_row(question: Question) -> dict[str, object]:
    return {
        "item": asdict(question.item),
        "prompt": to_row(question.prompt),
        "completions": [asdict(completion) for completion in question.completions],
    }


def _rater_row(rater: Rater, labelled: LabelledStudy) -> dict[str, object]:
    row = asdict(rater)
    for private in ("id", "study_id"):
        del row[private]
    name = rater.name
    return row | {
        "reliability": labelled.labels.accuracy.get(name),
        "interval": labelled.labels.interval.get(name),
    }


_CSV = (
    "id",
    "item",
    "rater",
    "rater_kind",
    "pool",
    "verdict",
    "strength",
    "repeat",
    "extra",
    "version",
    "active_ms",
)


_CORRECTED = ("correction", "spans")
"""The better response, and the number of spans."""


def _write_csv(path: Path, votes: Sequence[Vote]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        own = [find_kind(vote.kind).cells(vote.said) for vote in votes]
        names = list(dict.fromkeys(name for cells in own for name in cells))
        writer.writerow((*_CSV, "left", "flags", "reason", "excluded", "created", *_CORRECTED, *names))
        for vote, found in zip(votes, own, strict=True):
            if vote.latest:
                cells = [getattr(vote, name) for name in _CSV]
                cells += [
                    "abcdef"[vote.sides[0]],
                    " ".join(vote.flags),
                    vote.reason,
                    vote.excluded,
                    vote.created,
                    vote.correction and vote.correction.text,
                    len(vote.spans),
                    *(found.get(name) for name in names),
                ]
                writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in cells])
                count += 1
    return count


def _pretty(manifest: Mapping[str, object]) -> str:
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
