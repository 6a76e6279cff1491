"""Statistics of a study from its counters, without reading texts, so that they stay fast."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, record_event

_items, _raters = schema.item, schema.rater
_COUNTED = ("items", "started", "complete", "wanted", "answered", "ties", "both_bad")


@dataclass(frozen=True)
class Counts:
    """Counts of production items, without excluded ones: total, started and complete, answers `wanted` and `answered`,
    ties and both-bad. Over all pools and raters: latest `judgements`, `skipped`, `flagged`."""

    items: int
    started: int
    complete: int
    wanted: int
    answered: int
    ties: int
    both_bad: int
    judgements: int
    skipped: int
    flagged: int


@dataclass(frozen=True)
class Round:
    """Statistics of an annotation round: items and answers, the models compared, and the recorded lineage
    (`open_round`). `pairs` and `equal` count pairs of a-or-b votes on the same item, and those that agree. `policy` is
    the round's model according to the lineage, if any; `won`, `lost` and `drawn` are its votes against other models,
    without both-bad."""

    number: int
    items: int
    complete: int
    a_votes: int
    b_votes: int
    ties: int
    both_bad: int
    pairs: int
    equal: int
    samplers: tuple[str, ...]
    lineage: Mapping[str, object]
    policy: str
    won: int
    lost: int
    drawn: int

    @property
    def agreement(self) -> float | None:
        """Share of pairs of votes that agree."""
        return self.equal / self.pairs if self.pairs else None

    @property
    def tie_share(self) -> float | None:
        """Share of ties among the votes, without both-bad."""
        votes = self.a_votes + self.b_votes + self.ties + self.both_bad
        return self.ties / votes if votes else None

    @property
    def win_rate(self) -> float | None:
        """Share of comparisons that the policy won against other models; ties count half."""
        votes = self.won + self.lost + self.drawn
        return (self.won + self.drawn / 2) / votes if votes else None


@dataclass(frozen=True)
class Match:
    """Votes between two models; a and b are in alphabetical order."""

    sampler_a: str
    sampler_b: str
    items: int
    a_votes: int
    b_votes: int
    ties: int
    both_bad: int


@dataclass(frozen=True)
class Survey:
    """Statistics of a study: counts, rounds, and votes between models."""

    counts: Counts
    rounds: tuple[Round, ...]
    matches: tuple[Match, ...]


def survey(store: Store, study_id: int) -> Survey:
    with store.read() as connection:
        groups = _groups(connection, study_id)
        of_raters = sa.select(
            _sum(_raters.c.answered + _raters.c.skipped), _sum(_raters.c.skipped), _sum(_raters.c.flagged)
        )
        raters = connection.execute(of_raters.where(_raters.c.study_id == study_id)).one()
        lineage = _lineage(connection, study_id)
    numbers = sorted({group["round"] for group in groups})
    return Survey(
        Counts(*(_total(groups, name) for name in _COUNTED), *map(int, raters)),
        tuple(
            _round(number, [g for g in groups if g["round"] == number], lineage.get(str(number), {}))
            for number in numbers
        ),
        _matches(groups),
    )


def count_study(store: Store, study_id: int) -> Counts:
    """Counts of a study: `survey(…).counts`."""
    return survey(store, study_id).counts


def _groups(connection: Connection, study_id: int) -> Sequence[sa.RowMapping]:
    """Sums over the production items by round and models, in one pass over the items."""
    a, b = _items.c.a_votes, _items.c.b_votes
    complete = sa.case((_items.c.answered >= _items.c.target, 1), else_=0)
    sums = {
        "started": _items.c.started,
        "complete": complete,
        "wanted": _items.c.target,
        "answered": _items.c.answered,
        "a_votes": a,
        "b_votes": b,
        "ties": _items.c.ties,
        "both_bad": _items.c.both_bad,
        "pairs": (a + b) * (a + b - 1),
        "equal": a * (a - 1) + b * (b - 1),
    }
    query = (
        sa.select(_items.c.round, _items.c.samplers, sa.func.count().label("items"))
        .add_columns(*(_sum(column).label(name) for name, column in sums.items()))
        .where(_items.c.study_id == study_id, _items.c.pool == "production", _items.c.excluded.is_(None))
        .group_by(_items.c.round, _items.c.samplers)
        .order_by(_items.c.round, _items.c.samplers)
    )
    return connection.execute(query).mappings().all()


def _total(groups: Sequence[sa.RowMapping], name: str) -> int:
    return sum(int(group[name]) for group in groups)


def _lineage(connection: Connection, study_id: int) -> dict[str, dict[str, object]]:
    """Last recorded lineage of each round."""
    events = schema.event
    query = sa.select(events.c.subject, events.c.detail).order_by(events.c.id)
    rows = connection.execute(query.where(events.c.study_id == study_id, events.c.action == "round_opened"))
    return {number: json.loads(detail)["lineage"] for number, detail in rows}


def _round(number: int, groups: Sequence[sa.RowMapping], lineage: Mapping[str, object]) -> Round:
    samplers = sorted({sampler for group in groups for sampler in json.loads(group["samplers"])})
    policy = str(lineage.get("policy", ""))
    won, lost, drawn = _score(policy, _matches(groups))
    return Round(
        number=number,
        **{name: _total(groups, name) for name in ("items", "complete", "a_votes", "b_votes", "ties", "both_bad")},
        pairs=_total(groups, "pairs") // 2,
        equal=_total(groups, "equal") // 2,
        samplers=tuple(samplers),
        lineage=lineage,
        policy=policy,
        won=won,
        lost=lost,
        drawn=drawn,
    )


def _score(policy: str, matches: Sequence[Match]) -> tuple[int, int, int]:
    """Votes for the policy against other models, for the others, and ties."""
    against = [match for match in matches if (policy == match.sampler_a) != (policy == match.sampler_b)]
    won = sum(m.a_votes if m.sampler_a == policy else m.b_votes for m in against)
    lost = sum(m.b_votes if m.sampler_a == policy else m.a_votes for m in against)
    return won, lost, sum(m.ties for m in against)


def _matches(groups: Sequence[sa.RowMapping]) -> tuple[Match, ...]:
    """One match per pair of models, regardless of the items' order; the alphabetically first model is a."""
    sums: dict[tuple[str, str], list[int]] = {}
    for group in groups:
        models = json.loads(group["samplers"])
        if len(models) != 2:
            continue
        votes = ("a_votes", "b_votes") if models == sorted(models) else ("b_votes", "a_votes")
        counts_of_group = [int(group[name]) for name in ("items", *votes, "ties", "both_bad")]
        pair = (min(models), max(models))
        sums[pair] = [
            sum(both) for both in zip(sums.get(pair, [0] * len(counts_of_group)), counts_of_group, strict=True)
        ]
    return tuple(Match(one, other, *counts) for (one, other), counts in sorted(sums.items()))


def open_round(
    store: Store, study_id: int, number: int, lineage: Mapping[str, object], *, actor: str = "owner"
) -> None:
    """Record the lineage of round `number`: the policy being compared, the model it was trained from, and so on."""
    with store.write() as connection:
        record_event(connection, study_id, store.now(), actor, "round_opened", str(number), lineage=dict(lineage))


def _sum(column: sa.ColumnElement) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.sum(column), 0)
