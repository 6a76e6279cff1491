"""Studies as training data: preferences or demonstrations at one moment, and the votes that a reward model is compared
with; provenance of models, from the folders on this machine."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.base import nouns
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.data.images import has_images
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import ALL_ROWS, Demonstration, Preference, StudyRows, prompt_id
from tutelage.people import LabelledStudy, Selection, Snapshot, freeze, label_study, open_store, open_study
from tutelage.people.aggregation import pair_name
from tutelage.people.manifest import reconciliation
from tutelage.people.training_data import (
    T,
    TrainingRow,
    counted,
    decided_votes,
    traces_in_talks,
    training_demonstrations,
    training_pairs,
)
from tutelage.report.json_files import number, read_object, section
from tutelage.stats.calibration import VoteCeiling, vote_ceiling
from tutelage.stats.reward_quality import against_votes, by_strength
from tutelage.stats.vote_codes import Votes

RECORD = "study.json"
"""File in a run directory: the study, the moment, and the outcome of its votes."""
LONGEST_PATH = 1024
TRUSTED = 0.6
"""Minimum reliability of a rater whose single votes are compared with a reward model. In a small pool, a rater who
guesses or votes for the worse response would make the ceiling meaningless."""


@dataclass(frozen=True)
class PairVotes:
    """Votes on one pair: mean strength in favour of the chosen side, and trusted votes for each side."""

    strength: float
    for_chosen: int
    for_rejected: int


@dataclass(frozen=True)
class StudySnapshot:
    """Preferences of a study at one moment.

    `votes` are the votes on each of them; `ceiling` is the accuracy of the best possible predictor of single votes,
    None without overlap; `record` is saved with the run. `columns` are the own columns of prompts that the study keeps,
    by id of the messages: rubrics.
    """

    train: tuple[Preference, ...]
    held_out: tuple[Preference, ...]
    votes: Mapping[Preference, PairVotes]
    ceiling: VoteCeiling | None
    record: Mapping[str, object]
    remarks: tuple[str, ...]
    columns: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyDemonstrations:
    """Demonstrations of a study at one moment; `record` is saved with the run."""

    train: tuple[Demonstration, ...]
    held_out: tuple[Demonstration, ...]
    record: Mapping[str, object]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Reading:
    """A study at the moment of a run, and the rows that the run uses."""

    name: str
    labelled: LabelledStudy
    rows: tuple[StudyRows, ...]
    record: Mapping[str, object]


class EmptyStudyError(TutelageError):
    """A study has none of the requested rows."""


def read_study(
    address: str, name: str, selection: Selection, *, rows: tuple[StudyRows, ...], held_out: float, seed: int, run: Path
) -> StudySnapshot:
    """Read the preferences of a study: at the moment when the run in the folder `run` began, or now for a new run.

    Held out are the pairs of the prompts that the study holds out or, if there are none, a share `held_out` of the
    prompts.

    Raises:
        TutelageError: the study does not exist, has no preferences yet, or is not the study of the run.
    """
    reading = _read(address, name, selection, rows, run)
    pairs = training_pairs(reading.labelled, reading.rows)
    _refuse_images(reading, pairs)
    talks = traces_in_talks(reading.labelled) if "live" in reading.rows else ()
    if not pairs:
        traces = f"; {nouns.counted(len(talks), 'turn')} with calls of tools compare traces" if talks else ""
        raise _nothing(reading, "preference", f"none of which decides a pair{traces}")
    left_out = (
        f"left out: {nouns.counted(len(talks), 'turn')} with calls of tools, of which sft reads the better response"
    )
    training, other = _divided(pairs, held_out, seed)
    votes = _trusted_votes(reading.labelled, selection)
    return StudySnapshot(
        training,
        other,
        _pair_votes(reading.labelled, votes),
        _ceiling(reading.labelled, votes),
        reading.record,
        (*_remarks(reading, pairs, len(other), "preferences", selection), *([left_out] if talks else [])),
        {prompt_id(prompt.messages): prompt.data for row in pairs if (prompt := row.question.prompt).data},
    )


def read_demonstrations(
    address: str, name: str, selection: Selection, *, rows: tuple[StudyRows, ...], held_out: float, seed: int, run: Path
) -> StudyDemonstrations:
    """Like `read_study`, for demonstrations: better responses that raters wrote or chose, with their weights."""
    reading = _read(address, name, selection, rows, run)
    rows_found = training_demonstrations(reading.labelled, reading.rows)
    _refuse_images(reading, rows_found)
    if not rows_found:
        raise _nothing(reading, "demonstration", "none of which shows a better answer")
    training, other = _divided(rows_found, held_out, seed)
    remarks = _remarks(reading, rows_found, len(other), "demonstrations", selection)
    return StudyDemonstrations(training, other, reading.record, remarks)


def _read(address: str, name: str, selection: Selection, rows: tuple[StudyRows, ...], run: Path) -> _Reading:
    with closing(open_store(address, create=False)) as store:
        study = open_study(store, name or None)
        before = _record_of(run, study.name)
        at = Snapshot(**before["snapshot"]) if before else freeze(store, study.id)
        rows = tuple(before["rows"]) if before else rows
        labelled = label_study(store, study.id, selection, at)
        record: dict[str, object] = {"database": store.address, "study": study.name, "snapshot": asdict(at)}
        record["raters"] = len(labelled.labels.accuracy)
        record |= {"selection": asdict(selection), "judgements": dict(labelled.fates), "rows": list(rows)}
        return _Reading(study.name, labelled, rows, record)


def _refuse_images(reading: _Reading, rows: Sequence[TrainingRow[T]]) -> None:
    key = next((row.question.key for row in rows if has_images(row.record)), None)
    if key is not None:
        raise TutelageError(
            f"'{reading.name}' has images (the first in the item '{key}'), and the models here read text alone. "
            "`tutelage collect export` writes the rows and the images for a program that trains on both."
        )


def _nothing(reading: _Reading, what: str, why: str) -> EmptyStudyError:
    others = [name for name in ALL_ROWS if name not in reading.rows]
    advice = f" --study-rows {' '.join((*reading.rows, *others))} reads all of its rows." if others else ""
    return EmptyStudyError(
        f"'{reading.name}' has no {what} to train on: {nouns.counted(len(reading.labelled.votes), 'judgement')}, "
        f"{why}.{advice}"
    )


def _divided(rows: Sequence[TrainingRow[T]], held_out: float, seed: int) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Split the records into training and held-out ones."""
    aside = {row.record for row in rows if row.question.prompt.split == "held_out"}
    every = [row.record for row in rows]
    training, other = tuple(r for r in every if r not in aside), tuple(r for r in every if r in aside)
    if training and other:
        return training, other
    divided = split_by_prompt(every, held_out, seed)
    return tuple(divided[0]), tuple(divided[1])


def _remarks(
    reading: _Reading, rows: Sequence[TrainingRow[T]], held_out: int, what: str, selection: Selection
) -> tuple[str, ...]:
    moment = reading.labelled.snapshot.last_judgement
    return (
        f"{reading.name} at judgement {moment:,}: {len(rows):,} {what}, {held_out:,} held out",
        f"{what}: {counted(rows)}",
        *reconciliation(reading.labelled, selection),
    )


def record_study(study: StudySnapshot | StudyDemonstrations, run: Path) -> None:
    """Record in the run directory which study the run used, and at which moment."""
    write_atomically(run / RECORD, json.dumps(study.record, indent=2, ensure_ascii=False) + "\n")


def _record_of(run: Path, study: str) -> dict[str, Any]:
    """Return the record of an earlier start of the run; empty if there is none."""
    file = run / RECORD
    if not file.is_file():
        return {}
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if record["study"] != study:
        raise TutelageError(f"The run in {run} read the study '{record['study']}', not '{study}'.")
    return record


def _trusted_votes(labelled: LabelledStudy, selection: Selection) -> Votes:
    votes = decided_votes(labelled, selection)
    trusted = [labelled.labels.accuracy[name] >= TRUSTED for name in votes.raters]
    return votes.keep(np.array(trusted)[votes.rater]) if any(trusted) else votes


def _pair_votes(labelled: LabelledStudy, votes: Votes) -> dict[Preference, PairVotes]:
    counts = dict(zip(votes.items, votes.counts().tolist(), strict=True))
    pair_votes = {}
    for row in labelled.rows:
        sides = counts.get(pair_name(row.label), [0, 0])
        for_chosen, for_rejected = sides if row.chosen == row.label.first else sides[::-1]
        pair_votes[row.preference] = PairVotes(row.strength, for_chosen, for_rejected)
    return pair_votes


def _ceiling(labelled: LabelledStudy, votes: Votes) -> VoteCeiling | None:
    prompts = {pair_name(row.label): row.question.prompt.id for row in labelled.rows}
    names = [prompts.get(item, item) for item in votes.items]
    try:
        return vote_ceiling(votes, np.unique(names, return_inverse=True)[1])
    except TutelageError:  # no item with two votes: their noise is unknown
        return None


def vote_figures(study: StudySnapshot, differences: Sequence[float], pairs: Sequence[Preference]) -> dict[str, object]:
    """Return the accuracy of a reward model on the pairs decided by votes: by strength, and against single votes and
    their noise ceiling."""
    voted = [place for place, pair in enumerate(pairs) if pair in study.votes]
    if not voted:
        return {}
    pairs, differences = [pairs[place] for place in voted], [differences[place] for place in voted]
    pair_votes = [study.votes[pair] for pair in pairs]
    prompts = [str(pair.messages) for pair in pairs]
    votes = against_votes(
        differences, [each.for_chosen for each in pair_votes], [each.for_rejected for each in pair_votes], prompts
    )
    figures: dict[str, object] = {
        "by_strength": by_strength(
            differences, [pair.p_chosen for pair in pairs], [each.strength for each in pair_votes], prompts
        ),
        "votes": votes,
    }
    if study.ceiling is not None:
        best, agreement = study.ceiling.ceiling, study.ceiling.agreement
        figures["ceiling"] = {
            "value": best.value,
            "interval": [best.low, best.high],
            "agreement": agreement.value,
            "bounds": [study.ceiling.lowest, study.ceiling.highest],
        }
    return figures


WEIGHTS = ("*.safetensors", "*.bin")
ENDS = 1 << 20


def fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits that identify the weights in a folder: a hash of the name, the size, and the first
    and last mebibyte of every weights file."""
    digest = hashlib.sha256()
    for path in sorted(file_path for pattern in WEIGHTS for file_path in folder.glob(pattern)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(ENDS))
            file.seek(max(0, size - ENDS))
            digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]


def lineage_of(model: str) -> dict[str, object]:
    """Return the policy with its fingerprint; for a model trained by `tutelage`, its initial model and reward; for a
    reward model trained on a study, that study and its last judgement."""
    lineage: dict[str, object] = {"policy": model}
    folder = Path(model)
    if not folder.is_dir():
        return lineage
    lineage["fingerprint"] = fingerprint(folder)
    settings = section(read_object(_run_of(folder) / "config.json")[0], "settings")
    start = settings.get("model")
    if isinstance(start, dict) and start.get("path"):
        lineage["trained_from"] = start["path"]
    rewards = settings.get("reward")
    if isinstance(rewards, list) and rewards:
        lineage["reward"] = ", ".join(map(str, rewards))
        lineage |= _studied([str(each).partition("=")[0] for each in rewards])
    return lineage


def _run_of(folder: Path) -> Path:
    """Return the run folder whose final model is in `folder`."""
    return folder.parent if folder.name == "model" else folder


def _studied(rewards: list[str]) -> dict[str, object]:
    for name in rewards:
        file = _run_of(Path(name)) / RECORD
        if file.is_file():
            record = json.loads(file.read_text(encoding="utf-8"))
            return {"study": record["study"], "judgements_until": record["snapshot"]["last_judgement"]}
    return {}


def runs_trained_on(folder: Path, database: str, study: str, first: int) -> dict[Path, str]:
    """The runs below a folder that used the judgements of a study from number `first` on, and the runs that began with
    their models or learnt from their rewards; each after those that it used, with what it used: the study, an export,
    or a run."""
    runs = {file.parent: read_object(file)[0] for file in sorted(folder.rglob("config.json"))}
    users: dict[Path, str] = {}
    for path, config in runs.items():
        record = read_object(path / RECORD)[0]
        if record.get("study") == study and record.get("database") == database:
            used, why = record, f"study {study}"
        else:
            used, why = _export_of(config, study)
        if (number(section(used, "snapshot"), "last_judgement") or 0) >= first:
            users[path] = why
    while True:
        more = {path: _of_run(config, users) for path, config in runs.items() if path not in users}
        more = {path: through for path, through in more.items() if through}
        if not more:
            return users
        users |= more


def _export_of(config: Mapping[str, Any], study: str) -> tuple[Mapping[str, Any], str]:
    """The manifest of an export of the study whose files a run used, and its folder; empty if there is none."""
    for text in _texts(section(config, "settings")):
        for folder in (Path(text), Path(text).parent):
            manifest = read_object(folder / "manifest.json")[0] if len(text) < LONGEST_PATH else {}
            if section(manifest, "study").get("name") == study:
                return manifest, f"export {folder}"
    return {}, ""


def _of_run(config: Mapping[str, Any], runs: Mapping[Path, str]) -> str:
    """The run among `runs` whose files a run used; empty if there is none."""
    places = [Path(text.partition("=")[0]).resolve() for text in _texts(section(config, "settings")) if text]
    whole = {run.resolve(): run for run in runs}
    return next((str(whole[up]) for place in places for up in (place, *place.parents) if up in whole), "")


def _texts(value: object) -> Iterator[str]:
    """All texts in a value of JSON but the run's own folder."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name != "out":
                yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
