"""A study as training data: its preferences at a frozen moment, and the votes that a reward model is held against."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.commands.collecting.place import ENDINGS, FILE
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Preference
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.people import LabelledStudy, Selection, Snapshot
    from tutelage.stats.calibration import VoteCeiling
    from tutelage.stats.votes import Votes

RECORD = "study.json"
"""In the folder of a run: the study, the moment and what became of its votes."""
SERVERS = ("postgresql://", "postgres://")


TRUSTED = 0.6
"""The reliability from which a rater's single votes are what a reward model is held against: somebody who guesses, or
votes for the worse, makes the ceiling of a pool of few raters meaningless."""


@dataclass(frozen=True)
class Heard:
    """What raters said of one pair: the mean strength in favour of the chosen side, and the trusted votes for
    either."""

    strength: float
    for_chosen: int
    for_rejected: int


@dataclass(frozen=True)
class Drawn:
    """What training reads of a study. `heard` is about each of the preferences; `ceiling` is what the best predictor
    of single votes could reach, None without overlap; `record` is kept with the run."""

    train: tuple[Preference, ...]
    held_out: tuple[Preference, ...]
    heard: Mapping[Preference, Heard]
    ceiling: "VoteCeiling | None"
    record: Mapping[str, object]
    told: tuple[str, ...]


def study_address(data: str) -> str | None:
    """The database that `data` names (a URL, a database file, or the folder of a study); None where it names none."""
    if data.startswith(SERVERS):
        return data
    path = Path(data).expanduser()
    if path.suffix in ENDINGS:
        return str(path)
    return str(path / FILE) if (path / FILE).is_file() else None


def draw(
    address: str,
    name: str,
    selection: "Selection",
    *,
    held_out: float,
    seed: int,
    run: Path,
) -> Drawn:
    """The preferences of a study: as they stood when the run in the folder `run` began, if it has begun, else now.

    Held out are the pairs of the prompts that the study keeps aside; where it keeps none aside, a share `held_out` of
    the prompts.

    Raises:
        TutelageError: there is no such study, it has no preference yet, or the run belongs to another study.
    """
    from tutelage.people import freeze, label_study, open_store, open_study
    from tutelage.people.export import reconciliation

    with closing(open_store(address, create=False)) as store:
        study = open_study(store, name or None)
        at = _moment_of(run, study.name) or freeze(store, study.id)
        labelled = label_study(store, study.id, selection, at)
        if not labelled.rows:
            raise TutelageError(
                f"'{study.name}' has no preference to train on: {len(labelled.votes):,} judgements, none of which "
                "decides a pair."
            )
        record = {"database": store.address, "study": study.name, "snapshot": asdict(at)}
        record |= {"selection": asdict(selection), "judgements": dict(labelled.fates)}
    aside = {row.preference for row in labelled.rows if row.question.prompt.split == "held_out"}
    every = [row.preference for row in labelled.rows]
    kept, other = tuple(p for p in every if p not in aside), tuple(p for p in every if p in aside)
    if not kept or not other:
        kept, other = split_by_prompt(every, held_out, seed)
    told = (
        f"{study.name} at judgement {at.last_judgement:,}: {len(every):,} preferences, {len(other):,} held out",
        *reconciliation(labelled, selection),
    )
    votes = _trusted_votes(labelled, selection)
    return Drawn(kept, other, _heard(labelled, votes), _ceiling(labelled, votes), record, told)


def remember(drawn: Drawn, run: Path) -> None:
    """Keep with the run which study it read, and at which moment."""
    from tutelage.config.files import write_atomically

    write_atomically(run / RECORD, json.dumps(drawn.record, indent=2, ensure_ascii=False) + "\n")


def _moment_of(run: Path, study: str) -> "Snapshot | None":
    from tutelage.people import Snapshot

    file = run / RECORD
    if not file.is_file():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    if record["study"] != study:
        raise TutelageError(f"The run in {run} read the study '{record['study']}', not '{study}'.")
    return Snapshot(**record["snapshot"])


def _trusted_votes(labelled: "LabelledStudy", selection: "Selection") -> "Votes":
    import numpy as np

    from tutelage.people.preferences import decided_votes

    votes = decided_votes(labelled, selection)
    known = [labelled.labels.accuracy[name] >= TRUSTED for name in votes.raters]
    return votes.keep(np.array(known)[votes.rater]) if any(known) else votes


def _heard(labelled: "LabelledStudy", votes: "Votes") -> dict[Preference, Heard]:
    from tutelage.people.aggregate import pair_name

    counts = dict(zip(votes.items, votes.counts().tolist(), strict=True))
    found = {}
    for row in labelled.rows:
        sides = counts.get(pair_name(row.label), [0, 0])
        for_chosen, for_rejected = sides if row.chosen == row.label.first else sides[::-1]
        found[row.preference] = Heard(row.strength, for_chosen, for_rejected)
    return found


def _ceiling(labelled: "LabelledStudy", votes: "Votes") -> "VoteCeiling | None":
    import numpy as np

    from tutelage.people.aggregate import pair_name
    from tutelage.stats.calibration import vote_ceiling

    prompts = {pair_name(row.label): row.question.prompt.id for row in labelled.rows}
    names = [prompts.get(item, item) for item in votes.items]
    try:
        return vote_ceiling(votes, np.unique(names, return_inverse=True)[1])
    except TutelageError:  # no item with two votes: nothing tells how noisy they are
        return None


def figures(drawn: Drawn, differences: Sequence[float], pairs: Sequence[Preference]) -> dict[str, object]:
    """How a reward model fares on these pairs: by strength, and against single votes and what they allow."""
    from tutelage.evaluate.vote_quality import against_votes, by_strength

    heard = [drawn.heard[pair] for pair in pairs]
    prompts = [str(pair.messages) for pair in pairs]
    votes = against_votes(
        differences, [each.for_chosen for each in heard], [each.for_rejected for each in heard], prompts
    )
    found: dict[str, object] = {
        "by_strength": by_strength(
            differences, [pair.p_chosen for pair in pairs], [each.strength for each in heard], prompts
        ),
        "votes": votes,
    }
    if drawn.ceiling is not None:
        best, agreement = drawn.ceiling.ceiling, drawn.ceiling.agreement
        found["ceiling"] = {
            "value": best.value,
            "interval": [best.low, best.high],
            "agreement": agreement.value,
            "bounds": [drawn.ceiling.lowest, drawn.ceiling.highest],
        }
    return found
