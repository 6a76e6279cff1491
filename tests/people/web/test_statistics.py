"""The statistics of the owner's pages against those computed from the votes one by one."""

from random import Random

import numpy as np
import pytest

from tutelage.people import (
    Answer,
    Assignment,
    Match,
    Plan,
    Store,
    Study,
    add_rater,
    exclude,
    include,
    label_study,
    list_raters,
    list_votes,
    next_assignment,
    recent_answers,
    submit,
)
from tutelage.people.kinds.ranking import ranked
from tutelage.people.selection import Selection
from tutelage.people.statistics.ballots import BallotBox, Ballots
from tutelage.people.statistics.cache import Keeper
from tutelage.people.statistics.computation import compute, preview
from tutelage.people.statistics.leaderboard import leaderboard
from tutelage.stats.agreement import pair_agreement
from tutelage.stats.vote_codes import Votes

from ..worlds import QUIET, asked, raters_of, study_of, work
from .conftest import World, make_study

BUSY = Plan(overlap=3, gold_rate=0.1, repeat_rate=0.1)


def answer(rng: Random, question: Assignment) -> Answer:
    """Mostly right, sometimes equal, bad or not to be judged."""
    word = rng.choices(("right", "wrong", "tie", "both_bad", "skip"), (70, 15, 7, 4, 4))[0]
    if word == "skip":
        return Answer("skip", reason="no idea")
    if word in ("tie", "both_bad"):
        return Answer(word, active_ms=rng.randrange(60_000))  # type: ignore[arg-type]
    good = 0 if question.left.startswith("good") else 1
    side = good if word == "right" else 1 - good
    return Answer("left" if side == 0 else "right", rng.randrange(1, 4), active_ms=rng.randrange(60_000))


def busy_study(store: Store, pairs: int = 30) -> Study:
    study = study_of(store, pairs, BUSY)
    rng = Random(5)
    raters = raters_of(store, study, 5)
    work(store, raters, lambda question: answer(rng, question))
    for rater in raters[:3]:  # changes of mind
        (given,) = recent_answers(store, rater)
        submit(store, given.assignment.id, answer(rng, given.assignment))
    return study


def same(one: Ballots, other: Ballots) -> bool:
    names = (
        "id",
        "item",
        "rater",
        "verdict",
        "strength",
        "left",
        "repeat",
        "version",
        "created",
        "out",
        "item_id",
        "gold",
    )
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_the_ballots_are_the_votes_in_force(lite: Store) -> None:
    study = busy_study(lite)
    exclude(lite, study.id, "rater", "rater 1", "x")
    exclude(lite, study.id, "item", "c3", "x")
    exclude(lite, study.id, "judgement", str(list_votes(lite, study.id)[7].id), "x")
    ballots = BallotBox(lite, study.id).open()
    votes = list_votes(lite, study.id)
    assert ballots.id.tolist() == [vote.id for vote in votes]
    assert ballots.out.tolist() == [vote.excluded is not None for vote in votes]
    assert ballots.repeat.tolist() == [vote.repeat for vote in votes]
    assert ballots.strength.tolist() == [vote.strength for vote in votes]
    assert ballots.left.tolist() == [vote.sides[0] for vote in votes]
    words = ("a", "b", "tie", "both_bad", "skip", "said in the content alone")
    assert [words[code] for code in ballots.verdict.tolist()] == [vote.verdict for vote in votes]
    assert ballots.active_ms.tolist() == [-1 if vote.active_ms is None else vote.active_ms for vote in votes]


def test_reading_on_is_the_same_as_reading_all(lite: Store) -> None:
    """Whatever happened in between: answers, revisions, exclusions, new items."""
    study = study_of(lite, 20, BUSY)
    box, rng = BallotBox(lite, study.id), Random(2)
    raters = raters_of(lite, study, 3)
    for step in range(40):
        rater = raters[step % 3]
        if step % 5 == 4:
            (given,) = recent_answers(lite, rater)
            submit(lite, given.assignment.id, answer(rng, given.assignment))
        else:
            question = next_assignment(lite, rater)
            if question is not None:  # the excluded rater is asked nothing
                submit(lite, question.id, answer(rng, question))
        if step == 20:
            exclude(lite, study.id, "rater", "rater 2", "x")
        if step == 30:
            include(lite, study.id, "rater", "rater 2")
        if step % 7 == 0:
            assert same(box.open(), BallotBox(lite, study.id).open())
    assert same(box.open(), BallotBox(lite, study.id).open())


def test_agreement_and_reliability_are_those_of_the_votes(lite: Store) -> None:
    study = busy_study(lite)
    exclude(lite, study.id, "rater", "rater 4", "x")
    raters = list_raters(lite, study.id)
    statistics = compute(BallotBox(lite, study.id).open(), raters, lite.now())
    counted = [
        vote
        for vote in list_votes(lite, study.id)
        if vote.verdict in ("a", "b") and not vote.repeat and vote.pool == "production"
    ]
    for found, votes in (
        (statistics.agreement, [vote for vote in counted if vote.excluded is None]),
        (statistics.raw, counted),
    ):
        expected = pair_agreement(
            Votes.of([v.item for v in votes], [v.rater for v in votes], [v.verdict for v in votes], ("a", "b"))
        )
        assert found.value == pytest.approx(expected.value)
        assert (found.items, found.pairs) == (expected.items, expected.pairs)
    labelled = label_study(lite, study.id, Selection(use_strength=False))
    for rater in raters:
        if rater.name in labelled.labels.accuracy:
            assert statistics.raters[rater.id].reliability == pytest.approx(labelled.labels.accuracy[rater.name])
    sure = sum(max(row.label.p_first, 1 - row.label.p_first) > 0.9 for row in labelled.rows)
    decided = {row.question.key for row in labelled.rows}
    assert abs(statistics.effective - sure) <= len({v.item for v in counted} - decided)
    assert statistics.labelled == len({vote.item for vote in counted if vote.excluded is None})


def test_left_ties_days_and_medians_are_counts(lite: Store) -> None:
    study = busy_study(lite)
    raters = list_raters(lite, study.id)
    statistics = compute(BallotBox(lite, study.id).open(), raters, lite.now())
    votes = [v for v in list_votes(lite, study.id) if not v.repeat and v.verdict != "skip"]
    decided = [v for v in votes if v.verdict in ("a", "b")]
    assert statistics.left.value == pytest.approx(sum(v.displayed["choice"] == "left" for v in decided) / len(decided))
    production = [v for v in votes if v.pool == "production"]
    assert statistics.ties.value == pytest.approx(
        sum(v.verdict in ("tie", "both_bad") for v in production) / len(production)
    )
    assert sum(statistics.by_day) == statistics.by_day[-1] == len(list_votes(lite, study.id))
    for rater in raters:
        times = [v.active_ms for v in list_votes(lite, study.id) if v.rater == rater.name and v.active_ms is not None]
        assert statistics.raters[rater.id].median_ms == pytest.approx(float(np.median(times)))


def test_a_preview_is_what_then_happens(lite: Store) -> None:
    study = busy_study(lite)
    raters = list_raters(lite, study.id)
    before = compute(BallotBox(lite, study.id).open(), raters, lite.now())
    found = preview(BallotBox(lite, study.id).open(), raters[0].id, frozenset())
    exclude(lite, study.id, "rater", raters[0].name, "x")
    back = preview(BallotBox(lite, study.id).open(), raters[0].id, frozenset())
    after = compute(BallotBox(lite, study.id).open(), raters, lite.now())
    assert found.before == before.agreement == back.after
    assert found.after == after.agreement == back.before
    assert (found.votes, found.labels) == (back.votes, back.labels)
    assert found.votes > 0


def test_a_model_judge_is_counted_apart(lite: Store) -> None:
    study = busy_study(lite)
    before = compute(BallotBox(lite, study.id).open(), list_raters(lite, study.id), lite.now())
    judge = add_rater(lite, study.id, "judge", kind="llm")
    work(lite, [judge.id], lambda question: Answer("left", 1))
    after = compute(BallotBox(lite, study.id).open(), list_raters(lite, study.id), lite.now())
    assert after.agreement == before.agreement
    assert after.raters[judge.id].reliability is None


def test_rankings_are_counted_by_their_pairs(lite: Store) -> None:
    from tutelage.data.records import CompletionRecord, Prompt, user
    from tutelage.people import Item, add_items, create_study

    study = create_study(lite, "ranking", kind="ranking", plan=QUIET)
    texts = [CompletionRecord(f"x{n}", "p", f"text {n}", "m") for n in range(3)]
    add_items(lite, study.id, [Prompt("p", user("Q"))], texts, [Item("i", "p", ("x0", "x1", "x2"))])
    for name, ranking in (("anna", (1, 2, 3)), ("berta", (2, 1, 3))):
        rater = add_rater(lite, study.id, name)
        question = asked(lite, rater.id)
        displayed = tuple(ranking[index] for index in question.order)
        submit(lite, question.id, ranked(displayed))
    statistics = compute(Keeper(lite).ballots(study), list_raters(lite, study.id), lite.now())
    assert statistics.agreement.value == pytest.approx(2 / 3)  # they differ on one pair of three
    assert statistics.agreement.pairs == 3
    assert statistics.by_day[-1] == 2  # answers, not pairs
    votes = list_votes(lite, study.id)
    ahead = [
        (pair.verdict == "a") == (vote.sides.index(pair.first) < vote.sides.index(pair.second))
        for vote in votes
        for pair in vote.pairs
    ]
    assert statistics.left.value == pytest.approx(sum(ahead) / 6)  # of two, the one that was displayed first


def test_a_keeper_never_shows_what_is_over_where_it_is_quick(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.people.statistics.cache.PROMPT_SECONDS", 1_000.0)
    study = study_of(lite, 4)
    keeper = Keeper(lite)
    (rater,) = raters_of(lite, study, 1)
    for count in range(1, 4):
        question = asked(lite, rater)
        submit(lite, question.id, Answer("left", 1))
        kept = keeper.whole(study)
        assert kept.value is not None
        assert kept.value.survey.counts.judgements == count
        assert not kept.behind


def test_a_keeper_does_not_keep_a_page_waiting_where_it_is_slow(lite: Store) -> None:
    study = study_of(lite, 4)
    keeper = Keeper(lite)
    (rater,) = raters_of(lite, study, 1)
    first = keeper.whole(study)
    first.seconds = 1_000.0  # as if it had taken so long
    submit(lite, asked(lite, rater).id, Answer("left", 1))
    again = keeper.whole(study)
    assert again.value is not None
    assert again.value.survey.counts.judgements == 0
    assert again.behind
    assert not again.running  # it rests ten times as long as it worked


def test_a_failure_is_shown_and_not_repeated_at_every_look(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lite, make_study(lite, 1, name="failing"))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("tutelage.people.statistics.cache.compute", fail)
    with pytest.raises(ZeroDivisionError):
        world.owner().get("/owner")


def matches(wins: dict[tuple[str, str], tuple[int, int, int]]) -> tuple[Match, ...]:
    return tuple(Match(one, other, a + b + t, a, b, t, 1) for (one, other), (a, b, t) in wins.items())


def test_the_leaderboard_orders_by_strength_and_counts_what_is_there() -> None:
    board = leaderboard(matches({("m1", "m2"): (80, 20, 10), ("m2", "m3"): (70, 30, 10), ("m1", "m1"): (5, 5, 5)}))
    (group,) = board.groups
    assert [standing.name for standing in group] == ["m1", "m2", "m3"]
    assert [(s.won, s.lost, s.tied) for s in group] == [(80, 20, 10), (90, 110, 20), (30, 70, 10)]
    assert board.votes == 220
    assert board.both_bad == 2
    assert sum(s.strength for s in group) == pytest.approx(0, abs=1e-6)


def test_models_that_never_met_are_not_ranked_against_each_other() -> None:
    board = leaderboard(matches({("m1", "m2"): (8, 2, 0), ("m3", "m4"): (8, 2, 0)}))
    assert [[standing.name for standing in group] for group in board.groups] == [["m1", "m2"], ["m3", "m4"]]


def test_neighbours_that_cannot_be_told_apart_name_their_price() -> None:
    """With d the difference and h its half interval from n votes, h shrinks as 1/√n: n (h/d)² are needed in all."""
    few = leaderboard(matches({("m1", "m2"): (11, 9, 0)}))
    ((one, other, more),) = few.needed
    assert (one, other) == ("m1", "m2")
    factor = (20 + more) / 20
    enough = leaderboard(matches({("m1", "m2"): (round(11 * factor * 1.05), round(9 * factor * 1.05), 0)}))
    assert enough.needed == ()
    assert leaderboard(matches({("m1", "m2"): (90, 10, 0)})).needed == ()


def test_no_votes_no_leaderboard() -> None:
    assert leaderboard(()).groups == ()
    assert leaderboard(matches({("m1", "m2"): (0, 0, 0)})).groups == ()
