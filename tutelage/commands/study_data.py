"""A study as training data: its preferences or demonstrations at one moment, and the votes that a reward model is
compared with."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.base import nouns
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import ALL_ROWS, Demonstration, Preference, StudyRows
from tutelage.people import (
    LabelledStudy,
    Selection,
    Snapshot,
    freeze,
    label_study,
    open_store,
    open_study,
)
from tutelage.people.aggregate import pair_name
from tutelage.people.labels import decided_votes
from tutelage.people.manifest import reconciliation
from tutelage.people.training_rows import (
    T,
    TrainingRow,
    counted,
    training_demonstrations,
    training_pairs,
)
from tutelage.stats.calibration import VoteCeiling, vote_ceiling
from tutelage.stats.reward_quality import against_votes, by_strength
from tutelage.stats.vote_codes import Votes

RECORD = "study.json"
"""File in a run directory: the study, the moment, and what became of its votes."""
TRUSTED = 0.6
"""Reliability from which the single votes of a rater are compared with a reward model. In a small pool, a rater who
guesses or votes for the worse answer would make the ceiling meaningless."""


@dataclass(frozen=True)
class PairVotes:
    """The votes on one pair: the mean strength in favour of the chosen side, and the trusted votes for each side."""

    strength: float
    for_chosen: int
    for_rejected: int


@dataclass(frozen=True)
class StudySnapshot:
    """The preferences of a study at one moment. `votes` are those on each of them; `ceiling` is the accuracy that the
    best predictor of single votes could reach, None without overlap; `record` is kept with the run."""

    train: tuple[Preference, ...]
    held_out: tuple[Preference, ...]
    votes: Mapping[Preference, PairVotes]
    ceiling: VoteCeiling | None
    record: Mapping[str, object]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class StudyDemonstrations:
    """The demonstrations of a study at one moment; `record` is kept with the run."""

    train: tuple[Demonstration, ...]
    held_out: tuple[Demonstration, ...]
    record: Mapping[str, object]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Reading:
    """A study as it stood at the moment of a run, and the rows that the run reads of it."""

    name: str
    labelled: LabelledStudy
    rows: tuple[StudyRows, ...]
    record: Mapping[str, object]


class EmptyStudyError(TutelageError):
    """A study holds nothing of what was to be read."""


def read_study(
    address: str,
    name: str,
    selection: Selection,
    *,
    rows: tuple[StudyRows, ...],
    held_out: float,
    seed: int,
    run: Path,
) -> StudySnapshot:
    """The preferences of a study: as they stood when the run in the folder `run` began, if it has begun, else now.

    Held out are the pairs of the prompts that the study keeps aside; where it keeps none aside, a share `held_out` of
    the prompts.

    Raises:
        TutelageError: there is no such study, it has no preference yet, or the run belongs to another study.
    """
    reading = _read(address, name, selection, rows, run)
    found = training_pairs(reading.labelled, reading.rows)
    if not found:
        raise _nothing(reading, "preference", "none of which decides a pair")
    kept, other = _divided(found, held_out, seed)
    votes = _trusted_votes(reading.labelled, selection)
    return StudySnapshot(
        kept,
        other,
        _pair_votes(reading.labelled, votes),
        _ceiling(reading.labelled, votes),
        reading.record,
        _remarks(reading, found, len(other), "preferences", selection),
    )


def read_demonstrations(
    address: str,
    name: str,
    selection: Selection,
    *,
    rows: tuple[StudyRows, ...],
    held_out: float,
    seed: int,
    run: Path,
) -> StudyDemonstrations:
    """`read_study` for demonstrations: better responses that raters wrote or chose, with their weights."""
    reading = _read(address, name, selection, rows, run)
    found = training_demonstrations(reading.labelled, reading.rows)
    if not found:
        raise _nothing(reading, "demonstration", "none of which shows a better answer")
    kept, other = _divided(found, held_out, seed)
    remarks = _remarks(reading, found, len(other), "demonstrations", selection)
    return StudyDemonstrations(kept, other, reading.record, remarks)


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


def _nothing(reading: _Reading, what: str, why: str) -> EmptyStudyError:
    others = [name for name in ALL_ROWS if name not in reading.rows]
    advice = f" --study-rows {' '.join((*reading.rows, *others))} reads all that it holds." if others else ""
    return EmptyStudyError(
        f"'{reading.name}' has no {what} to train on: {nouns.counted(len(reading.labelled.votes), 'judgement')}, "
        f"{why}.{advice}"
    )


def _divided(
    found: Sequence[TrainingRow[T]], held_out: float, seed: int
) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """The records to train on, and those held out."""
    aside = {row.record for row in found if row.question.prompt.split == "held_out"}
    every = [row.record for row in found]
    kept, other = tuple(r for r in every if r not in aside), tuple(r for r in every if r in aside)
    if kept and other:
        return kept, other
    divided = split_by_prompt(every, held_out, seed)
    return tuple(divided[0]), tuple(divided[1])


def _remarks(
    reading: _Reading, found: Sequence[TrainingRow[T]], held_out: int, what: str, selection: Selection
) -> tuple[str, ...]:
    moment = reading.labelled.snapshot.last_judgement
    return (
        f"{reading.name} at judgement {moment:,}: {len(found):,} {what}, {held_out:,} held out",
        f"{what}: {counted(found)}",
        *reconciliation(reading.labelled, selection),
    )


def record_study(study: StudySnapshot | StudyDemonstrations, run: Path) -> None:
    """Write into the run directory which study the run read, and at which moment."""
    write_atomically(run / RECORD, json.dumps(study.record, indent=2, ensure_ascii=False) + "\n")


def _record_of(run: Path, study: str) -> dict[str, Any]:
    """What an earlier start of the run wrote down; empty where there was none."""
    file = run / RECORD
    if not file.is_file():
        return {}
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if record["study"] != study:
        raise TutelageError(f"The run in {run} read the study '{record['study']}', not '{study}'.")
    return record


def _trusted_votes(labelled: LabelledStudy, selection: Selection) -> Votes:
    votes = decided_votes(labelled, selection)
    known = [labelled.labels.accuracy[name] >= TRUSTED for name in votes.raters]
    return votes.keep(np.array(known)[votes.rater]) if any(known) else votes


def _pair_votes(labelled: LabelledStudy, votes: Votes) -> dict[Preference, PairVotes]:
    counts = dict(zip(votes.items, votes.counts().tolist(), strict=True))
    found = {}
    for row in labelled.rows:
        sides = counts.get(pair_name(row.label), [0, 0])
        for_chosen, for_rejected = sides if row.chosen == row.label.first else sides[::-1]
        found[row.preference] = PairVotes(row.strength, for_chosen, for_rejected)
    return found


def _ceiling(labelled: LabelledStudy, votes: Votes) -> VoteCeiling | None:
    prompts = {pair_name(row.label): row.question.prompt.id for row in labelled.rows}
    names = [prompts.get(item, item) for item in votes.items]
    try:
        return vote_ceiling(votes, np.unique(names, return_inverse=True)[1])
    except TutelageError:  # no item with two votes: nothing tells how noisy they are
        return None


def vote_figures(
    study: StudySnapshot, differences: Sequence[float], pairs: Sequence[Preference]
) -> dict[str, object]:
    """The accuracy of a reward model on those of these pairs that votes decided: by strength, and against single votes
    and the ceiling of their noise."""
    voted = [place for place, pair in enumerate(pairs) if pair in study.votes]
    if not voted:
        return {}
    pairs, differences = [pairs[place] for place in voted], [differences[place] for place in voted]
    pair_votes = [study.votes[pair] for pair in pairs]
    prompts = [str(pair.messages) for pair in pairs]
    votes = against_votes(
        differences,
        [each.for_chosen for each in pair_votes],
        [each.for_rejected for each in pair_votes],
        prompts,
    )
    found: dict[str, object] = {
        "by_strength": by_strength(
            differences, [pair.p_chosen for pair in pairs], [each.strength for each in pair_votes], prompts
        ),
        "votes": votes,
    }
    if study.ceiling is not None:
        best, agreement = study.ceiling.ceiling, study.ceiling.agreement
        found["ceiling"] = {
            "value": best.value,
            "interval": [best.low, best.high],
            "agreement": agreement.value,
            "bounds": [study.ceiling.lowest, study.ceiling.highest],
        }
    return found
