"""Who is asked what next: exact overlap, leases, order of sides, golds, repeats, training, model judges."""

import collections
import itertools
import math
import threading
import time
from dataclasses import replace

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.records import Comparison
from tutelage.people import (
    Answer,
    Item,
    Plan,
    Store,
    Study,
    add_items,
    add_rater,
    change_rater,
    create_study,
    exclude,
    get_rater,
    include,
    list_questions,
    list_votes,
    next_assignment,
    release,
    renew,
    replan,
    reserve_item,
    set_overlap,
    set_priorities,
    set_state,
    submit,
    why_nothing,
)

from .worlds import QUIET, SECRET, Clock, asked, better, raters_of, records, study_of, work

LEASE = QUIET.lease_seconds


def answers_per_item(store: Store, study: Study) -> dict[str, int]:
    counted = collections.Counter(v.item for v in list_votes(store, study.id) if not v.repeat and not v.extra)
    return {question.key: counted[question.key] for question in list_questions(store, study.id)}


@pytest.mark.parametrize("policy", ["finish_first", "random", "priority"])
def test_every_item_gets_its_overlap_and_never_the_same_rater_twice(store: Store, policy: str) -> None:
    study = study_of(store, 5, replace(QUIET, overlap=3, policy=policy))  # type: ignore[arg-type]
    work(store, raters_of(store, study, 4))
    assert set(answers_per_item(store, study).values()) == {3}
    pairs = [(vote.item, vote.rater) for vote in list_votes(store, study.id)]
    assert len(set(pairs)) == len(pairs)
    assert all(question.answered == 3 for question in list_questions(store, study.id))


def test_twelve_threads_give_exact_overlap_and_lose_or_double_nothing(store: Store) -> None:
    study = study_of(store, 12, replace(QUIET, overlap=3))
    store.clock = time.time
    failures: list[BaseException] = []
    sent: list[str] = []

    def rate(rater_id: int) -> None:
        try:
            while (question := next_assignment(store, rater_id)) is not None:
                answer = better(question)
                submit(store, question.id, answer)
                sent.append(answer.key)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rate, args=(rater_id,)) for rater_id in raters_of(store, study, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(vote.key for vote in list_votes(store, study.id)) == sorted(sent)
    assert set(answers_per_item(store, study).values()) == {3}


def test_the_item_closest_to_completion_comes_first(store: Store) -> None:
    study = study_of(store, 6, replace(QUIET, overlap=3))
    first, second, third, fourth = raters_of(store, study, 4)
    once, twice = asked(store, first), asked(store, second)
    assert once.item == twice.item  # started items come before fresh ones
    submit(store, once.id, better(once))
    other = asked(store, first)
    submit(store, other.id, better(other))  # one item with a single answer
    submit(store, twice.id, better(twice))  # one with two
    assert asked(store, third).item == once.item
    assert asked(store, fourth).item == other.item


def test_a_rater_who_works_alone_is_never_held_up_by_the_items_already_answered(lite: Store) -> None:
    study = study_of(lite, 520)  # more than one look passes over
    (rater,) = raters_of(lite, study, 1)
    questions = work(lite, [rater])
    assert len({question.item for question in questions}) == 520
    (other,) = raters_of_named(lite, study, "other")
    assert len(work(lite, [other])) == 520


def raters_of_named(store: Store, study: Study, *names: str) -> list[int]:
    return [add_rater(store, study.id, name).id for name in names]


def test_a_reload_shows_the_same_question_and_order(store: Store) -> None:
    study = study_of(store, 5)
    (rater,) = raters_of(store, study, 1)
    question = asked(store, rater)
    again = asked(store, rater)
    assert (again.id, again.texts, again.order) == (question.id, question.texts, question.order)


def test_a_few_questions_are_held_ahead_and_fewer_at_the_end(store: Store) -> None:
    study = study_of(store, 5)
    rater, other = raters_of(store, study, 2)
    held: list[int] = []
    for _ in range(5):
        ahead = next_assignment(store, rater, besides=held)
        assert ahead is not None
        assert ahead.id not in held
        held.append(ahead.id)
    assert next_assignment(store, rater, besides=held) is None
    assert "open already" in why_nothing(store, rater)
    assert asked(store, rater).id == held[0]
    theirs: list[int] = []
    while (more := next_assignment(store, other, besides=theirs)) is not None:
        theirs.append(more.id)
    assert len(theirs) == 3  # there is room for two more, but every item was begun


@pytest.mark.parametrize("policy", ["finish_first", "priority"])
def test_a_new_round_comes_before_what_is_left_of_older_ones(store: Store, policy: str) -> None:
    study = study_of(store, 6, replace(QUIET, policy=policy))  # type: ignore[arg-type]
    early, late, third = raters_of(store, study, 3)
    begun = set()
    for _ in range(4):
        question = asked(store, early)
        begun.add(question.item)
        submit(store, question.id, better(question))
    prompts, completions, comparisons = records(3, start=100)
    add_items(store, study.id, prompts, completions, [replace(Item.of(c), round=2) for c in comparisons])
    new, old = {"c100", "c101", "c102"}, {f"c{number}" for number in range(6)}
    order = [question.item for question in work(store, [late])]
    assert set(order[:3]) == new  # for one who comes now
    assert set(order[3:7]) == begun  # and then what is left, as before: what was begun first
    assert set(order) == new | old
    order = [question.item for question in work(store, [early])]
    assert set(order[:3]) == new  # and for one who was here before
    assert set(order[3:]) == old - begun
    assert next_assignment(store, third) is None
    assert set(answers_per_item(store, study).values()) == {2}


def test_a_lease_that_ends_returns_the_item(store: Store, clock: Clock) -> None:
    study = study_of(store, 1, replace(QUIET, overlap=1))
    set_overlap(store, study.id, 1, ["c0"])
    slow, quick = raters_of(store, study, 2)
    abandoned = asked(store, slow)
    assert next_assignment(store, quick) is None
    assert "by others just now" in why_nothing(store, quick)
    clock.seconds += LEASE + 1
    assert asked(store, quick).item == abandoned.item


def test_renewing_keeps_a_lease_alive(store: Store, clock: Clock) -> None:
    study = study_of(store, 1)
    set_overlap(store, study.id, 1, ["c0"])
    slow, quick = raters_of(store, study, 2)
    question = asked(store, slow)
    for _ in range(4):
        clock.seconds += LEASE * 0.7
        assert renew(store, slow) > clock.seconds * 1000
        assert next_assignment(store, quick) is None
    assert not submit(store, question.id, better(question)).extra


def test_a_released_question_goes_to_somebody_else_and_may_come_back(store: Store) -> None:
    study = study_of(store, 1)
    set_overlap(store, study.id, 1, ["c0"])
    first, second = raters_of(store, study, 2)
    question = asked(store, first)
    assert release(store, first) == 1
    other = asked(store, second)
    assert other.item == question.item
    assert release(store, second) == 1
    assert asked(store, first).item == question.item


def test_a_late_answer_counts_if_there_is_room_and_is_an_extra_if_not(store: Store, clock: Clock) -> None:
    study = study_of(store, 2)
    set_overlap(store, study.id, 1, ["c0", "c1"])
    slow, quick = raters_of(store, study, 2)
    first = asked(store, slow)
    clock.seconds += LEASE + 1
    overtaken = asked(store, quick)
    assert overtaken.item == first.item
    submit(store, overtaken.id, better(overtaken))
    assert submit(store, first.id, better(first)).extra
    second = asked(store, slow)
    clock.seconds += LEASE + 1
    asked(store, quick)
    release(store, quick)
    assert not submit(store, second.id, better(second)).extra
    assert next_assignment(store, quick) is None
    assert answers_per_item(store, study) == {"c0": 1, "c1": 1}
    assert len(list_votes(store, study.id)) == 3


def test_a_clock_set_back_blocks_an_item_for_one_lease_at_most(store: Store, clock: Clock) -> None:
    study = study_of(store, 1)
    set_overlap(store, study.id, 1, ["c0"])
    slow, quick = raters_of(store, study, 2)
    asked(store, slow)
    clock.seconds -= 10 * 86_400
    assert next_assignment(store, quick) is None
    clock.seconds += LEASE + 60
    assert asked(store, quick).item == "c0"


def test_a_clock_set_back_hides_no_item_and_loses_no_answer(store: Store, clock: Clock) -> None:
    study = study_of(store, 8)
    raters = raters_of(store, study, 3)
    for rater in raters:
        question = asked(store, rater)
        submit(store, question.id, better(question))
        clock.seconds -= 3600
    work(store, raters)
    assert set(answers_per_item(store, study).values()) == {2}
    ids = [vote.id for vote in list_votes(store, study.id)]
    assert ids == sorted(ids)


def test_the_order_of_sides_is_fixed_fair_and_independent_of_the_rater_before(lite: Store) -> None:
    drawn, other = (
        create_study(lite, secret[:2], plan=QUIET, secret=secret).side_order for secret in (SECRET, "00" * 32)
    )
    orders = [drawn(item, rater, 2) for item in range(60) for rater in range(60)]
    left_first = sum(order == (0, 1) for order in orders)
    assert abs(left_first - 1800) < 4 * math.sqrt(900)  # four standard deviations of a fair coin
    assert orders == [drawn(item, rater, 2) for item in range(60) for rater in range(60)]
    assert orders != [other(item, rater, 2) for item in range(60) for rater in range(60)]
    counts = collections.Counter(drawn(item, 1, 3) for item in range(6000))
    assert set(counts) == set(itertools.permutations(range(3)))
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 20.5  # chi-squared, 5 d.o.f., p = .001


def test_at_least_a_tenth_of_the_items_get_a_second_rater(store: Store) -> None:
    study = study_of(store, 31, replace(QUIET, overlap=1))
    targets = [question.target for question in list_questions(store, study.id)]
    assert collections.Counter(targets) == {1: 27, 2: 4}
    replan(store, study.id, replace(QUIET, overlap=3))
    assert {question.target for question in list_questions(store, study.id)} == {3}
    replan(store, study.id, replace(QUIET, overlap=1))
    assert [question.target for question in list_questions(store, study.id)] == targets


def test_items_added_one_by_one_still_leave_a_tenth_with_a_second_rater(lite: Store) -> None:
    study = create_study(lite, "live", plan=replace(QUIET, overlap=1))
    for number in range(20):
        add_items(lite, study.id, *records(1, number))
    assert sum(question.target == 2 for question in list_questions(lite, study.id)) == 2


def test_the_overlap_can_be_changed_at_any_time(store: Store) -> None:
    study = study_of(store, 3)
    raters = raters_of(store, study, 4)
    work(store, raters)
    set_overlap(store, study.id, 3, ["c1"])
    work(store, raters)
    assert answers_per_item(store, study) == {"c0": 2, "c1": 3, "c2": 2}
    replan(store, study.id, replace(QUIET, overlap=4))
    work(store, raters)
    assert answers_per_item(store, study) == {"c0": 4, "c1": 3, "c2": 4}
    replan(store, study.id, QUIET)
    assert next_assignment(store, raters[0]) is None


def test_golds_and_repeats_come_at_their_rates_and_look_like_any_other_question(lite: Store) -> None:
    study = study_of(lite, 400, Plan(overlap=1, gold_rate=0.1, repeat_rate=0.1))
    prompts, completions, comparisons = records(120, start=1000)
    golds = [replace(Item.of(c), pool="gold", gold="b") for c in comparisons]
    add_items(lite, study.id, prompts, completions, golds)
    (rater,) = raters_of(lite, study, 1)
    questions = work(lite, [rater])
    votes = {vote.assignment: vote for vote in list_votes(lite, study.id)}
    kinds = collections.Counter("repeat" if votes[q.id].repeat else votes[q.id].pool for q in questions)
    assert kinds["production"] == 400
    for kind in ("gold", "repeat"):
        assert abs(kinds[kind] / len(questions) - 0.1) < 4 * math.sqrt(0.09 / len(questions))
    assert len({field for q in questions for field in vars(q)}) == len(vars(questions[0]))
    tallies = get_rater(lite, rater).tallies
    assert (tallies.gold_seen, tallies.gold_right) == (kinds["gold"], kinds["gold"])
    assert (tallies.repeat_seen, tallies.repeat_same) == (kinds["repeat"], kinds["repeat"])


def test_a_repeat_swaps_the_sides_comes_late_and_comes_once(lite: Store) -> None:
    study = study_of(lite, 150, Plan(overlap=1, gold_rate=0.0, repeat_rate=0.2))
    questions = work(lite, raters_of(lite, study, 1))
    places: dict[str, list[int]] = {}
    for place, question in enumerate(questions):
        places.setdefault(question.item, []).append(place)
    repeated = [where for where in places.values() if len(where) > 1]
    assert len(repeated) > 10
    for first, *others in repeated:
        assert len(others) == 1
        assert others[0] - first > 10
        assert questions[others[0]].order == questions[first].order[::-1]


def test_golds_and_repeats_take_nobodys_place(store: Store) -> None:
    study = study_of(store, 12, Plan(overlap=2, gold_rate=0.2, repeat_rate=0.2))
    prompts, completions, comparisons = records(2, start=50)
    add_items(store, study.id, prompts, completions, [replace(Item.of(c), pool="gold", gold="b") for c in comparisons])
    work(store, raters_of(store, study, 2))
    production = [question for question in list_questions(store, study.id) if question.item.pool == "production"]
    assert {question.answered for question in production} == {2}


@pytest.mark.parametrize(("right", "state"), [(4, "active"), (3, "paused")])
def test_training_comes_first_and_decides(store: Store, right: int, state: str) -> None:
    study = study_of(store, 2)
    prompts, completions, comparisons = records(5, start=20)
    add_items(
        store, study.id, prompts, completions, [replace(Item.of(c), pool="training", gold="b") for c in comparisons]
    )
    rater = add_rater(store, study.id, "novice", training=True).id
    for number in range(5):
        question = asked(store, rater)
        assert question.training
        good = better(question).choice
        bad = "right" if good == "left" else "left"
        submit(store, question.id, Answer(good if number < right else bad, 1))  # type: ignore[arg-type]
    assert get_rater(store, rater).state == state
    question_after = next_assignment(store, rater)
    assert (question_after is not None and not question_after.training) == (state == "active")
    if state == "paused":
        assert "paused" in why_nothing(store, rater)
        change_rater(store, rater, state="active")
        assert not asked(store, rater).training


def test_a_model_judge_is_asked_everything_and_takes_nobodys_place(store: Store) -> None:
    study = study_of(store, 4)
    judge = add_rater(store, study.id, "judge", kind="llm", detail={"model": "m", "prompt_sha256": "0"}).id
    assert [question.item for question in work(store, [judge])] == ["c0", "c1", "c2", "c3"]
    assert all(question.answered == 0 for question in list_questions(store, study.id))
    people = raters_of(store, study, 3)
    work(store, people)
    humans = collections.Counter(v.item for v in list_votes(store, study.id) if v.rater_kind == "human")
    assert set(humans.values()) == {2}
    assert add_rater(store, study.id, "second judge", kind="llm").id not in people


def test_an_owner_adjudicates_on_top_of_the_others(store: Store) -> None:
    study = study_of(store, 1)
    work(store, raters_of(store, study, 2))
    owner = add_rater(store, study.id, "owner", role="owner").id
    question = reserve_item(store, owner, "c0")
    submit(store, question.id, better(question, 3))
    assert reserve_item(store, owner, "c0").state == "done"
    (item,) = list_questions(store, study.id)
    assert item.answered == 2
    with pytest.raises(TutelageError, match="owner"):
        reserve_item(store, raters_of_named(store, study, "somebody")[0], "c0")


def test_an_excluded_rater_is_asked_nothing_and_the_places_are_given_again(store: Store) -> None:
    study = study_of(store, 3)
    raters = raters_of(store, study, 3)
    work(store, raters)
    exclude(store, study.id, "rater", "rater 0", "answers at random")
    assert next_assignment(store, raters[0]) is None
    work(store, raters[1:])
    heard = collections.Counter(v.item for v in list_votes(store, study.id) if v.rater != "rater 0")
    assert set(heard.values()) == {2}
    assert {question.answered for question in list_questions(store, study.id)} == {2}
    include(store, study.id, "rater", "rater 0")
    assert sum(q.answered for q in list_questions(store, study.id)) == len(list_votes(store, study.id))
    assert next_assignment(store, raters[0]) is None


def test_nobody_sees_an_item_again_after_its_only_vote_was_excluded(store: Store) -> None:
    study = study_of(store, 1)
    (rater,) = raters_of(store, study, 1)
    work(store, [rater])
    (vote,) = list_votes(store, study.id)
    exclude(store, study.id, "judgement", str(vote.id), "slip of the finger")
    assert next_assignment(store, rater) is None
    (question,) = list_questions(store, study.id)
    assert (question.answered, question.counts["b"]) == (0, 0)


def test_an_excluded_item_is_not_asked(store: Store) -> None:
    study = study_of(store, 2)
    exclude(store, study.id, "item", "c0", "leaks a name")
    raters = raters_of(store, study, 2)
    assert {question.item for question in work(store, raters)} == {"c1"}
    include(store, study.id, "item", "c0")
    assert {question.item for question in work(store, raters)} == {"c0"}


def test_why_nothing_tells_the_reason(store: Store) -> None:
    study = study_of(store, 2)
    rater = add_rater(store, study.id, "anna", quota=1).id
    set_state(store, study.id, "paused")
    assert next_assignment(store, rater) is None
    assert "paused" in why_nothing(store, rater)
    set_state(store, study.id, "open")
    work(store, [rater])
    assert "the one answer you were asked for" in why_nothing(store, rater)
    change_rater(store, rater, state="active")
    work(store, [rater])
    assert "everything there is to answer" in why_nothing(store, rater)


def test_whoever_has_answered_everything_does_not_wait_for_others(store: Store, clock: Clock) -> None:
    study = study_of(store, 2)
    anna = add_rater(store, study.id, "anna", quota=9).id
    (slow,) = raters_of(store, study, 1)
    work(store, [anna])
    asked(store, slow)  # an item that anna has answered
    assert "with 2 of 9 answers you are done" in why_nothing(store, anna)
    (late,) = raters_of(store, study, 1, start=1)
    set_overlap(store, study.id, 1, ["c0", "c1"])
    add_items(store, study.id, *records(1, start=2))
    set_overlap(store, study.id, 1, ["c2"])
    third = asked(store, late)
    assert third.item == "c2"
    assert next_assignment(store, anna) is None
    assert "by others just now" in why_nothing(store, anna)  # this one may come back
    exclude(store, study.id, "item", "c2", "leaks a name")
    assert "with 2 of 9 answers you are done" in why_nothing(store, anna)


def test_the_most_uncertain_item_first_but_a_share_at_random(lite: Store) -> None:
    study = create_study(lite, "active", plan=replace(QUIET, overlap=1, policy="priority"), secret=SECRET)
    prompts, completions, comparisons = records(200)
    add_items(lite, study.id, prompts, completions, [replace(Item.of(c), overlap=1) for c in comparisons])
    set_priorities(lite, study.id, {f"c{n}": float(n) for n in range(200)}, why="spread of the reward models")
    left, by_priority = set(range(200)), 0
    for question in work(lite, raters_of(lite, study, 1))[:150]:
        number = int(question.item.removeprefix("c"))
        by_priority += number == max(left)
        left.remove(number)
    assert abs(by_priority / 150 - 0.7) < 4 * math.sqrt(0.21 / 150)


def test_items_are_what_they_claim_to_be(lite: Store) -> None:
    study = study_of(lite, 2)
    prompts, completions, (item, other) = records(2)
    again = add_items(lite, study.id, prompts, completions, [item, other])
    assert (again.prompts, again.responses, again.items, again.known) == (0, 0, 0, 2)
    for wrong, complaint in (
        (replace(item, b_id="p0a"), "itself"),
        (replace(item, b_id="p1b"), "p1b"),
        (replace(item, prompt_id="p9"), "p9"),
        (replace(item, a_id="p0b", b_id="p0a"), "c0.*responses"),
        (replace(item, id="c1"), "c1.*prompt"),
        (replace(Item.of(item), pool="gold"), "gold"),
        (replace(Item.of(item), gold="better"), "better"),
        (replace(Item.of(item), overlap=0), "1 and 100"),
        (replace(Item.of(item), responses=("p0a",)), "1 response"),
    ):
        with pytest.raises(TutelageError, match=complaint):
            add_items(lite, study.id, [], [], [wrong])
    with pytest.raises(TutelageError, match=r"p0a.*text"):
        add_items(lite, study.id, [], [replace(completions[0], text="something else")], [])
    with pytest.raises(TutelageError, match=r"p0.*messages"):
        add_items(lite, study.id, [replace(prompts[0], messages=prompts[1].messages)], [], [])
    with pytest.raises(TutelageError, match=r"One.*practice"):
        set_overlap(lite, study.id, 3, ["c0", "nothing"])
    assert {question.target for question in list_questions(lite, study.id)} == {2}


def test_all_or_none_of_the_items_are_added(store: Store) -> None:
    study = study_of(store, 1)
    prompts, completions, comparisons = records(3, start=5)
    with pytest.raises(TutelageError):
        add_items(store, study.id, prompts, completions, [*comparisons, Comparison("x", "p5", "p5a", "p6b")])
    assert [question.key for question in list_questions(store, study.id)] == ["c0"]
    with pytest.raises(TutelageError, match="c9"):
        set_priorities(store, study.id, {"c0": 1.0, "c9": 2.0}, why="test")
    assert list_questions(store, study.id)[0].item.priority == 0.0
