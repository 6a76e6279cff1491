"""Best of n: the order, and the bound on its KL against enumeration."""

import itertools
import math

import pytest
from offenders import for_each
from scripted import ScriptedSampler

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.records import Prompt, user
from tutelage.rollout.inference.best_of_n import ScoredReply, best_first, best_of_n, best_of_n_kl
from tutelage.rollout.samplers import EndpointReply

SAMPLING = config.Sampling()
PROMPTS = [Prompt("a", user("short")), Prompt("b", user("long"))]


def length(completions):
    return [float(len(one.answer)) * (1 if one.messages[0].content == "long" else -1) for one in completions]


def test_every_prompt_keeps_its_own_answers_best_first():
    sampler = ScriptedSampler(lambda messages, number: "xyz"[: (number + 1) % 3 + 1])
    found = best_of_n(sampler, length, PROMPTS, 3, SAMPLING, seed=0)
    assert [[one.text for one in group] for group in found] == [["x", "xy", "xyz"], ["xyz", "xy", "x"]]
    assert [one.score for one in found[0]] == [-1.0, -2.0, -3.0]


def test_an_answer_that_was_cut_is_last_whatever_it_scores():
    def sampler(conversations, n, sampling, *, seed):
        return [[EndpointReply("a long one", finished=False), EndpointReply("short")] for _ in conversations]

    (group,) = best_of_n(sampler, length, PROMPTS[1:], 2, SAMPLING, seed=0)
    assert [one.text for one in group] == ["short", "a long one"]
    assert group[0].score < group[1].score


def order(scores, finished):
    """The numbers of answers with these scores, best first."""
    answers = [ScoredReply(str(i), *one) for i, one in enumerate(zip(scores, finished, strict=True))]
    return [int(one.text) for one in best_first(answers)]


def test_cut_answers_are_below_all_that_ended_and_equal_ones_stay_in_their_order():
    assert order([1.0, 3.0, 2.0, 9.0], [True, True, True, False]) == [1, 2, 0, 3]
    assert order([1.0, 2.0], [False, False]) == [1, 0]
    assert order([1.0, 1.0, 1.0], [True, True, True]) == [0, 1, 2]


def test_no_prompt():
    with pytest.raises(TutelageError, match="no prompt"):
        best_of_n(ScriptedSampler(lambda m, n: ""), length, [], 2, SAMPLING, seed=0)


def kl_by_enumeration(p, scores, n):
    """KL of the distribution of the best of n draws, ties to the first drawn."""
    best = dict.fromkeys(range(len(p)), 0.0)
    for drawn in itertools.product(range(len(p)), repeat=n):
        winner = max(drawn, key=lambda i: scores[i])
        best[winner] += math.prod(p[i] for i in drawn)
    return sum(q * math.log(q / p[i]) for i, q in best.items() if q > 0)


@for_each([1, 2, 3, 4])
def test_no_score_takes_best_of_n_further_than_the_bound(n):
    for p, scores in [([0.5, 0.3, 0.2], [0, 1, 2]), ([0.1, 0.2, 0.7], [2, 1, 0]), ([0.25] * 4, [0, 1, 1, 2])]:
        assert kl_by_enumeration(p, scores, n) <= best_of_n_kl(n) + 1e-12


@pytest.mark.parametrize("n", [2, 3])
def test_where_no_two_answers_tie_the_bound_is_reached_as_answers_become_many(n):
    """With K equally likely answers the k-th has the share (kⁿ − (k − 1)ⁿ) / Kⁿ, which tends to n xⁿ⁻¹ on [0, 1]."""
    gaps = []
    for count in (10, 100, 1000):
        shares = [(k**n - (k - 1) ** n) / count**n for k in range(1, count + 1)]
        gaps.append(best_of_n_kl(n) - sum(q * math.log(q * count) for q in shares))
    assert all(gap > 0 for gap in gaps)
    assert gaps[0] > 5 * gaps[1] > 25 * gaps[2]
    assert best_of_n_kl(1) == 0.0


def test_the_best_of_none():
    with pytest.raises(ValueError, match="none"):
        best_of_n_kl(0)
