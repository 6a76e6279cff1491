"""Rounds on the policy's own answers: selection, learning, and answers that stay as they were sampled."""

import json

import pytest
import torch
from simple_goal import LIMIT, expected, low_tokens
from tiny_training import assert_identical, learner_of, policy_of, prompts_of, snapshot

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.preferences import Dpo
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.records import Prompt, user
from tutelage.rollout.local import LocalGenerator
from tutelage.train.supervised.batches import Order
from tutelage.train.supervised.completion_rounds import (
    InRounds,
    OwnCompletion,
    OwnCompletions,
    best_and_worst,
    keep_best,
    pair_up,
    statistics,
)
from tutelage.train.supervised.fit import WeightedRows, fit, imitate
from tutelage.train.supervised.preference_job import paired_job, refer

ASKED = config.Sampling(temperature=1.0, max_new_tokens=LIMIT)


def said(prompt, text, score, finished=True):
    return OwnCompletion(Prompt(prompt, user(prompt)), EncodedRow((1,), (2, 3)), text, score, finished)


def own(policy, folder, samples=4, batch=8, reward=low_tokens):
    order = Order(prompts_of(policy), batch, 0)
    return OwnCompletions(folder, LocalGenerator(policy), order, reward, samples, ASKED, 7)


# What is kept ---------------------------------------------------------------------------------------------


def group(prompt, *answers):
    """As `OwnCompletions` gives them: best first, cut ones last."""
    return sorted((said(prompt, *answer) for answer in answers), key=lambda a: (not a.finished, -a.score))


def test_the_best_of_each_prompt_or_the_best_of_all():
    groups = [group("a", ("a1", 1.0), ("a2", 5.0), ("a3", 4.0)), group("b", ("b1", 0.0), ("b2", 3.0), ("b3", 2.0))]
    assert [a.text for a in keep_best(groups, 1, 0.0)] == ["a2", "b2"]
    assert [a.text for a in keep_best(groups, 2, 0.0)] == ["a2", "a3", "b2", "b3"]
    assert [a.text for a in keep_best(groups, 1, 0.5)] == ["a2", "a3", "b2"], "half of six, whoever was asked"


def test_truncated_answers_are_never_imitated_and_repeated_ones_once():
    groups = [group("a", ("cut", 9.0, False), ("x", 2.0), ("x", 2.0), ("y", 1.0))]
    assert [a.text for a in keep_best(groups, 3, 0.0)] == ["x", "y"]
    assert [a.text for a in keep_best(groups, 1, 0.99)] == ["x", "y"]


def test_a_group_of_truncated_answers_gives_nothing():
    with pytest.raises(TutelageError, match=r"None of 2 completions.*max-new-tokens"):
        keep_best([group("a", ("x", 1.0, False), ("y", 2.0, False))], 1, 0.0)


def test_pairs_are_best_against_worst_where_one_is_better():
    groups = [
        group("a", ("low", 1.0), ("high", 5.0), ("middle", 4.0)),
        group("b", ("one", 2.0), ("other", 2.0)),
        group("c", ("cut", 9.0, False), ("ended", 0.0)),
        group("d", ("cut", 9.0, False), ("too", 1.0, False)),
    ]
    pairs = pair_up(best_and_worst(groups))
    assert [(p.source.chosen, p.source.rejected) for p in pairs] == [("high", "low"), ("ended", "cut")]
    assert all(p.source.p_chosen == 1.0 for p in pairs)
    with pytest.raises(TutelageError, match=r"No prompt \(2 sampled\) has a complete completion that is better"):
        best_and_worst([groups[1], groups[3]])


def test_scores_alone_compare_where_most_answers_are_cut():
    groups = [
        group("a", ("cut", 9.0, False), ("too", 1.0, False), ("ended", 4.0)),
        group("b", ("x", 2.0, False), ("y", 2.0, False), ("z", 2.0)),
    ]
    assert [(best.text, worst.text) for best, worst in best_and_worst(groups)] == [("cut", "too")]
    with pytest.raises(TutelageError, match=r"No prompt \(1 sampled\) has a completion that is better"):
        best_and_worst(groups[1:])


def test_figures_of_a_round():
    groups = [group("a", ("x", 1.0), ("y", 3.0)), group("b", ("z", 2.0), ("w", 4.0, False))]
    assert statistics(groups, keep_best(groups, 1, 0.0)) == {
        "score/mean": 2.5,
        "score/std": pytest.approx(1.25**0.5),
        "score/kept": 2.5,
        "ended": 0.75,
        "length/mean": 2.0,
        "groups/dead": 0.0,
        "kept": 2.0,
    }


# Answers ---------------------------------------------------------------------------------------------------


def test_the_answers_of_a_round_are_the_tokens_that_were_sampled_and_stay_when_the_policy_changes(tiny_model, tmp_path):
    policy = policy_of(tiny_model("llama"))
    policy.end_ids = tuple(range(100, 200))
    first = own(policy, tmp_path).of(0)
    assert [len(answers) for answers in first] == [4] * 8
    for answers in first:
        assert len({answer.prompt.id for answer in answers}) == 1
        for answer in answers:
            assert answer.score == pytest.approx(
                sum(token < 150 for token in answer.row.response) / len(answer.row.response)
            )
            assert answer.finished == (answer.row.response[-1] in policy.end_ids)
        ranks = [(not a.finished, -a.score) for a in answers]
        assert ranks == sorted(ranks)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(torch.randn_like(p))
    assert own(policy, tmp_path).of(0) == first, "read from disk"
    assert own(policy, tmp_path / "other").of(0) != first
    assert own(policy, tmp_path).of(1) != first


def test_another_round_of_the_same_policy_gets_other_answers(tiny_model, tmp_path):
    policy = policy_of(tiny_model("llama"))
    answers = own(policy, tmp_path)
    texts = [{a.text for g in answers.of(number) for a in g} for number in range(2)]
    assert texts[0] != texts[1]


def test_every_round_samples_its_share_of_the_prompts(tiny_model, tmp_path):
    answers = own(policy_of(tiny_model("llama")), tmp_path, batch=3)
    asked = [[g[0].prompt.id for g in answers.of(number)] for number in range(3)]
    assert [len(a) for a in asked] == [3, 3, 2]
    assert len({name for a in asked for name in a}) == 8


def test_a_foreign_file_is_refused(tiny_model, tmp_path):
    (tmp_path / "round-1.jsonl").write_text(json.dumps({"prompt_id": "stranger"}) + "\n")
    with pytest.raises(TutelageError, match="no answer of this run"):
        own(policy_of(tiny_model("llama")), tmp_path).of(0)


def test_items_come_round_by_round_and_each_round_is_made_once():
    made = []

    def make(number):
        made.append(number)
        return [10 * number + i for i in range(4)]

    items = InRounds(make, 3, 2, seed=0)
    seen = [items(step) for step in range(9)]
    assert made == [0, 1, 2]
    for number in range(3):
        mine = [x for step in seen[3 * number : 3 * number + 2] for x in step]
        assert sorted(mine) == [10 * number + i for i in range(4)], "a pass over the round"
    again = InRounds(make, 3, 2, seed=0)
    assert [again(step) for step in (7, 3)] == [seen[7], seen[3]], "a function of the step alone"


# Learning --------------------------------------------------------------------------------------------------


def imitated(policy, folder, rounds, steps):
    """Rejection sampling as the command does it."""
    answers, pad = own(policy, folder, samples=6), pad_token_id(policy.tokenizer)
    items = InRounds(lambda n: [a.row for a in keep_best(answers.of(n), 1, 0.0)], steps, 8, 0)
    learner = learner_of({"policy": policy.parameters()}, rounds * steps, 1e-2)
    return fit(
        learner,
        policy,
        lambda step: WeightedRows.of(collate(items(step), pad, policy.device)),
        lambda rows: imitate(policy, rows),
        budget=1000,
        seed=0,
    )


@pytest.mark.parametrize("rank", [0, 4])
def test_rejection_sampling_learns_and_every_round_starts_from_the_last(tiny_model, tmp_path, rank):
    policy = policy_of(tiny_model("llama"), rank)
    policy.end_ids = tuple(range(policy.vocabulary))  # every token ends an answer: one-token answers
    before = expected(policy, prompts_of(policy))
    scores = [before]
    for step in imitated(policy, tmp_path, rounds=3, steps=4):
        if step.index % 4 == 0:
            scores.append(expected(policy, prompts_of(policy)))
    assert scores == sorted(scores)
    assert scores[-1] > before + 0.08
    told = [statistics(own(policy, tmp_path, samples=6).of(n), [said("", "", 0.0)]) for n in range(3)]
    assert told[2]["score/mean"] > told[0]["score/mean"], "the answers of a round are the learnt policy's own"


def test_online_dpo_learns(tiny_model, tmp_path):
    policy = policy_of(tiny_model("llama"))
    policy.end_ids = tuple(range(policy.vocabulary))
    policy.freeze_reference()
    start = snapshot(policy.parameters())
    answers = own(policy, tmp_path, samples=6)

    def of_round(number):
        with policy.reference():
            return refer(policy, pair_up(best_and_worst(answers.of(number))), 1000, drift=False, max_length=90)

    items = InRounds(of_round, 6, 8, 0)
    job = paired_job(policy, Dpo(beta=0.1), items, 18, budget=1000)
    before = expected(policy, prompts_of(policy))
    learner = learner_of({"policy": policy.parameters()}, job.steps, 1e-2)
    for step in fit(learner, policy, job.batch, job.objective, budget=1000, seed=0):
        if step.index == 1:
            assert step.metrics["margin"] == pytest.approx(0.0, abs=1e-4), "policy and reference are one at first"
    assert expected(policy, prompts_of(policy)) > before + 0.05
    with policy.reference():
        assert expected(policy, prompts_of(policy)) == pytest.approx(before, abs=1e-6), "which it stays"
    with pytest.raises(AssertionError):
        assert_identical(policy.parameters(), start)
