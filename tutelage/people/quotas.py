"""Quotas of raters against the questions that are left for them."""

import math
from dataclasses import dataclass

from tutelage.people.store.engine import Store
from tutelage.people.store.live_models import find_live_models
from tutelage.people.store.raters import Rater, crowd_kinds, list_raters
from tutelage.people.store.remaining import room_of
from tutelage.people.store.studies import Study
from tutelage.people.store.visits import list_visits


@dataclass(frozen=True)
class Shortage:
    """More answers `asked` of raters by their quotas than the `left` that items still take from them, known answers and
    repeats not among them."""

    asked: int
    left: int


def find_shortage(store: Store, study: Study) -> Shortage | None:
    """The shortage of questions in a study; None where the quotas of its raters can be filled, or where conversations
    with models bring as many questions as are wanted."""
    if find_live_models(store, study.id) is not None:
        return None
    everybody = list_raters(store, study.id)
    away = {visit.rater: visit.state != "active" for visit in list_visits(store, study.id)}
    kinds = crowd_kinds(everybody)
    asked = [rater for rater in everybody if rater.kind in kinds and not away.get(rater.id)]
    needs = {rater.id: _need(study, rater) for rater in asked}
    if not any(needs.values()):
        return None
    with store.read() as connection:
        room = room_of(connection, study.id)
    found = sum(min(need, room.left_of(rater)) for rater, need in needs.items())
    shortage = Shortage(sum(needs.values()), min(room.answers, found))
    return shortage if shortage.left < shortage.asked else None


def _need(study: Study, rater: Rater) -> int:
    """The answers to items of which nobody knows the answer that the quota of a rater still asks for."""
    ended = rater.state == "paused" or rater.excluded is not None or rater.role == "reviewer"
    if rater.quota is None or ended:
        return 0
    besides = study.plan.gold_rate + study.plan.repeat_rate
    return math.floor(max(0, rater.quota - rater.tallies.answered) * (1 - besides))
