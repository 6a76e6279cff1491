"""A study in numbers: what the counters say is what the votes say."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial

from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Store,
    add_items,
    create_study,
    exclude,
    list_events,
    list_questions,
    list_votes,
    open_round,
    present,
    survey,
)
from tutelage.people.store.item_catalogue import ItemFilter, find_items
from tutelage.people.store.studies import Presentation
from tutelage.stats.agreement import pair_agreement
from tutelage.stats.vote_codes import Votes

from ..worlds import QUIET, better, raters_of, records, study_of, work


def careless(question: Assignment) -> Answer:
    """Right in two cases of three; the same question and rater always get the same answer."""
    draw = random.Random(f"{question.rater_id} {question.item}").random()
    good = better(question, 1)
    if draw < 0.1:
        return Answer("tie")
    return replace(good, choice="right" if good.choice == "left" else "left") if draw < 0.35 else good


def test_rounds_tell_how_agreement_moved(store: Store) -> None:
    study = create_study(store, "rounds", plan=replace(QUIET, overlap=3))
    for number in (1, 2):
        prompts, completions, comparisons = records(12, start=100 * number)
        completions = [replace(c, sampler=f"{c.sampler}-{number}") for c in completions]
        add_items(store, study.id, prompts, completions, [Item.of(c, round=number) for c in comparisons])
    open_round(store, study.id, 2, {"policy": "runs/ppo", "actor": "whoever", "from": 1})
    raters = raters_of(store, study, 3)
    work(store, raters, careless)
    first, second = survey(store, study.id).rounds
    assert (first.lineage, second.lineage) == ({}, {"policy": "runs/ppo", "actor": "whoever", "from": 1})
    assert second.samplers == ("new-model-2", "old-model-2")
    votes = list_votes(store, study.id)
    for told in (first, second):
        mine = [v for v in votes if int(v.item.removeprefix("c")) // 100 == told.number]
        sides = [v for v in mine if v.verdict in ("a", "b")]
        table = Votes.of([v.item for v in sides], [v.rater for v in sides], [v.verdict for v in sides])
        agreement = pair_agreement(table)
        assert agreement.pairs == told.pairs
        counts = Counter(vote.verdict for vote in mine)
        assert (told.a_votes, told.b_votes, told.ties) == (counts["a"], counts["b"], counts["tie"])
        assert (told.items, told.complete) == (12, 12)


def test_two_models_have_one_row_whichever_response_is_called_a(store: Store) -> None:
    """In one of four items the models of the responses are exchanged."""
    study = create_study(store, "both ways", plan=replace(QUIET, overlap=2))
    prompts, completions, comparisons = records(4)
    other = {"p0a": "new-model", "p0b": "old-model"}
    completions = [replace(c, sampler=other.get(c.id, c.sampler)) for c in completions]
    add_items(store, study.id, prompts, completions, map(Item.of, comparisons))
    work(store, raters_of(store, study, 2))
    wins = Counter()
    questions = {question.key: question for question in list_questions(store, study.id)}
    for vote in list_votes(store, study.id):
        wins[questions[vote.item].completions["ab".index(vote.verdict)].sampler] += 1
    assert set(wins) == {"new-model", "old-model"}
    (match,) = survey(store, study.id).matches
    assert (match.sampler_a, match.sampler_b, match.items) == ("new-model", "old-model", 4)
    assert (match.a_votes, match.b_votes) == (wins["new-model"], wins["old-model"])


def test_the_win_rate_of_a_round_is_that_of_its_policy_against_others(store: Store) -> None:
    """Whichever side of the canonical order the policy stands on; pairs of its own answers say nothing."""
    study = create_study(store, "rounds", plan=replace(QUIET, overlap=1))
    prompts, completions, comparisons = records(9)
    completions = [replace(c, sampler="new-model") if c.id in ("p8a", "p0a") else c for c in completions]
    completions = [replace(c, sampler="old-model") if c.id == "p0b" else c for c in completions]
    items = [Item.of(comparison, round=2) for comparison in comparisons]
    add_items(store, study.id, prompts, completions, items)
    open_round(store, study.id, 2, {"policy": "new-model"})

    def answer(question: Assignment) -> Answer:
        return Answer("tie") if question.item in ("c1", "c8") else better(question)

    work(store, raters_of(store, study, 4), answer)
    (told,) = survey(store, study.id).rounds
    votes = [v for v in list_votes(store, study.id) if v.item != "c8"]
    lost = sum(v.item == "c0" for v in votes)
    tied = sum(v.item == "c1" for v in votes)
    assert (told.policy, told.lost, told.drawn) == ("new-model", lost, tied)
    assert told.won == len(votes) - lost - tied
    assert told.win_rate == (told.won + tied / 2) / len(votes)
    every = list_votes(store, study.id)
    assert told.tie_share == sum(vote.verdict == "tie" for vote in every) / len(every)


def test_equal_pairs_are_counted_over_all_pairs_of_votes(lite: Store) -> None:
    """Votes aab and bb: of 3 + 1 pairs, 1 + 1 are equal."""
    study = study_of(lite, 2, replace(QUIET, overlap=3))
    script = {"c0": ["a", "a", "b"], "c1": ["b", "b", "tie"]}

    def answer(question: Assignment) -> Answer:
        said = script[question.item].pop(0)
        return (
            Answer("tie") if said == "tie" else Answer("left" if question.order[0] == "ab".index(said) else "right", 1)
        )

    work(lite, raters_of(lite, study, 3), answer)
    (told,) = survey(lite, study.id).rounds
    assert (told.pairs, told.equal) == (4, 2)


def test_matches_and_counts_leave_out_what_is_excluded(store: Store) -> None:
    study = study_of(store, 6)
    work(store, raters_of(store, study, 2))
    exclude(store, study.id, "item", "c0", "leaks a name")
    exclude(store, study.id, "rater", "rater 1", "answers at random")
    seen = survey(store, study.id)
    (match,) = seen.matches
    assert (match.sampler_a, match.sampler_b) == ("new-model", "old-model")
    assert (match.items, match.a_votes, match.b_votes) == (5, 5, 0)
    assert (seen.counts.items, seen.counts.answered, seen.counts.wanted) == (5, 5, 10)
    assert (seen.counts.complete, seen.counts.judgements) == (0, 12)


def test_the_most_disputed_items_come_first(store: Store) -> None:
    study = study_of(store, 4, replace(QUIET, overlap=4))
    wrong = {"c0": 1, "c1": 2, "c2": 0, "c3": 2}

    def answer(question: Assignment) -> Answer:
        good = better(question, 1)
        if wrong[question.item]:
            wrong[question.item] -= 1
            return replace(good, choice="right" if good.choice == "left" else "left")
        return good

    work(store, raters_of(store, study, 4), answer)
    disputed = partial(find_items, store, study.id, ItemFilter(state="disagreed"), order="disagreement")
    assert [q.key for q in disputed().questions] == ["c1", "c3", "c0"]
    page = disputed(limit=1, offset=1)
    assert ([q.key for q in page.questions], page.total) == (["c3"], 3)
    assert [q.key for q in list_questions(store, study.id, keys=["c2", "c0"])] == ["c0", "c2"]
    (vote, *others) = list_votes(store, study.id, item="c1")
    assert len(others) == 3
    assert vote.item == "c1"


def test_every_change_by_an_owner_leaves_a_line(store: Store) -> None:
    study = study_of(store, 2)
    raters_of(store, study, 1)
    present(store, study.id, Presentation(question="Which is kinder?"), actor="boss")
    exclude(store, study.id, "rater", "rater 0", "test", actor="boss")
    events = list_events(store, study.id)
    assert [(e.action, e.actor) for e in events][:2] == [("exclude", "boss"), ("study_version", "boss")]
    assert [e.action for e in events][::-1][:3] == ["study_created", "items_added", "rater_added"]
    assert events[0].detail == {"scope": "rater", "reason": "test"}
    assert list_events(store, study.id, action="items_added")[0].detail["items"] == 2
