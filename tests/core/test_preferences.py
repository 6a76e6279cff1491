"""Losses over pairs: the laws between them, and what each has its minimum at."""

import math

import pytest
import torch
from offenders import for_each
from torch import Tensor
from torch.nn.functional import logsigmoid

from tutelage.core.preferences import (
    PREFERENCE_LOSSES,
    AnswerPairs,
    Answers,
    Dpo,
    Ipo,
    Kto,
    Orpo,
    PreferenceLoss,
    RobustDpo,
    SimPo,
    Slic,
    bradley_terry,
    dpo,
)
from tutelage.core.scoring_losses import (
    SCORING_LOSSES,
    Davidson,
    Hard,
    LearnedDavidson,
    Margin,
    Scaled,
    ScoringLoss,
    Soft,
)

GENERATOR = torch.Generator().manual_seed(0)


def random_side() -> Answers:
    length = torch.randint(1, 9, (6,), generator=GENERATOR)
    logp = -length * (0.2 + torch.rand(6, generator=GENERATOR))
    return Answers(logp=logp, ref_logp=logp + torch.randn(6, generator=GENERATOR), length=length)


def random_pairs(p_chosen: Tensor | float = 1.0) -> AnswerPairs:
    return AnswerPairs(
        chosen=random_side(),
        rejected=random_side(),
        p_chosen=p_chosen,
        margin=torch.rand(6, generator=GENERATOR),
        drift=0.4,
    )


def of_margin(loss: PreferenceLoss, h: Tensor) -> Tensor:
    """The loss where the policy is ahead of the reference by `h` nats on the chosen answer of one token."""
    one, zero = torch.ones_like(h, dtype=torch.long), torch.zeros_like(h)
    return loss(
        AnswerPairs(
            chosen=Answers(logp=h, ref_logp=zero, length=one),
            rejected=Answers(logp=zero, ref_logp=zero, length=one),
            drift=0.0,
        )
    )


def minimum(loss: PreferenceLoss) -> float:
    h = torch.linspace(-60, 60, 120_001)
    return float(h[of_margin(loss, h).argmin()])


@for_each(PREFERENCE_LOSSES)
def test_swapping_a_pair_and_its_label_changes_nothing(name: str) -> None:
    p = torch.tensor([1.0, 0.0, 0.5, 0.7, 0.9, 0.2])
    pairs = random_pairs(p)
    swapped = AnswerPairs(
        chosen=pairs.rejected, rejected=pairs.chosen, p_chosen=1 - p, margin=pairs.margin, drift=pairs.drift
    )
    loss = PREFERENCE_LOSSES[name]
    assert torch.allclose(loss(pairs), loss(swapped))


@for_each(PREFERENCE_LOSSES)
def test_a_soft_label_is_the_mixture_of_two_hard_ones(name: str) -> None:
    pairs, loss, p = random_pairs(), PREFERENCE_LOSSES[name], torch.full((6,), 0.3)
    sides = {"chosen": pairs.chosen, "rejected": pairs.rejected, "margin": pairs.margin, "drift": pairs.drift}
    hard, flipped, soft = (loss(AnswerPairs(**sides, p_chosen=q)) for q in (1.0, 0.0, p))
    assert torch.allclose(soft, p * hard + (1 - p) * flipped)


@for_each(PREFERENCE_LOSSES)
def test_every_loss_pushes_the_chosen_answer_up_and_the_rejected_one_down(name: str) -> None:
    pairs = random_pairs()
    chosen, rejected = (pairs.chosen.logp.clone().requires_grad_(), pairs.rejected.logp.clone().requires_grad_())
    moved = AnswerPairs(
        chosen=Answers(logp=chosen, ref_logp=pairs.chosen.ref_logp, length=pairs.chosen.length),
        rejected=Answers(logp=rejected, ref_logp=pairs.rejected.ref_logp, length=pairs.rejected.length),
        drift=0.4,
    )
    up, down = torch.autograd.grad(PREFERENCE_LOSSES[name](moved).sum(), (chosen, rejected))
    assert (up < 0).all()
    assert (down > 0).all() if name != "slic" else (down >= 0).all()


def test_dpo_and_the_reward_model_share_one_function() -> None:
    pairs = random_pairs(torch.full((6,), 0.8))
    chosen, rejected = 0.3 * pairs.chosen.log_ratio(), 0.3 * pairs.rejected.log_ratio()
    expected = bradley_terry(chosen, rejected, pairs.p_chosen, pairs.margin)
    assert torch.allclose(Dpo(beta=0.3)(pairs), expected)
    policy = pairs.chosen.logp - pairs.rejected.logp
    reference = pairs.chosen.ref_logp - pairs.rejected.ref_logp
    assert torch.allclose(dpo(policy, reference, 0.3, pairs.p_chosen, pairs.margin), expected)
    assert torch.allclose(SCORING_LOSSES["margin"](chosen, rejected, torch.full((6,), 0.8), pairs.margin), expected)


def test_where_each_loss_has_its_minimum() -> None:
    assert minimum(Ipo(beta=0.1)) == pytest.approx(5.0, abs=1e-3)  # 1 / (2 beta)
    smoothed = Dpo(beta=0.1, smoothing=0.1)
    assert minimum(smoothed) == pytest.approx(math.log(0.9 / 0.1) / 0.1, abs=1e-3)
    assert minimum(Dpo(beta=0.1)) == pytest.approx(60.0)  # at infinity
    hinge = of_margin(PREFERENCE_LOSSES["hinge"], torch.tensor([9.99, 10.0, 50.0]))
    assert hinge[0] > 0
    assert hinge[1:].tolist() == [0.0, 0.0]


def test_dpo_is_a_line_near_zero_with_the_slope_of_ipo_up_to_scale() -> None:
    h = torch.tensor([-1e-4, 1e-4])
    slopes = {loss: float(of_margin(loss, h).diff() / h.diff()) for loss in (Dpo(beta=0.1), Ipo(beta=0.1))}
    assert slopes[Dpo(beta=0.1)] == pytest.approx(-0.1 / 2, rel=1e-6)
    assert slopes[Ipo(beta=0.1)] == pytest.approx(-2 / (2 * 0.1), rel=1e-6)


def test_robust_dpo_undoes_the_flips_it_was_told_of() -> None:
    pairs, flips = random_pairs(), 0.2
    flipped = AnswerPairs(chosen=pairs.rejected, rejected=pairs.chosen, margin=pairs.margin)
    robust = RobustDpo(flips=flips)
    assert torch.allclose((1 - flips) * robust(pairs) + flips * robust(flipped), Dpo()(pairs))


def test_kto_values_answers_by_themselves_against_the_drift() -> None:
    loss, ratio = Kto(beta=0.5, desirable=2.0, undesirable=3.0), torch.tensor([0.0, 1.0, -1.0])
    assert torch.allclose(loss.one(ratio, True, 1.0), 2.0 * (1 - torch.sigmoid(0.5 * (ratio - 1.0))))
    assert torch.allclose(loss.one(ratio, False, 1.0), 3.0 * (1 - torch.sigmoid(0.5 * (1.0 - ratio))))
    assert torch.equal(loss.one(ratio, True, -5.0), loss.one(ratio, True, 0.0))  # a drift below 0 is none
    drift = torch.tensor(1.0, requires_grad=True)
    assert not loss.one(ratio, True, drift).requires_grad


def test_odds_and_length_normalised_losses_by_hand() -> None:
    def side(p: float, length: int) -> Answers:
        return Answers(logp=torch.tensor([length * math.log(p)]), length=torch.tensor([length]))

    pairs = AnswerPairs(chosen=side(0.5, 4), rejected=side(0.2, 3))
    odds = math.log(0.5 / 0.5) - math.log(0.2 / 0.8)
    assert float(Orpo(coef=0.1)(pairs)) == pytest.approx(-math.log(0.5) - 0.1 * float(logsigmoid(torch.tensor(odds))))
    ahead = 2.0 * (math.log(0.5) - math.log(0.2)) - 1.0
    assert float(SimPo(beta=2.0, gap=0.5)(pairs)) == pytest.approx(-float(logsigmoid(torch.tensor(ahead))))
    rank = max(0.0, 1.0 - (4 * math.log(0.5) - 3 * math.log(0.2)))
    assert float(Slic(delta=1.0, imitation=0.1)(pairs)) == pytest.approx(rank - 0.1 * math.log(0.5))


def test_the_sum_of_log_ratios_or_their_mean_over_tokens() -> None:
    pairs = random_pairs()
    h = pairs.chosen.log_ratio() - pairs.rejected.log_ratio()
    assert torch.allclose(Ipo(per_token=False)(pairs), (h - 5.0 - pairs.margin) ** 2)
    assert not torch.allclose(Ipo(per_token=True)(pairs), Ipo(per_token=False)(pairs))


def test_losses_that_need_something_say_so() -> None:
    side = Answers(logp=torch.tensor([-1.0]), length=torch.tensor([2]))
    bare = AnswerPairs(chosen=side, rejected=side)
    for name, loss in PREFERENCE_LOSSES.items():
        if "reference" in loss.needs:
            with pytest.raises(ValueError, match=r"log-probabilities|drift"):
                loss(bare)
        else:
            assert name in ("slic", "orpo", "simpo")
            assert loss(bare).isfinite().all()


@for_each([lambda: Dpo(beta=0.0), lambda: Dpo(smoothing=0.5), lambda: RobustDpo(flips=0.0)])
def test_settings_without_meaning_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"must be in [\[(]0, "):
        bad()


CHOSEN, REJECTED = torch.randn(2, 6, generator=GENERATOR).double()


@for_each([Soft(), Hard(), Margin(), Scaled(), Davidson(ties=1e-12)], repr)
def test_without_ties_strengths_or_centring_all_scoring_losses_are_bradley_terry(loss: ScoringLoss) -> None:
    margin = torch.ones(6) if isinstance(loss, Scaled) else torch.zeros(6)
    found = loss(CHOSEN, REJECTED, torch.ones(6), margin)
    assert torch.allclose(found, bradley_terry(CHOSEN, REJECTED), atol=1e-9)


def test_davidson_gives_the_three_outcomes_probability_one() -> None:
    loss = Davidson(ties=0.7)
    win, tie, lose = (loss(CHOSEN, REJECTED, torch.full((6,), p), torch.zeros(6)) for p in (1.0, 0.5, 0.0))
    assert torch.allclose((-win).exp() + (-tie).exp() + (-lose).exp(), torch.ones(6))
    strength = CHOSEN.exp() + REJECTED.exp() + 0.7 * ((CHOSEN + REJECTED) / 2).exp()
    assert torch.allclose((-win).exp(), CHOSEN.exp() / strength)
    even = torch.zeros(1)
    share = float((-loss(even, even, torch.tensor([0.5]), even)).exp())
    assert 2 * share / (1 - share) == pytest.approx(0.7)
    with pytest.raises(ValueError, match="use Soft"):
        Davidson(ties=0.0)


def test_hard_labels_take_the_likelier_side_for_certain() -> None:
    p = torch.tensor([0.9, 0.51, 0.5, 0.49, 0.1, 1.0]).double()
    sides = torch.tensor([1.0, 1.0, 0.5, 0.0, 0.0, 1.0]).double()
    found = Hard()(CHOSEN, REJECTED, p, torch.ones(6))
    assert torch.allclose(found, bradley_terry(CHOSEN, REJECTED, sides))


def test_learnt_ties_are_davidsons_and_find_the_share_of_ties() -> None:
    """ν̂ solves P(tie) = observed share; with all scores equal that is 2 share/(1 − share) in closed form."""
    loss = LearnedDavidson(ties=0.7).double()
    p = torch.tensor([1.0, 0.5, 0.0, 0.5, 0.8, 1.0]).double()
    assert torch.allclose(loss(CHOSEN, REJECTED, p, CHOSEN), Davidson(ties=0.7)(CHOSEN, REJECTED, p, CHOSEN))
    optimiser = torch.optim.Adam(loss.parameters(), lr=0.05)
    even, votes = torch.zeros(10).double(), torch.tensor([0.5] * 3 + [1.0] * 4 + [0.0] * 3).double()
    for _ in range(400):
        optimiser.zero_grad()
        loss(even, even, votes, even).mean().backward()
        optimiser.step()
    assert float(loss.log_ties.detach().exp()) == pytest.approx(2 * 0.3 / 0.7, rel=1e-3)


def test_a_tie_pulls_scores_together_and_a_strong_preference_counts_more() -> None:
    chosen = torch.tensor([2.0], requires_grad=True)
    (pull,) = torch.autograd.grad(Davidson()(chosen, torch.zeros(1), torch.tensor([0.5]), torch.zeros(1)).sum(), chosen)
    assert pull > 0
    twice = Scaled()(CHOSEN, REJECTED, torch.ones(6), torch.full((6,), 2.0))
    assert torch.allclose(twice, 2 * bradley_terry(CHOSEN, REJECTED))
    asked = Margin(unit=0.5)(CHOSEN, REJECTED, torch.ones(6), torch.full((6,), 2.0))
    assert torch.allclose(asked, bradley_terry(CHOSEN - 1.0, REJECTED))
