"""Who is asked what next.

Every question is reserved for a rater for a quarter of an hour (`Plan.lease_seconds`), longer while the page is open
(`renew`). A reservation that runs out gives the item back; an answer that arrives after all is kept.

The next question is, in this order: one that the rater holds already (so that a reload shows the same); in training,
the next training item; by the rates of the plan, a question with a known answer or one of the rater's own again with
the sides swapped; and else by the policy:

- `finish_first`: the started item closest to completion, else a fresh one in shuffled order;
- `priority`: the same, but the fresh item of greatest priority in 70 % of the cases (in the rest a random one, so that
  an unbiased sample of the items is always being collected);
- `random`: any item with room, at random.

Nobody is asked the same item twice, except for a planned repeat. Chance comes from HMAC(study secret, what is decided),
so that every decision can be repeated and none can be guessed by a rater.
"""

import hashlib
import hmac
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.people.store import leases, schema
from tutelage.people.store.engine import Store, lock
from tutelage.people.store.questions import Assignment, load_assignment, response_texts
from tutelage.people.store.studies import Study, load_study

ChosenBy: TypeAlias = Literal["training", "gold", "repeat", "finish", "random", "priority"]

MOST_HELD = 3
RANDOM_SHARE = 0.3
REPEAT_APART = 10
SEARCH_AGAIN_MS = 10_000
SETTLE_MS = {"sqlite": 2, "postgresql": 5_000}
"""How long a change may take to become visible after its time was read: SQLite has one writer at a time."""
_SHUFFLES = 1 << 56


@dataclass(frozen=True)
class _Choice:
    item_id: int
    chosen_by: ChosenBy
    order: tuple[int, ...] | None = None  # of the first showing, for a repeat


def next_assignment(store: Store, rater_id: int, *, besides: Collection[int] = ()) -> Assignment | None:
    """The question to put to this rater now, reserved; None when there is none (`why_nothing` says why).

    `besides` names assignments that the caller shows already, in order to fetch one ahead; at most three are held.

    Raises:
        TutelageError: there is no such rater.
        Unavailable: the database cannot be written just now.
    """
    _sweep(store, rater_id)
    with store.write() as connection:
        rater = lock(connection, schema.rater, rater_id)
        study = load_study(connection, rater["study_id"])
        held = leases.held(connection, rater_id)
        shown = [assignment_id for assignment_id in held if assignment_id not in besides]
        if shown:
            leases.renew(connection, shown[:1], store.now() + study.plan.lease_seconds * 1000)
            return load_assignment(connection, shown[0])
        if len(held) >= MOST_HELD or _refusal(study, rater) is not None:
            return None
        choice = _choose(store, connection, study, rater)
        if choice is not None:
            return load_assignment(connection, _reserve(store, connection, study, rater_id, choice))
    return _search_everything(store, study, rater_id) if rater["state"] == "active" else None


def renew(store: Store, rater_id: int) -> int:
    """Keep what the rater has on the screen reserved for another lease; when that ends (milliseconds)."""
    with store.write() as connection:
        rater = lock(connection, schema.rater, rater_id)
        ends = store.now() + load_study(connection, rater["study_id"]).plan.lease_seconds * 1000
        leases.renew(connection, leases.held(connection, rater_id), ends)
        connection.execute(
            schema.rater.update().where(schema.rater.c.id == rater_id).values(seen=store.now())
        )
        return ends


def release(store: Store, rater_id: int) -> int:
    """Give back what the rater holds unanswered (logging out, closing the page); how many questions that were."""
    with store.write() as connection:
        lock(connection, schema.rater, rater_id)
        held = leases.held(connection, rater_id)
        for assignment_id in held:
            row = lock(connection, schema.assignment, assignment_id)
            leases.lock_item(connection, row["item_id"])
            leases.close(connection, assignment_id, row["item_id"], "released", store.now())
        return len(held)


def why_nothing(store: Store, rater_id: int) -> str:
    """A sentence for a rater who has no next question. Never confuses an error with the end of the work."""
    with store.read() as connection:
        rater = (
            connection.execute(sa.select(schema.rater).where(schema.rater.c.id == rater_id)).mappings().one()
        )
        study = load_study(connection, rater["study_id"])
        held = leases.held(connection, rater_id)
        waiting = leases.others_hold(connection, study.id, rater_id)
    if len(held) >= MOST_HELD:
        return "You have several questions open already; answer those first."
    refusal = _refusal(study, rater)
    if refusal is not None:
        return refusal
    if rater["state"] == "training":
        return "You have answered all the training questions; the owner of the study will let you know how it goes on."
    if waiting:
        return "Everything is being answered by others just now; some of it may come back, so look in again later."
    return "You have answered everything there is to answer. Thank you!"


def chance(secret: str, *what: object) -> float:
    """A number in [0, 1) that only `what` is decided, and the secret, determine."""
    text = "|".join(str(part) for part in what)
    digest = hmac.new(bytes.fromhex(secret), text.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


def side_order(secret: str, item_id: int, rater_id: int, places: int) -> tuple[int, ...]:
    """The canonical index of the response in each place: uniform over all orders, the same on every reload."""
    return tuple(sorted(range(places), key=lambda index: chance(secret, item_id, rater_id, index)))


def _refusal(study: Study, rater: sa.RowMapping) -> str | None:
    if study.state != "open":
        return f"The study is {study.state} at the moment. Every answer you gave is kept."
    if rater["state"] == "paused":
        return "The owner of the study has paused your questions. Every answer you gave is kept."
    if rater["quota"] is not None and rater["answered"] >= rater["quota"]:
        return f"You have given all the {rater['quota']} answers you were asked for. Thank you!"
    return None


def _sweep(store: Store, rater_id: int) -> None:
    """Give back whatever ran out. In a transaction of its own: it locks items that the caller has no part in."""
    with store.read() as connection:
        study_id = connection.scalar(sa.select(schema.rater.c.study_id).where(schema.rater.c.id == rater_id))
        if study_id is None:
            return
        lease_ms = load_study(connection, study_id).plan.lease_seconds * 1000
        if not leases.overdue(connection, study_id, store.now(), lease_ms):
            return
    with store.write() as connection:
        leases.expire(connection, study_id, store.now(), lease_ms)


def _choose(store: Store, connection: sa.Connection, study: Study, rater: sa.RowMapping) -> _Choice | None:
    rater_id, asked = rater["id"], rater["asked"]
    start = int(chance(study.secret, "start", rater_id, asked) * _SHUFFLES)
    if rater["state"] == "training":
        item_id = leases.known_item(connection, study.id, rater_id, "training", 0)
        return None if item_id is None else _Choice(item_id, "training")
    slot = chance(study.secret, "slot", rater_id, asked)
    if slot < study.plan.gold_rate:
        item_id = leases.known_item(connection, study.id, rater_id, "gold", start)
        if item_id is not None:
            return _Choice(item_id, "gold")
    elif slot < study.plan.gold_rate + study.plan.repeat_rate:
        fraction = chance(study.secret, "repeat", rater_id, asked)
        again = leases.repeatable(connection, rater_id, fraction, REPEAT_APART)
        if again is not None:
            return _Choice(again[0], "repeat", tuple(json.loads(again[1])))
    return _by_policy(store, connection, study, rater_id, start)


def _by_policy(
    store: Store, connection: sa.Connection, study: Study, rater_id: int, start: int
) -> _Choice | None:
    if study.plan.policy == "random":
        item_id = leases.random_item(connection, study.id, rater_id, start)
        if item_id is not None and leases.claim(connection, item_id):
            return _Choice(item_id, "random")
        return None
    item_id = _closest_to_completion(store, connection, study.id, rater_id)
    if item_id is not None:
        return _Choice(item_id, "finish")
    by_priority = study.plan.policy == "priority" and start >= RANDOM_SHARE * _SHUFFLES
    item_id = leases.fresh_item(connection, study.id, by_priority=by_priority)
    return None if item_id is None else _Choice(item_id, "priority" if by_priority else "random")


def _closest_to_completion(
    store: Store, connection: sa.Connection, study_id: int, rater_id: int
) -> int | None:
    """The started item with least room that is new to the rater.

    The rater's own answered items stand in the same queue. Everything touched before `store.hints` has been passed
    already and is not looked at again, but for the last moments, in which another process may still be committing.
    """
    settled = store.now() - SETTLE_MS[store.engine.dialect.name]
    for room in range(1, leases.rooms(connection, study_id) + 1):
        since = store.hints.get((rater_id, room), 0)
        item_id, passed = leases.started_item(connection, study_id, rater_id, room, min(since, settled))
        store.hints[rater_id, room] = min(passed, settled)
        if item_id is not None and leases.claim(connection, item_id):
            return item_id
    return None


def _search_everything(store: Store, study: Study, rater_id: int) -> Assignment | None:
    """The last resort before saying that there is nothing: look at every open item, without holding up writers.
    Repeated at most every ten seconds for the same rater."""
    if abs(store.now() - store.hints.get((rater_id, 0), 0)) < SEARCH_AGAIN_MS:
        return None
    for _ in range(5):
        with store.read() as connection:
            item_id = leases.any_item(connection, study.id, rater_id)
        if item_id is None:
            store.hints[rater_id, 0] = store.now()
            return None
        with store.write() as connection:
            lock(connection, schema.rater, rater_id)
            if leases.claim(connection, item_id) and leases.unseen(connection, item_id, rater_id):
                choice = _Choice(item_id, "finish")
                return load_assignment(connection, _reserve(store, connection, study, rater_id, choice))
    return None


def _reserve(store: Store, connection: sa.Connection, study: Study, rater_id: int, choice: _Choice) -> int:
    now = store.now()
    places = len(response_texts(connection, choice.item_id))
    order = side_order(study.secret, choice.item_id, rater_id, places)
    if choice.order is not None:
        order = tuple(reversed(choice.order))
    row: dict[str, object] = {
        "study_id": study.id,
        "item_id": choice.item_id,
        "rater_id": rater_id,
        "repeat": int(choice.order is not None),
        "chosen_by": choice.chosen_by,
        "version_id": study.version_id,
        "order": json.dumps(order),
        "lease_ends": now + study.plan.lease_seconds * 1000,
    }
    return leases.lease(connection, row, now)
