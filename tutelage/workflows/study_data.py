"""A study as training data: its preferences at one moment, and the votes that a reward model is compared with."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tutelage.config.files import write_atomically
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Preference
from tutelage.errors import TutelageError
from tutelage.evaluation.vote_quality import against_votes, by_strength
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
from tutelage.people.manifest import reconciliation
from tutelage.people.preferences import decided_votes
from tutelage.stats.calibration import VoteCeiling, vote_ceiling
from tutelage.stats.votes import Votes

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


def read_study(
    address: str,
    name: str,
    selection: Selection,
    *,
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
    with closing(open_store(address, create=False)) as store:
        study = open_study(store, name or None)
        at = _moment_of(run, study.name) or freeze(store, study.id)
        labelled = label_study(store, study.id, selection, at)
        if not labelled.rows:
            raise TutelageError(
                f"'{study.name}' has no preference to train on: {len(labelled.votes):,} judgements, none of which "
                "decides a pair."
            )
        record: dict[str, object] = {"database": store.address, "study": study.name, "snapshot": asdict(at)}
        record["raters"] = len(labelled.labels.accuracy)
        record |= {"selection": asdict(selection), "judgements": dict(labelled.fates)}
    aside = {row.preference for row in labelled.rows if row.question.prompt.split == "held_out"}
    every = [row.preference for row in labelled.rows]
    kept, other = tuple(p for p in every if p not in aside), tuple(p for p in every if p in aside)
    if not kept or not other:
        kept, other = split_by_prompt(every, held_out, seed)
    remarks = (
        f"{study.name} at judgement {at.last_judgement:,}: {len(every):,} preferences, {len(other):,} held out",
        *reconciliation(labelled, selection),
    )
    votes = _trusted_votes(labelled, selection)
    return StudySnapshot(
        kept, other, _pair_votes(labelled, votes), _ceiling(labelled, votes), record, remarks
    )


def record_study(study: StudySnapshot, run: Path) -> None:
    """Write into the run directory which study the run read, and at which moment."""
    write_atomically(run / RECORD, json.dumps(study.record, indent=2, ensure_ascii=False) + "\n")


def _moment_of(run: Path, study: str) -> Snapshot | None:
    file = run / RECORD
    if not file.is_file():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    if record["study"] != study:
        raise TutelageError(f"The run in {run} read the study '{record['study']}', not '{study}'.")
    return Snapshot(**record["snapshot"])


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
    """The accuracy of a reward model on these pairs by strength, and against single votes and the ceiling of their
    noise."""
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
