"""Assignment of questions to raters.

Every question is reserved for a rater for a quarter of an hour (`Plan.lease_seconds`), longer while the page is open
(`renew`). A reservation that runs out gives the item back; an answer that arrives after all is kept.

The next question is, in this order: one that the rater holds already (so that a reload shows the same); in training,
the next training item; by the rates of the plan, a question with a known answer or one of the rater's own again with
the sides swapped; and else by the policy:

- `finish_first`: the started item closest to completion, else a fresh one in shuffled order;
- `priority`: the same, but the fresh item of greatest priority in 70 % of the cases (in the rest a random one, so that
  an unbiased sample of the items is always being collected);
- `random`: any item with room, at random.

The first two ask about the newest round that has anything for the rater: what is left of older rounds comes after it.

A turn of a live conversation (`live_conversation`) is asked of its rater as soon as both models have answered.

A model judge is asked every item once, in the order they were added, and fills no place. Simulated raters are assigned
like people, but do not fill places while people participate.

No rater is asked the same item twice, except for a planned repeat. Chance comes from HMAC(study secret, what is
decided), so that every decision can be repeated and none can be guessed by a rater.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence, counted
from tutelage.people.store import assignments, open_items
from tutelage.people.store.assignments import Assignment, find_item, load_assignment
from tutelage.people.store.counters import LockedItem, lock_item
from tutelage.people.store.engine import Connection, Store
from tutelage.people.store.open_items import may_come_back
from tutelage.people.store.raters import DECIDING, Rater, count_asked, load_rater, lock_rater, touch_rater
from tutelage.people.store.studies import SHUFFLES, Study, load_study

ChosenBy: TypeAlias = Literal[
    "training", "gold", "repeat", "finish", "random", "priority", "owner", "reviewer", "judge", "live"
]

MOST_HELD = 5
"""Questions that a rater holds at most: the one on the screen, some fetched ahead, and what is on its way here."""
HELD_AT_THE_END = 3
"""The same where no item is left that nobody was asked: others would wait for what lies ready here."""
RANDOM_SHARE = 0.3
REPEAT_APART = 10
SEARCH_AGAIN_MS = 10_000
SWEEP_AGAIN_MS = 500
SETTLE_MS = {"sqlite": 2, "postgresql": 5_000}
"""How long a change may take to become visible after its time was read: SQLite has one writer at a time."""
_LONG_AGO = -(10**15)


@dataclass(frozen=True)
class _Choice:
    item: LockedItem
    chosen_by: ChosenBy
    order: tuple[int, ...] | None = None  # where it is not left to `side_order`


def next_assignment(store: Store, rater_id: int, *, besides: Collection[int] = ()) -> Assignment | None:
    """Reserve the next question for a rater and return it; None when there is none (`why_nothing` says why).

    `besides` names assignments that the caller has already, in order to fetch more ahead: at most `MOST_HELD` are held.

    Raises:
        TutelageError: there is no such rater.
        Unavailable: the database cannot be written just now.
    """
    _sweep(store, rater_id)
    with store.write(lasting=False) as connection:
        rater = lock_rater(connection, rater_id)
        study = load_study(connection, rater.study_id)
        held = assignments.held_assignments(connection, rater_id)
        waiting = [assignment_id for assignment_id in held if assignment_id not in besides]
        if waiting:
            assignments.renew(connection, waiting[:1], _lease_end(store, study))
            return load_assignment(connection, waiting[0])
        last = rater.quota is not None and rater.tallies.answered + len(held) >= rater.quota
        if len(held) >= MOST_HELD or refusal(study, rater) is not None or last:
            return None
        if len(held) >= HELD_AT_THE_END and not open_items.any_fresh(connection, study.id):
            return None
        choice = _choose(store, connection, study, rater)
        if choice is not None:
            return _reserve(store, connection, study, rater, choice)
    thorough = rater.state == "active" and rater.kind != "llm"
    return _search_everything(store, rater_id) if thorough else None


def reserve_item(store: Store, rater_id: int, item_key: str) -> Assignment:
    """Reserve an item for adjudication by an owner or reviewer, on top of the raters' answers and without taking room.
    An item that they were asked already comes back as it was.

    Raises:
        TutelageError: there is no such item, or the rater is neither owner nor reviewer.
    """
    with store.write(lasting=False) as connection:
        rater = lock_rater(connection, rater_id)
        study = load_study(connection, rater.study_id)
        if rater.role == "rater":
            raise TutelageError(
                f"'{rater.name}' cannot choose what to judge: only an owner or reviewer of '{study.name}' may."
            )
        item = lock_item(connection, find_item(connection, study.id, item_key))
        known = assignments.assignment_of(connection, item.id, rater_id)
        if known is not None:
            return load_assignment(connection, known)
        return _reserve(store, connection, study, rater, _Choice(item, rater.role))


def reserve_turn(
    store: Store, connection: Connection, study: Study, rater: Rater, item_id: int, order: tuple[int, ...]
) -> Assignment:
    """Reserve the item of a turn for the rater who talks, whom the transaction has locked; `order` is that on the
    screen. An expired reservation is renewed."""
    known = assignments.assignment_of(connection, item_id, rater.id)
    if known is not None:
        assignments.renew(connection, [known], _lease_end(store, study))
        return load_assignment(connection, known)
    return _reserve(store, connection, study, rater, _Choice(lock_item(connection, item_id), "live", order))


def renew(store: Store, rater_id: int) -> int:
    """Renew the leases of all questions that the rater holds; returns when they end (milliseconds)."""
    with store.write(lasting=False) as connection:
        rater = lock_rater(connection, rater_id)
        ends = _lease_end(store, load_study(connection, rater.study_id))
        assignments.renew(connection, assignments.held_assignments(connection, rater_id), ends)
        touch_rater(connection, rater_id, store.now())
        return ends


def release(store: Store, rater_id: int, *, besides: Collection[int] = ()) -> int:
    """Release the unanswered questions that the rater holds, except the assignments `besides`; returns their number."""
    with store.write(lasting=False) as connection:
        lock_rater(connection, rater_id)
        held = [each for each in assignments.held_assignments(connection, rater_id) if each not in besides]
        for assignment_id in held:
            assignments.give_back(connection, assignment_id, "released", store.now())
        return len(held)


def why_nothing(store: Store, rater_id: int) -> str:
    """The reason why a rater has no next question, as a sentence for the rater."""
    with store.read() as connection:
        rater = load_rater(connection, rater_id)
        study = load_study(connection, rater.study_id)
        held = assignments.held_assignments(connection, rater_id)
        others = may_come_back(connection, study.id, rater_id)
    if len(held) >= MOST_HELD:
        return Sentence("You have several questions open already; answer those first.")
    told = refusal(study, rater)
    if told is not None:
        return told
    if rater.state == "training":
        return Sentence(
            "You have answered all the training questions; the owner of the study will let you know how it goes on."
        )
    if others:
        return Sentence(
            "Everything is being answered by others just now; some of it may come back, so look in again later."
        )
    if rater.quota is not None:
        return Sentence(
            "There is nothing left to ask you: with %(answered)s of %(quota)s answers you are done, and all of them "
            "are kept. Thank you!",
            answered=rater.tallies.answered,
            quota=rater.quota,
        )
    return Sentence("You have answered everything there is to answer. Thank you!")


def _lease_end(store: Store, study: Study) -> int:
    return store.now() + study.plan.lease_seconds * 1000


def refusal(study: Study, rater: Rater) -> str | None:
    """The reason why the rater is asked nothing at present, as a sentence for the rater; None if there is none."""
    if study.state == "paused":
        return Sentence("The study is paused at the moment. Every answer you gave is kept.")
    if study.state == "closed":
        return Sentence("The study is closed at the moment. Every answer you gave is kept.")
    if rater.state == "paused" or rater.excluded is not None:
        return Sentence("The owner of the study has paused your questions. Every answer you gave is kept.")
    if rater.quota is not None and rater.tallies.answered >= rater.quota:
        return counted(
            "You have given the one answer you were asked for. Thank you!",
            "You have given all the %(count)s answers you were asked for. Thank you!",
            count=rater.quota,
        )
    return None


def _sweep(store: Store, rater_id: int) -> None:
    """Give back whatever ran out, in a transaction of its own: it locks items that the caller has no part in."""
    now = store.now()
    if abs(now - store.hints.get(("swept", rater_id), _LONG_AGO)) < SWEEP_AGAIN_MS:
        return
    store.hints["swept", rater_id] = now
    with store.read() as connection:
        study = load_study(connection, load_rater(connection, rater_id).study_id)
        lease_ms = study.plan.lease_seconds * 1000
        if not assignments.overdue(connection, study.id, now, lease_ms):
            return
    with store.write(lasting=False) as connection:
        assignments.expire(connection, study.id, now, lease_ms)


def _choose(store: Store, connection: Connection, study: Study, rater: Rater) -> _Choice | None:
    start = int(study.chance("start", rater.id, rater.asked) * SHUFFLES)
    if rater.kind == "llm":
        unjudged = open_items.unjudged_item(connection, study.id, rater.id)
        return None if unjudged is None else _Choice(lock_item(connection, unjudged), "judge")
    if rater.state == "training":
        return _known(connection, study, rater, "training", 0)
    slot = study.chance("slot", rater.id, rater.asked)
    choice = None
    if slot < study.plan.gold_rate:
        choice = _known(connection, study, rater, "gold", start)
    elif slot < study.plan.gold_rate + study.plan.repeat_rate:
        choice = _repeat(connection, study, rater)
    return choice or _by_policy(store, connection, study, rater, start)


def _known(
    connection: Connection, study: Study, rater: Rater, pool: Literal["gold", "training"], start: int
) -> _Choice | None:
    item_id = open_items.known_item(connection, study.id, rater.id, pool, start)
    return None if item_id is None else _Choice(lock_item(connection, item_id), pool)


def _repeat(connection: Connection, study: Study, rater: Rater) -> _Choice | None:
    fraction = study.chance("repeat", rater.id, rater.asked)
    found = open_items.repeatable_item(connection, rater.id, fraction, REPEAT_APART)
    if found is None:
        return None
    item_id, shown = found
    return _Choice(lock_item(connection, item_id), "repeat", tuple(reversed(shown)))


def _by_policy(
    store: Store, connection: Connection, study: Study, rater: Rater, start: int
) -> _Choice | None:
    if study.plan.policy == "random":
        found = open_items.random_item(connection, study.id, rater.id, start)
        return None if found is None else _Choice(found, "random")
    by_priority = study.plan.policy == "priority" and start >= RANDOM_SHARE * SHUFFLES
    for number, most_room in open_items.open_rounds(connection, study.id):
        choice = _closest_to_completion(store, connection, rater, number, most_room)
        if choice is not None:
            return choice
        fresh = open_items.fresh_item(connection, study.id, number, by_priority=by_priority)
        if fresh is not None:
            return _Choice(fresh, "priority" if by_priority else "random")
    return None


def _closest_to_completion(
    store: Store, connection: Connection, rater: Rater, number: int, most_room: int
) -> _Choice | None:
    """The started item of a round with least room, of `most_room` places at most, that is new to the rater.

    The rater's own answered items stand in the same queue. Everything touched before `store.hints` has been passed
    already and is not looked at again, but for the last moments, in which another process may still be committing.
    """
    settled = store.now() - SETTLE_MS[store.engine.dialect.name]
    for room in range(1, most_room + 1):
        known = ("queue", rater.id, number, room)
        since = min(store.hints.get(known, 0), settled)
        item, passed = open_items.started_item(connection, rater.study_id, rater.id, number, room, since)
        store.hints[known] = min(passed, settled)
        if item is not None:
            return _Choice(item, "finish")
    return None


def _search_everything(store: Store, rater_id: int) -> Assignment | None:
    """Search every open item, without blocking writers, before there is nothing; once in `SEARCH_AGAIN_MS` per
    rater."""
    if abs(store.now() - store.hints.get(("searched", rater_id), _LONG_AGO)) < SEARCH_AGAIN_MS:
        return None
    while True:
        with store.read() as connection:
            study_id = load_rater(connection, rater_id).study_id
            item_id = open_items.any_item(connection, study_id, rater_id)
        if item_id is None:
            store.hints["searched", rater_id] = store.now()
            return None
        with store.write(lasting=False) as connection:
            rater = lock_rater(connection, rater_id)
            item = lock_item(connection, item_id)
            if item.room and open_items.is_new_to(connection, item_id, rater_id):
                study = load_study(connection, study_id)
                return _reserve(store, connection, study, rater, _Choice(item, "finish"))


def _reserve(store: Store, connection: Connection, study: Study, rater: Rater, choice: _Choice) -> Assignment:
    now = store.now()
    order = choice.order or study.side_order(choice.item.id, rater.id, len(choice.item.lengths))
    row: dict[str, object] = {
        "study_id": study.id,
        "rater_id": rater.id,
        "repeat": int(choice.chosen_by == "repeat"),
        "chosen_by": choice.chosen_by,
        "extra": int(choice.chosen_by in DECIDING),
        "counted": int(choice.chosen_by not in DECIDING and rater.fills_places),
        "version_id": study.version_id,
        "order": json.dumps(order),
        "lease_ends": _lease_end(store, study),
    }
    assignment_id = assignments.lease(connection, row, choice.item, now)
    count_asked(connection, rater, now)
    return load_assignment(connection, assignment_id)
