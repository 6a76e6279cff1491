"""Every loss over pairs moves a policy, or a table of scores, towards what the raters prefer."""

from itertools import combinations

import pytest
import torch
from tabular import MASK, SENTENCES, probability, random_table, token_logp
from torch import Tensor

from tutelage.core.preferences import PREFERENCE_LOSSES, AnswerPairs, Answers, Dpo
from tutelage.core.scoring_losses import SCORING_LOSSES

UTILITY = torch.tensor([0.0, 0.2, 1.5, -0.5, 0.8, -1.0, 0.6]).double()
FIRST, SECOND = torch.tensor(list(combinations(range(7), 2))).unbind(1)
P_FIRST = torch.sigmoid(UTILITY[FIRST] - UTILITY[SECOND])
REFERENCE = random_table(0).double() / 2


def answers(table: Tensor, which: Tensor) -> Answers:
    logp, ref = (token_logp(t, SENTENCES).sum(1)[which] for t in (table, REFERENCE))
    return Answers(logp=logp, ref_logp=ref, length=MASK.sum(1)[which])


def pairs(table: Tensor, p_chosen: Tensor) -> AnswerPairs:
    every = answers(table, torch.arange(7)).log_ratio()
    return AnswerPairs(
        chosen=answers(table, FIRST), rejected=answers(table, SECOND), p_chosen=p_chosen, drift=every.mean().detach()
    )


def trained(loss: object, p_chosen: Tensor, steps: int, rate: float) -> Tensor:
    table = REFERENCE.clone().requires_grad_()
    optimiser = torch.optim.Adam([table], lr=rate)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(pairs(table, p_chosen)).mean().backward()
        optimiser.step()
    return table.detach()


@pytest.mark.parametrize("name", PREFERENCE_LOSSES)
def test_hard_labels_raise_the_expected_utility(name: str) -> None:
    before = float(probability(REFERENCE) @ UTILITY)
    table = trained(PREFERENCE_LOSSES[name], (P_FIRST > 0.5).double(), steps=80, rate=0.05)
    after = float(probability(table) @ UTILITY)
    assert after > before + 0.3 * (float(UTILITY.max()) - before)


def test_dpo_on_the_probabilities_themselves_finds_the_optimum_in_closed_form() -> None:
    """π* ∝ π_ref exp(utility / β), the policy that maximises E[utility] − β KL(π‖π_ref)."""
    found = probability(trained(Dpo(beta=0.5), P_FIRST, steps=600, rate=0.05))
    best = torch.softmax(probability(REFERENCE).log() + UTILITY / 0.5, 0)
    assert (found - best).abs().max() < 1e-3


@pytest.mark.parametrize("name", SCORING_LOSSES)
def test_scores_fitted_to_votes_are_the_utilities(name: str) -> None:
    score = torch.zeros(7, requires_grad=True)
    optimiser = torch.optim.Adam([score], lr=0.05)
    margin = torch.zeros(21) if name == "margin" else torch.full((21,), 2.0)
    for _ in range(500):
        optimiser.zero_grad()
        loss = SCORING_LOSSES[name](score[FIRST], score[SECOND], P_FIRST, margin)
        if name == "davidson":  # votes of which some are ties, as the model says
            loss = with_ties(score)
        if name == "bt":  # takes every vote for the whole truth, so the votes are given one by one
            loss = one_by_one(score)
        loss.mean().backward()
        optimiser.step()
    found = score.detach() - score.detach().mean()
    assert (found - (UTILITY - UTILITY.mean())).abs().max() < 2e-2


def one_by_one(score: Tensor) -> Tensor:
    loss, none = SCORING_LOSSES["bt"], torch.zeros(21)
    for_first = loss(score[FIRST], score[SECOND], torch.ones(21), none)
    for_second = loss(score[FIRST], score[SECOND], none, none)
    return P_FIRST * for_first + (1 - P_FIRST) * for_second


def with_ties(score: Tensor) -> Tensor:
    strength = UTILITY.exp()
    even = (strength[FIRST] * strength[SECOND]).sqrt()
    total = strength[FIRST] + strength[SECOND] + even
    outcomes = ((1.0, strength[FIRST] / total), (0.5, even / total), (0.0, strength[SECOND] / total))
    none = torch.zeros(21)
    fit = SCORING_LOSSES["davidson"]
    return torch.stack(
        [p * fit(score[FIRST], score[SECOND], torch.full((21,), vote), none) for vote, p in outcomes]
    ).sum(0)
