"""Export of a study as files: rows for training, every judgement, and a manifest that accounts for all of them.

    preferences.jsonl   TRL's explicit-prompt preference columns, with p_chosen, weight, margin and its origin
    steps.jsonl         where steps are judged: TRL's stepwise columns prompt, completions, labels, with the probability
                        that a step is right as its label, null for one without, and a step that is messages as a list
    unpaired.jsonl      responses of pairs judged as both bad, and single responses judged good or bad: TRL's prompt,
                        completion, label
    demonstrations.jsonl  corrections written by raters, and the better responses of live conversations: TRL's prompt,
                        completion, and a weight
    corrections.jsonl   corrections as preferences over their originals
    spans.jsonl         spans that raters marked as wrong; not training data
    votes.jsonl         every judgement with all its revisions, displayed and canonical, and the consent version of its
                        rater; those of simulated raters only if the selection includes them
    votes.csv           the judgements in force, for spreadsheets; cells cannot act as formulas
    items.jsonl, raters.jsonl, manifest.json
    images/             the images that the texts name, each by the SHA-256 of its content

Raters are identified by pseudonyms (`raters.pseudonym_of`), which are the same in every file and every export of a
study. Only raters.jsonl, which is not training data, contains names, and only on request. Files of corrections and
spans exist only if the study collects them. `restoration.import_export` restores the study from an export, with the
same posteriors.
"""

import csv
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

from tutelage.base.errors import TutelageError
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import CompletionRecord, RatedSteps, UnpairedAnswer, message_row
from tutelage.data.traces import trace_messages
from tutelage.people.correction_data import CorrectedAnswer
from tutelage.people.images import FOLDER, turn_with_parts, with_parts
from tutelage.people.kinds import find_kind
from tutelage.people.manifest import describe, marking
from tutelage.people.redaction import Hints, find_places, redact_rater, redact_reasons, redact_study, search_of
from tutelage.people.selection import Selection
from tutelage.people.store.additions import list_images
from tutelage.people.store.consents import Agreement, Agreements, list_agreements
from tutelage.people.store.conversations import LIVE, find_live_models
from tutelage.people.store.engine import Store
from tutelage.people.store.events import record_export
from tutelage.people.store.item_catalogue import Question, list_questions
from tutelage.people.store.raters import Rater, list_raters
from tutelage.people.store.studies import Study, list_studies, list_versions, study_of
from tutelage.people.store.votes import Snapshot, Vote, vote_row
from tutelage.people.tool_rows import Tool, tool_rows
from tutelage.people.training_data import LabelledStudy, Row, chosen_turns, label_study


def export_study(
    store: Store,
    study_id: int,
    folder: Path,
    selection: Selection | None = None,
    *,
    at: Snapshot | None = None,
    redact: bool = False,
    names: bool = False,
    tools: Sequence[Tool] = (),
    actor: str = "owner",
) -> "ExportResult":
    """Export a study into a new folder, atomically, and record the export in the study. With `redact`, likely personal
    data in texts written by people is replaced by its kind, such as `[email]`. With `names`, raters.jsonl includes the
    names of raters, and only the owner of the folder can read it. For each of `tools` there is a file of preferences in
    its shape (`tool_rows`). Raises TutelageError if the folder exists or cannot be written, the selection would mix
    versions, or the libraries that `redact` needs are not installed."""
    if folder.exists():
        raise TutelageError(f"{folder} already exists; export into a new folder.")
    selection = selection or Selection()
    study = study_of(store, study_id)
    labelled, questions = label_study(store, study_id, selection, at), list_questions(store, study_id)
    raters = tuple(rater for rater in list_raters(store, study_id) if selection.lists(rater.kind))
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(mode=0o700 if names else 0o777, parents=True)
        manifest = describe(store, study, selection, labelled)
        hints = find_places(store, study_id, _listed(labelled, selection), questions)
        manifest["personal_data"] = {"found": hints.counts, "redacted": redact}
        agreements = list_agreements(store, study_id, labelled.snapshot.last_event)
        if redact:
            search = search_of(store, study_id)
            labelled, questions = redact_study(labelled, questions, search)
            raters = tuple(redact_rater(rater, search) for rater in raters)
            manifest["excluded"] = redact_reasons(cast(Any, manifest["excluded"]), search)
        manifest["names"] = names
        contents = Contents(study, labelled, agreements, questions, raters, names, tools)
        manifest["files"] = _write_files(partial, contents, store, selection)
        manifest["images"] = _write_images(partial / FOLDER, store, study_id)
        (partial / "manifest.json").write_text(
            json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        os.replace(partial, folder)
    except OSError as error:
        raise TutelageError(f"The export cannot be written to {folder}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    record_export(store, study_id, labelled.snapshot, asdict(selection), manifest, actor=actor)
    return ExportResult(manifest, hints)


def export_command(
    store: Store, study: str, selection: Selection, out: str = "NEW_FOLDER", *, redact: bool = False
) -> str:
    """The command that exports a study with this selection."""
    if store.path is None:
        where = [shlex.quote(study), "--db", store.address]
    else:
        where = [
            shlex.quote(str(store.path)),
            *(["--name", shlex.quote(study)] if len(list_studies(store)) > 1 else []),
        ]
    redacts = ["--redact"] if redact else []
    return " ".join(["tutelage collect export", *where, "--out", out, *selection.flags, *redacts])


@dataclass(frozen=True)
class ExportResult:
    """The manifest of an export, and likely personal data in its texts."""

    manifest: dict[str, Any]
    hints: Hints


@dataclass(frozen=True)
class Contents:
    """The contents of an export."""

    study: Study
    labelled: LabelledStudy
    agreements: Agreements
    questions: Sequence[Question]
    raters: Sequence[Rater]
    names: bool
    tools: Sequence[Tool]


def _write_files(folder: Path, contents: Contents, store: Store, selection: Selection) -> dict[str, object]:
    study, labelled, questions = contents.study, contents.labelled, contents.questions
    rows = (preference_row(row, study.name) for row in labelled.rows)
    listed = _listed(labelled, selection)
    consents = [contents.agreements.at(vote.rater, vote.created) for vote in listed]
    agreed = list(zip(listed, consents, strict=True))
    files: dict[str, Iterable[Mapping[str, object]]] = {
        "preferences.jsonl": rows,
        "unpaired.jsonl": chain(bad_rows(labelled.bad), rated_rows(labelled, study.name)),
        "votes.jsonl": (vote_row(vote) | consent_row(each) for vote, each in agreed),
        "items.jsonl": map(item_row, questions),
        "raters.jsonl": (
            rater_row(rater, labelled, contents.agreements, names=contents.names) for rater in contents.raters
        ),
    }
    if study.kind.traits.steps:
        files["steps.jsonl"] = step_rows(labelled, study.name)
    versions = list_versions(store, study.id)
    corrects = any(version.corrections for version in versions)
    if corrects or find_live_models(store, study.id) is not None:
        corrected = {each.question.key for each in labelled.corrections}
        chosen = [row for row in labelled.rows if row.question.key not in corrected]
        turns = turn_rows(chosen, study.name)
        files["demonstrations.jsonl"] = chain(demonstration_rows(labelled, study.name), turns)
    if corrects:
        files["corrections.jsonl"] = correction_rows(labelled, study.name)
    if any(version.spans for version in versions):
        files["spans.jsonl"] = marked_rows(marking(labelled, selection), questions)
    files |= {f"{tool}.jsonl": tool_rows(tool, labelled, study) for tool in contents.tools}
    counts = {name: write_jsonl(folder / name, lines) for name, lines in files.items()}
    if contents.names:
        (folder / "raters.jsonl").chmod(0o600)
    counts["votes.csv"] = write_csv(folder / "votes.csv", [(vote, each and each.number) for vote, each in agreed])
    return {name: {"rows": count, "sha256": file_hash(folder / name)} for name, count in counts.items()}


def _write_images(folder: Path, store: Store, study_id: int) -> int:
    """Write the images of the study; returns their number."""
    count = 0
    for name, content in list_images(store, study_id):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        count += 1
    return count


def _listed(labelled: LabelledStudy, selection: Selection) -> list[Vote]:
    """The votes listed in the files."""
    return [vote for vote in labelled.votes if selection.lists(vote.rater_kind)]


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(text: str) -> str:
    """Escape text that a spreadsheet would interpret as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def preference_row(row: Row, study: str) -> dict[str, object]:
    """A preference as a line of preferences.jsonl."""
    chosen, rejected = row.question.completions[row.chosen], row.question.completions[row.rejected]
    return to_row(row.preference) | _traces(chosen=chosen, rejected=rejected) | {
        "n_votes": sum(row.label.counts.values()), "votes": dict(row.label.counts), "strength": row.strength,
        "item_id": row.question.key, "chosen_id": chosen.id, "rejected_id": rejected.id,
        "chosen_model": chosen.sampler, "rejected_model": rejected.sampler,
    } | _place(row.question, study)  # fmt: skip


def _traces(**sides: CompletionRecord) -> dict[str, object]:
    """The responses of a row that are traces, by column, as lists of messages."""
    traces = {side: trace_messages(completion.steps) for side, completion in sides.items()}
    return {side: list(map(message_row, with_parts(messages))) for side, messages in traces.items() if messages}


def step_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    """Responses with labels of their steps as lines of steps.jsonl."""
    for row in labelled.steps:
        completion = row.question.completions[0]
        steps = tuple(step if isinstance(step, str) else with_parts(step) for step in completion.steps)
        rated = RatedSteps(with_parts(row.question.messages), steps, row.probabilities)
        counts = [each and {word: each.counts[verdict] for word, verdict in STEP_COUNTS.items()} for each in row.labels]
        yield to_row(rated) | {
            "votes": counts, "item_id": row.question.key,
            "completion_id": completion.id, "model": completion.sampler,
        } | _place(row.question, study)  # fmt: skip


STEP_COUNTS = {"right": "a", "neutral": "tie", "wrong": "b"}


def turn_rows(rows: Iterable[Row], study: str) -> Iterator[dict[str, object]]:
    """The chosen responses of turns of live conversations as demonstrations, without ties; of a trace each message that
    the assistant wrote."""
    for row in rows:
        if row.question.item.origin == LIVE and row.preference.p_chosen > 0.5:
            origin = {"item_id": row.question.key, "model": row.question.completions[row.chosen].sampler}
            for demonstration in chosen_turns(row):
                yield to_row(demonstration) | origin | _place(row.question, study)


def bad_rows(questions: Iterable[Question]) -> Iterator[dict[str, object]]:
    """The responses of questions judged as both bad, as lines of unpaired.jsonl."""
    for question in questions:
        for completion in question.completions:
            row = to_row(UnpairedAnswer(with_parts(question.messages), turn_with_parts(completion.text), False))
            yield (
                row
                | _traces(completion=completion)
                | {"item_id": question.key, "completion_id": completion.id, "model": completion.sampler}
            )


def rated_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    """Single responses judged good or bad, with the probability that they are good, as lines of unpaired.jsonl."""
    for row in labelled.rated:
        (completion,) = row.question.completions
        origin = {"p_good": row.label.p_first, "votes": dict(row.label.counts), "item_id": row.question.key}
        yield (
            to_row(row.answer)
            | origin
            | {"completion_id": completion.id, "model": completion.sampler}
            | _place(row.question, study)
        )


def demonstration_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    """Corrections as demonstrations."""
    for each in labelled.corrections:
        yield to_row(each.demonstration) | _origin(each, study)


def correction_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    """Corrections as preferences over their originals."""
    for each in labelled.corrections:
        for index, preference in each.pairs:
            original = each.question.completions[index]
            rejected = {"rejected_id": original.id, "rejected_model": original.sampler}
            traces = {} if each.correction.step is not None else _traces(rejected=original)
            yield to_row(preference) | traces | rejected | _origin(each, study)


def _origin(each: CorrectedAnswer, study: str) -> dict[str, object]:
    origin = {"item_id": each.question.key, "judgement": each.vote.id, "rater": each.vote.pseudonym}
    return origin | _place(each.question, study)


def _place(question: Question, study: str) -> dict[str, object]:
    return {"split": question.prompt.split, "round": question.item.round, "study": study}


def marked_rows(votes: Iterable[Vote], questions: Sequence[Question]) -> Iterator[dict[str, object]]:
    """The spans of votes as lines of spans.jsonl, with response ids as in items.jsonl; no column is text to train
    on."""
    by_key = {question.key: question for question in questions}
    for vote in votes:
        for span in vote.spans:
            completion = by_key[vote.item].completions[span.response]
            yield {
                "item_id": vote.item, "completion_id": completion.id, "model": completion.sampler,
                "judgement": vote.id, "rater": vote.pseudonym, "category": span.category, "start": span.start,
                "end": span.end, "words": completion.text[span.start : span.end],
            }  # fmt: skip


def item_row(question: Question) -> dict[str, object]:
    return {
        "item": asdict(question.item),
        "prompt": to_row(question.prompt),
        "completions": [to_row(completion) for completion in question.completions],
    }


def consent_row(consent: Agreement | None) -> dict[str, object]:
    """The consent text in force for a vote: its number, and the hash and language of the displayed text."""
    return {
        "consent": consent and consent.number,
        "consent_text": consent.sha256 if consent and consent.sha256 else None,
        "consent_language": consent.language if consent and consent.language else None,
    }


def rater_row(rater: Rater, labelled: LabelledStudy, agreements: Agreements, *, names: bool) -> dict[str, object]:
    """A rater as a line of raters.jsonl, by pseudonym; with `names`, including name and private details."""
    row = {"rater": rater.pseudonym} | asdict(rater)
    for private in ("id", "study_id", "identity", "contact"):
        del row[private]
    if not names:
        del row["name"]
        row["detail"] = {} if rater.kind == "human" else rater.detail
    name, consent = rater.name, agreements.by_rater.get(rater.name, (None,))[-1]
    text = {key: value for key, value in consent_row(consent).items() if key != "consent"}
    return row | {
        **text,
        "reliability": labelled.labels.accuracy.get(name),
        "interval": labelled.labels.interval.get(name),
    }


_CSV = (
    "id", "item", "rater", "rater_kind", "pool", "verdict", "strength", "repeat", "extra", "version", "active_ms",
)  # fmt: skip
_MORE = ("left", "flags", "reason", "excluded", "created", "correction", "spans", "consent")
"""Columns of votes.csv; `correction` is the better response, `spans` the number of spans."""


def write_csv(path: Path, votes: Sequence[tuple[Vote, int | None]]) -> int:
    """Write the votes in force as a table, each with the consent version of its rater; returns the number of votes."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        own = [find_kind(vote.kind).cells(vote.canonical) for vote, _ in votes]
        names = list(dict.fromkeys(name for cells in own for name in cells))
        writer.writerow((*_CSV, *_MORE, *names))
        for (vote, consent), extra in zip(votes, own, strict=True):
            if vote.latest:
                cells = [vote.pseudonym if name == "rater" else getattr(vote, name) for name in _CSV]
                cells += ["abcdef"[vote.sides[0]], " ".join(vote.flags), vote.reason, vote.excluded, vote.created]
                cells += [vote.correction and vote.correction.text, len(vote.spans), consent]
                cells += [extra.get(name) for name in names]
                writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in cells])
                count += 1
    return count
