"""All votes of a study as integer columns. A million votes take a few hundred megabytes; after the first read, only new
votes are read."""

import threading
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutelage.people import Store, list_votes
from tutelage.people.kinds.kind import MOST_STEPS
from tutelage.people.store.studies import study_of
from tutelage.people.store.votes import (
    POOLS,
    VERDICTS,
    excluded_numbers,
    list_exclusions,
    read_ballots,
    read_golds,
    read_items,
)

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
A, B, TIE, BOTH_BAD, SKIP = range(len(VERDICTS))
PRODUCTION, GOLD, TRAINING = range(len(POOLS))
OVERLAP = 1_000
"""Number of judgements to read again: PostgreSQL assigns ids before transactions become visible."""
_ANSWERS = (
    "id", "assignment", "item", "rater", "verdict", "strength", "left", "repeat", "adjudicated", "version", "active_ms",
    "created",
)  # fmt: skip
_ITEMS = ("item_id", "prompt", "pool", "gold", "round")
"""The columns of `read_ballots` and of `read_items`."""
_SPAN = MOST_STEPS
"""Upper bound of the indices of responses and steps; a pair has the code first · span + second."""


@dataclass(frozen=True)
class Ballots:
    """The N answers in force and their I items, as integer columns.

    `item` [N] indexes the item columns `item_id`, `prompt`, `pool`, `gold` (0 a, 1 b, 2 tie, -1 unknown), `round` [I].
    `left` is the canonical index of the left response; `out` marks excluded answers. `steps`: the items are steps, a is
    right and b wrong.
    """

    id: Ints
    item: Ints
    rater: Ints
    verdict: Ints
    strength: Ints
    left: Ints
    repeat: Bools
    adjudicated: Bools
    version: Ints
    active_ms: Ints
    created: Ints
    out: Bools
    item_id: Ints
    prompt: Ints
    pool: Ints
    gold: Ints
    round: Ints
    excluded_raters: frozenset[int]
    steps: bool = False

    def __len__(self) -> int:
        return len(self.id)

    def keep(self, mask: Bools | Ints) -> "Ballots":
        """A subset of the answers, by mask or indices, with all items."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in (*_ANSWERS, "out"):
            if name in columns:  # all but the assignment
                columns[name] = columns[name][mask]
        return Ballots(**columns)


class BallotBox:
    """Incremental, thread-safe reader of the votes of a study."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store, self._study = store, study_id
        self._answers: Ints = np.empty((0, len(_ANSWERS)), dtype=np.int64)
        self._items: Ints = np.empty((0, len(_ITEMS)), dtype=np.int64)
        self._lock = threading.Lock()

    def open(self) -> Ballots:
        """All current votes."""
        with self._lock:
            self._read()
            answers, items = self._in_force(), self._items
        out_items, out_raters = excluded_numbers(self._store, self._study)
        out_answers = [int(number) for number in list_exclusions(self._store, self._study).judgement]
        columns: dict[str, Any] = dict(zip(_ANSWERS, answers.T, strict=True))
        columns |= dict(zip(_ITEMS, items.T, strict=True))
        item, rater = columns["item"], columns["rater"]
        columns["out"] = (
            np.isin(item, list(out_items)) | np.isin(rater, list(out_raters)) | np.isin(columns["id"], out_answers)
        )
        columns["item"] = np.searchsorted(columns["item_id"], item)
        columns |= {name: columns[name] == 1 for name in ("repeat", "adjudicated")}
        del columns["assignment"]
        return Ballots(**columns, excluded_raters=out_raters)

    def _read(self) -> None:
        last = int(self._answers[-1, 0]) if len(self._answers) else 0
        rows = np.array(read_ballots(self._store, self._study, max(0, last - OVERLAP)), dtype=np.int64)
        if rows.size:
            before = self._answers[: np.searchsorted(self._answers[:, 0], rows[0, 0])]
            self._answers = np.concatenate([before, rows])
        last_item = int(self._items[-1, 0]) if len(self._items) else 0
        items = np.array(read_items(self._store, self._study, last_item), dtype=np.int64)
        if items.size:
            self._items = np.concatenate([self._items, items])

    def _in_force(self) -> Ints:
        """The last answer of every assignment."""
        backwards = self._answers[::-1]
        _, last = np.unique(backwards[:, 1], return_index=True)
        return backwards[np.sort(last)][::-1]


def pair_ballots(store: Store, study_id: int, ballots: Ballots) -> Ballots:
    """Convert answers about several responses, or about steps, to votes on pairs or steps: each is an item, and the
    left response of a pair is the one displayed first."""
    votes = {vote.id: vote for vote in list_votes(store, study_id)}
    kind, golds = study_of(store, study_id).kind, read_golds(store, study_id)
    rows: list[tuple[int, int, int, int, int]] = []
    for place, number in enumerate(ballots.id.tolist()):
        vote = votes.get(number)
        if vote is None:
            continue
        for pair in vote.pairs:
            item = (int(ballots.item[place]) * _SPAN + pair.first) * _SPAN + pair.second
            is_step = pair.first == pair.second
            behind = not is_step and vote.sides.index(pair.second) < vote.sides.index(pair.first)
            rows.append((place, item, VERDICTS.index(pair.verdict), pair.strength, int(behind)))
    if not rows:
        return ballots.keep(np.zeros(len(ballots), dtype=bool))
    place, item, verdict, strength, left = np.array(rows, dtype=np.int64).T
    of = ballots.keep(place)
    codes, coded = np.unique(item, return_inverse=True)
    parent = codes // _SPAN**2
    gold_verdicts = {
        (int(number) * _SPAN + each.first) * _SPAN + each.second: VERDICTS.index(each.verdict)
        for number, item_id in enumerate(of.item_id.tolist())
        if item_id in golds
        for each in kind.gold_pairs(*golds[item_id])
    }
    gold = np.array([gold_verdicts.get(code, -1) for code in codes.tolist()], dtype=np.int64)
    columns = {field.name: getattr(of, field.name) for field in fields(of)}
    columns |= {"item": coded, "verdict": verdict, "strength": strength, "left": left, "gold": gold}
    columns |= {name: getattr(of, name)[parent] for name in ("item_id", "prompt", "pool", "round")}
    columns |= {"steps": kind.traits.steps}
    return Ballots(**columns)
