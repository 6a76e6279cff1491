"""Distillation by enumeration: the exact gradients of its divergences, and what they lead to.

KL-regularised RL with the reward log p − log q is distillation from p, whatever the reference q is.
"""

from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement

import pytest
import torch
from tabular import (
    ENDED,
    MASK,
    SENTENCES,
    STATES,
    WORDS,
    distributions,
    gradient,
    probability,
    random_table,
    states_of,
    token_logp,
)
from torch import Tensor

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Recipe, needs_divergence, objective, prepare
from tutelage.algorithms.recipe_state import initial_state
from tutelage.algorithms.registry import RECIPES
from tutelage.core.batch import ScoredRollout
from tutelage.core.kl import exact_divergence
from tutelage.core.reduce import token_weights

STUDENT, TEACHER, OTHER = random_table(0).double(), random_table(1).double(), random_table(2).double()
COUNT = len(SENTENCES)


def rollout(rows: Tensor, reference: Tensor, score: Tensor, *, given: Tensor | None = None) -> ScoredRollout:
    """Some of the seven sentences as the student's samples, scored by `score` Float[7]."""
    response = SENTENCES[rows]
    size = len(rows)
    return ScoredRollout(
        prompt=torch.zeros(size, 1, dtype=torch.long),
        prompt_mask=torch.ones(size, 1, dtype=torch.bool),
        response=response,
        mask=MASK[rows],
        logp=token_logp(STUDENT, response),
        terminated=ENDED[rows],
        truncated=~ENDED[rows],
        group=1,
        ids=tuple(str(i) for i in range(size)),
        score=score[rows],
        ref_logp=token_logp(reference, response),
        given=given,
    )


def slope(recipe: Recipe, scored: ScoredRollout, reference: Tensor) -> Tensor:
    """The gradient of the recipe's objective of a batch, at the student."""
    table = STUDENT.clone().requires_grad_()
    batch, state, _ = prepare(recipe, scored, initial_state(recipe))
    here, there = distributions(table, batch.response), distributions(reference, batch.response)
    mixture = needs_divergence(recipe)
    apart = None if mixture is None else exact_divergence(here, there, mixture)
    weight = token_weights(batch.mask, recipe.reduce)
    logp = token_logp(table, batch.response)
    return gradient(objective(recipe, batch, logp, None, weight, state, divergence=apart), table)


@cache
def expected_slope(recipe: Recipe, reference: Tensor = TEACHER, score: Tensor | None = None) -> Tensor:
    """The mean of `slope` over all batches of two sentences that the student may draw, in either order."""
    score = torch.zeros(COUNT) if score is None else score
    p, total = probability(STUDENT), torch.zeros_like(STUDENT)
    for first, second in combinations_with_replacement(range(COUNT), 2):
        chance = p[first] * p[second] * (1 if first == second else 2)
        total += chance * slope(recipe, rollout(torch.tensor([first, second]), reference, score), reference)
    return total


def kl(table: Tensor, other: Tensor) -> Tensor:
    """KL(π‖other) of whole sentences."""
    apart = token_logp(table, SENTENCES) - token_logp(other, SENTENCES)
    return (probability(table) * apart.sum(1)).sum()


def exact(function: object) -> Tensor:
    table = STUDENT.clone().requires_grad_()
    return gradient(function(table), table)


def divergence_of_states(table: Tensor, mixture: float, of: Tensor = STUDENT) -> Tensor:
    """The sum over the tokens of a sentence of the divergence at its states, in the mean over sentences of `of`, whose
    probabilities are held."""
    apart = exact_divergence(distributions(table, SENTENCES), distributions(TEACHER, SENTENCES), mixture)
    return (probability(of).detach()[:, None] * apart * MASK).sum()


def test_reverse_kl_follows_the_gradient_of_the_kl_of_sentences() -> None:
    """Unbiased, with its baseline: the estimate of two samples has the exact mean."""
    found = expected_slope(RECIPES["reverse_kl"])
    assert (found + exact(lambda table: kl(table, TEACHER))).abs().max() < 1e-12


@pytest.mark.parametrize("mixture", [0.0, 0.5, 1.0])
def test_gkd_follows_the_gradient_of_the_divergence_at_the_states_it_visits(mixture: float) -> None:
    recipe = override(RECIPES["gkd"], [f"penalty.mixture={mixture}", "reduce=sequence_sum"])
    found = expected_slope(recipe)
    assert (found + exact(lambda table: divergence_of_states(table, mixture))).abs().max() < 1e-12


def test_without_later_tokens_reverse_kl_is_gkd_at_its_end() -> None:
    """γ = 0 leaves out that a token decides which states come next, as a divergence of given states does."""
    myopic = expected_slope(override(RECIPES["reverse_kl"], ["advantage.gamma=0"]))
    whole = expected_slope(override(RECIPES["gkd"], ["penalty.mixture=1", "reduce=sequence_sum"]))
    assert (myopic - whole).abs().max() < 1e-12
    assert (myopic - expected_slope(RECIPES["reverse_kl"])).abs().max() > 1e-2


def test_given_sentences_teach_by_the_divergence_alone() -> None:
    """On sentences that another policy wrote, gkd follows the divergence there; a policy gradient takes none."""
    rows = torch.arange(COUNT)
    everything = torch.ones(COUNT, dtype=torch.bool)
    recipe = override(RECIPES["gkd"], ["penalty.mixture=0", "reduce=sequence_sum"])
    scored = rollout(rows, TEACHER, torch.randn(COUNT), given=everything)
    uniform = torch.zeros(1, STATES, WORDS)
    table = STUDENT.clone().requires_grad_()
    apart = exact_divergence(distributions(table, SENTENCES), distributions(TEACHER, SENTENCES), 0.0)
    of_data = gradient((apart * MASK).sum() / COUNT, table)
    assert (slope(recipe, scored, TEACHER) + of_data).abs().max() < 1e-12
    assert (of_data - exact(lambda t: divergence_of_states(t, 0.0, uniform))).abs().max() > 1e-3
    assert not slope(RECIPES["reverse_kl"], scored, TEACHER).any()
    half = rollout(rows, TEACHER, torch.zeros(COUNT), given=rows % 2 == 0)
    drawn = rollout(rows[1::2], TEACHER, torch.zeros(COUNT))
    _, _, metrics = prepare(recipe, half, initial_state(recipe))
    _, _, own = prepare(recipe, drawn, initial_state(recipe))
    assert metrics["kl/reference"] == pytest.approx(float(own["kl/reference"]), abs=1e-12)


def test_rl_with_the_log_ratio_as_its_reward_is_distillation() -> None:
    """E[log p − log q] − KL(π‖q) = −KL(π‖p), and so are the gradients."""
    ratio = (token_logp(TEACHER, SENTENCES) - token_logp(OTHER, SENTENCES)).sum(1)
    regularised = expected_slope(RECIPES["reverse_kl"], OTHER, ratio)
    assert (regularised - expected_slope(RECIPES["reverse_kl"])).abs().max() < 1e-12


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_the_best_policy_lies_between_reference_and_teacher_or_beyond(beta: float) -> None:
    """arg max E[log p − log q] − β KL(π‖q) = q^(1 − 1/β) p^(1/β) / Z over sentences; at β = 1 it is the teacher."""
    p, q = probability(TEACHER), probability(OTHER)
    best = q ** (1 - 1 / beta) * p ** (1 / beta)
    best = best / best.sum()
    table = table_of(best).requires_grad_()
    torch.testing.assert_close(probability(table), best)
    reward = (p / q).log()
    value = (probability(table) * reward).sum() - beta * kl(table, OTHER)
    assert gradient(value, table).abs().max() < 1e-12
    if beta == 1.0:
        torch.testing.assert_close(best, p)
        assert float(value.detach()) == pytest.approx(0.0, abs=1e-12)


def table_of(chances: Tensor) -> Tensor:
    """The policy that gives the seven sentences these probabilities. Float[7] -> Float[1, 3, 3]"""
    table = torch.zeros(1, STATES, WORDS)
    for row, state in enumerate(states_of(SENTENCES)[:, 1].tolist()):
        table[0, 0, state] += chances[row]
        if state:
            table[0, state, SENTENCES[row, 1]] += chances[row]
    table[0, 0] = table[0, 0].log()
    table[0, 1:] = table[0, 1:].log()
    return table


def test_the_reward_is_nothing_but_the_teacher() -> None:
    """A score beside the teacher is the usual RL, with the teacher as the reference: its gradient is added."""
    score = torch.randn(COUNT, generator=torch.Generator().manual_seed(5))
    recipe = replace(RECIPES["reverse_kl"], penalty=None)
    both = expected_slope(RECIPES["reverse_kl"], TEACHER, score)
    apart = expected_slope(RECIPES["reverse_kl"]) + expected_slope(recipe, TEACHER, score)
    assert (both - apart).abs().max() < 1e-12
