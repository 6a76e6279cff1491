"""Assignment of questions to raters.

Every question is reserved for a rater for 15 minutes by default (`Plan.lease_seconds`), and longer while the page is
open (`renew`). An expired reservation returns the item; a late answer is still stored.

The next question is, in this order: one already reserved for the rater (so that a reload shows the same question); in
training, the next training item; at the rates of the plan, a question with a known answer or a repeat with swapped
sides; otherwise one chosen by the policy:

- `finish_first`: the started item closest to completion, else a fresh item in shuffled order;
- `priority`: the same, but in 70 % of the cases the fresh item of highest priority (otherwise a random one, so that an
  unbiased sample of the items is always collected);
- `random`: a random item with room.

The first two prefer the newest round with an item for the rater; older rounds come after it.

A turn of a live conversation (`live_conversation`) is assigned to its rater as soon as both models have answered.

A model judge is assigned every item once, in the order of addition, and fills no place. Simulated raters are assigned
like people, but do not fill places while people participate.

No rater is assigned the same item twice, except for a planned repeat. Random choices derive from HMAC(study secret,
subject of the choice), so that they are reproducible and raters cannot predict them.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence, counted
from tutelage.people.store import assignments, open_items
from tutelage.people.store.assignments import Assignment, find_item, load_assignment
from tutelage.people.store.engine import Connection, Store
from tutelage.people.store.items import LockedItem, lock_item
from tutelage.people.store.open_items import may_come_back
from tutelage.people.store.raters import DECIDING, Rater, get_rater, lock_rater, update_rater
from tutelage.people.store.studies import SHUFFLES, Study, study_of

ChosenBy: TypeAlias = Literal[
    "training", "gold", "repeat", "finish", "random", "priority", "owner", "reviewer", "judge", "live", "use"
]

MOST_HELD = 5
"""Maximum number of questions reserved for a rater: the one on the screen, prefetched ones, and answers in transit."""
HELD_AT_THE_END = 3
"""The same once every item was assigned at least once, so that other raters need not wait for prefetched questions."""
RANDOM_SHARE = 0.3
REPEAT_APART = 10
SEARCH_AGAIN_MS = 10_000
SWEEP_AGAIN_MS = 500
SETTLE_MS = {"sqlite": 2, "postgresql": 5_000}
"""Maximum delay between the timestamp of a change and its visibility; SQLite has one writer at a time."""
_LONG_AGO = -(10**15)


@dataclass(frozen=True)
class _Choice:
    item: LockedItem
    chosen_by: ChosenBy
    order: tuple[int, ...] | None = None  # by default that of `side_order`


def next_assignment(store: Store, rater_id: int, *, besides: Collection[int] = ()) -> Assignment | None:
    """Reserve the next question for a rater and return it; None if there is none (`why_nothing` returns the reason).

    `besides` are assignments that the caller already has, to prefetch further ones, up to `MOST_HELD` in total.

    Raises:
        TutelageError: the rater does not exist.
        Unavailable: the database cannot be written at the moment.
    """
    _sweep(store, rater_id)
    with store.write(lasting=False) as connection:
        rater = lock_rater(connection, rater_id)
        study = study_of(connection, rater.study_id)
        current = assignments.held_assignments(connection, rater_id)
        waiting = [assignment_id for assignment_id in current if assignment_id not in besides]
        if waiting:
            assignments.renew(connection, waiting[:1], _lease_end(store, study))
            return load_assignment(connection, waiting[0])
        last = rater.quota is not None and rater.tallies.answered + len(current) >= rater.quota
        if len(current) >= MOST_HELD or refusal(study, rater) is not None or last:
            return None
        if len(current) >= HELD_AT_THE_END and not open_items.any_fresh(connection, study.id):
            return None
        choice = _choose(store, connection, study, rater)
        if choice is not None:
            return _reserve(store, connection, study, rater, choice)
    thorough = rater.state == "active" and rater.kind != "llm"
    return _search_everything(store, rater_id) if thorough else None


def reserve_item(store: Store, rater_id: int, item_key: str) -> Assignment:
    """Reserve an item for adjudication by an owner or reviewer, in addition to the raters' answers and without filling
    a place. If the item is already assigned to them, return that assignment. Raises TutelageError if the item does not
    exist, or the rater is neither owner nor reviewer."""
    with store.write(lasting=False) as connection:
        rater = lock_rater(connection, rater_id)
        study = study_of(connection, rater.study_id)
        if rater.role == "rater":
            raise TutelageError(
                f"'{rater.name}' cannot choose items to judge; only an owner or reviewer of '{study.name}' can."
            )
        item = lock_item(connection, find_item(connection, study.id, item_key))
        previous = assignments.assignment_of(connection, item.id, rater_id)
        if previous is not None:
            return load_assignment(connection, previous)
        return _reserve(store, connection, study, rater, _Choice(item, rater.role))


def reserve_turn(
    store: Store,
    connection: Connection,
    study: Study,
    rater: Rater,
    item_id: int,
    order: tuple[int, ...],
    *,
    chosen_by: ChosenBy = "live",
) -> Assignment:
    """Reserve the item of a turn for the rater of the conversation, whose row the transaction has locked. `order` is
    the display order. An expired reservation is renewed."""
    previous = assignments.assignment_of(connection, item_id, rater.id)
    if previous is not None:
        assignments.renew(connection, [previous], _lease_end(store, study))
        return load_assignment(connection, previous)
    return _reserve(store, connection, study, rater, _Choice(lock_item(connection, item_id), chosen_by, order))


def renew(store: Store, rater_id: int) -> int:
    """Renew the leases of all questions reserved for the rater; returns their new end (milliseconds)."""
    with store.write(lasting=False) as connection:
        rater = lock_rater(connection, rater_id)
        ends = _lease_end(store, study_of(connection, rater.study_id))
        assignments.renew(connection, assignments.held_assignments(connection, rater_id), ends)
        update_rater(connection, rater_id, seen=store.now())
        return ends


def release(store: Store, rater_id: int, *, besides: Collection[int] = ()) -> int:
    """Release the unanswered questions reserved for the rater, except the assignments `besides`; returns their
    number."""
    with store.write(lasting=False) as connection:
        lock_rater(connection, rater_id)
        current = [each for each in assignments.held_assignments(connection, rater_id) if each not in besides]
        for assignment_id in current:
            assignments.give_back(connection, assignment_id, "released", store.now())
        return len(current)


def why_nothing(store: Store, rater_id: int) -> str:
    """The reason why a rater has no next question, as a sentence for the rater."""
    with store.read() as connection:
        rater = get_rater(connection, rater_id)
        study = study_of(connection, rater.study_id)
        current = assignments.held_assignments(connection, rater_id)
        others = may_come_back(connection, study.id, rater_id)
    if len(current) >= MOST_HELD:
        return Sentence("You have several questions open already; answer those first.")
    reason = refusal(study, rater)
    if reason is not None:
        return reason
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
    """The reason why the rater is assigned no questions at present, as a sentence for the rater; None if there is
    none."""
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
    """Expire overdue reservations, in a separate transaction because it locks items unrelated to the caller's."""
    now = store.now()
    if abs(now - store.hints.get(("swept", rater_id), _LONG_AGO)) < SWEEP_AGAIN_MS:
        return
    store.hints["swept", rater_id] = now
    with store.read() as connection:
        study = study_of(connection, get_rater(connection, rater_id).study_id)
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
    candidate = open_items.repeatable_item(connection, rater.id, fraction, REPEAT_APART)
    if candidate is None:
        return None
    item_id, order = candidate
    return _Choice(lock_item(connection, item_id), "repeat", tuple(reversed(order)))


def _by_policy(store: Store, connection: Connection, study: Study, rater: Rater, start: int) -> _Choice | None:
    if study.plan.policy == "random":
        item = open_items.random_item(connection, study.id, rater.id, start)
        return None if item is None else _Choice(item, "random")
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
    """The started item of a round with the fewest free places (at most `most_room`) that is new to the rater.

    The queue also holds items that the rater has answered. Items modified before the time in `store.hints` were
    examined before and are skipped, except for very recent ones, which another process may still be committing.
    """
    settled = store.now() - SETTLE_MS[store.engine.dialect.name]
    for room in range(1, most_room + 1):
        key = ("queue", rater.id, number, room)
        since = min(store.hints.get(key, 0), settled)
        item, passed = open_items.started_item(connection, rater.study_id, rater.id, number, room, since)
        store.hints[key] = min(passed, settled)
        if item is not None:
            return _Choice(item, "finish")
    return None


def _search_everything(store: Store, rater_id: int) -> Assignment | None:
    """Search all open items without blocking writers, at most once per `SEARCH_AGAIN_MS` and rater."""
    if abs(store.now() - store.hints.get(("searched", rater_id), _LONG_AGO)) < SEARCH_AGAIN_MS:
        return None
    while True:
        with store.read() as connection:
            study_id = get_rater(connection, rater_id).study_id
            item_id = open_items.any_item(connection, study_id, rater_id)
        if item_id is None:
            store.hints["searched", rater_id] = store.now()
            return None
        with store.write(lasting=False) as connection:
            rater = lock_rater(connection, rater_id)
            item = lock_item(connection, item_id)
            if item.room and open_items.is_new_to(connection, item_id, rater_id):
                study = study_of(connection, study_id)
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
    update_rater(connection, rater.id, seen=now, asked=rater.asked + 1)
    return load_assignment(connection, assignment_id)
