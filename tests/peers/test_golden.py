"""Our functions against what TRL's own functions gave on the same inputs (`freeze.py`, `trl-*.json`).

Where a definition differs by design, the test says how, as an equation between the two.
"""

import json
import math
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tutelage.core.groups import SPREAD_FLOOR, Group
from tutelage.core.kl import exact_divergence, kl_estimate
from tutelage.core.preferences import (
    AnswerPairs,
    Answers,
    Dpo,
    Hinge,
    Ipo,
    Kto,
    Orpo,
    RobustDpo,
    SimPo,
    Slic,
    bradley_terry,
    dpo,
)
from tutelage.core.reduce import at_last_token, masked_mean, masked_var, token_weights, whiten
from tutelage.core.returns import gae
from tutelage.core.scoring_losses import Margin, Soft
from tutelage.core.shaping import Overlong
from tutelage.core.surrogates import Cispo, Clipped, SequenceClipped
from tutelage.core.values import value_loss
from tutelage.engines.logprobs import Head, reference_divergence, token_scores


@cache
def frozen(name: str) -> dict:
    """The cases of one release of TRL."""
    return json.loads((Path(__file__).parent / f"trl-{name}.json").read_text())


def given(case: dict, *names: str) -> list[Tensor]:
    """Inputs of a case as tensors; the peers computed in float32 too."""
    return [torch.tensor(case[name]) for name in names]


def near(found: Tensor | float, expected: object, tolerance: float = 2e-6) -> None:
    """To the last digits of float32."""
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=torch.float32),
        torch.tensor(expected, dtype=torch.float32),
        atol=tolerance,
        rtol=tolerance,
    )


def test_the_versions_are_those_that_are_named() -> None:
    for release in ("1.16.0", "1.12.0"):
        assert frozen(release)["versions"]["trl"] == release


# Log-probabilities and entropy ---------------------------------------------------------------------------------------


def test_log_probabilities_and_entropy_of_logits() -> None:
    case = frozen("1.16.0")["token_scores"]
    logits, index = given(case, "logits", "index")
    flat = (logits.flatten(0, 1), Head(), index.flatten())
    logp, _ = token_scores(*flat, temperature=case["temperature"])
    near(logp.reshape(3, 5), case["selective_log_softmax"])
    _, entropy = token_scores(*flat, entropy=True)
    assert entropy is not None
    near(entropy.reshape(3, 5), case["entropy_from_logits"])


@pytest.mark.parametrize("number", range(3))
def test_the_head_and_its_gradients(number: int) -> None:
    """TRL scales by `logit_scale`, caps, and divides by the temperature, in this order, as we do."""
    case = frozen("1.16.0")["token_scores"]["heads"][number]
    settings = case["settings"]
    states, weight, targets = given(case, "states", "weight", "targets")
    bias = None if case["bias"] is None else torch.tensor(case["bias"])
    leaves = [x.requires_grad_() for x in (states, weight, bias) if x is not None]
    head = Head(weight, bias, settings["scale"], settings["softcap"])
    logp, entropy = token_scores(states, head, targets, temperature=settings["temperature"], entropy=True)
    assert entropy is not None
    near(logp, case["logp"])
    near(entropy, case["entropy"])
    to_logp, to_entropy = given(case, "to_logp", "to_entropy")
    for found, expected in zip(
        torch.autograd.grad((logp * to_logp + entropy * to_entropy).sum(), leaves), case["gradients"], strict=True
    ):
        near(found, expected)


# Preference losses ---------------------------------------------------------------------------------------------------


def pairs_of(case: dict, *, reference: bool = True) -> AnswerPairs:
    """Four pairs of answers."""
    answers, (chosen, rejected) = case["answers"], case["lengths"]

    def side(name: str, lengths: list[int]) -> Answers:
        (logp,) = given(answers, name)
        ref = torch.tensor(answers[f"ref_{name}"]) if reference else None
        return Answers(logp=logp, ref_logp=ref, length=torch.tensor(lengths))

    return AnswerPairs(chosen=side("chosen", chosen), rejected=side("rejected", rejected))


@pytest.mark.parametrize(
    ("name", "loss"),
    [("sigmoid", Dpo(0.1)), ("hinge", Hinge(0.1)), ("robust", RobustDpo(0.1, 0.1))],
    ids=["sigmoid", "hinge", "robust"],
)
def test_losses_against_a_reference(name: str, loss: Dpo) -> None:
    case = frozen("1.16.0")["dpo"]
    near(loss(pairs_of(case)), case[name])


def test_dpo_of_margins_is_dpo_of_answers() -> None:
    case = frozen("1.16.0")["dpo"]
    chosen, rejected, ref_chosen, ref_rejected = given(
        case["answers"], "chosen", "rejected", "ref_chosen", "ref_rejected"
    )
    near(dpo(chosen - rejected, ref_chosen - ref_rejected, case["beta"]), case["sigmoid"])


def test_ipo_divides_by_the_length() -> None:
    case = frozen("1.16.0")["dpo"]
    near(Ipo(0.1)(pairs_of(case)), case["ipo"])


def test_kto() -> None:
    """TRL takes the mean over all rows, good and bad together; its drift is the mean log-ratio, at least 0."""
    case = frozen("1.16.0")["kto"]
    logp, ref, label = given(case, "logp", "ref_logp", "label")
    loss = Kto(case["beta"], *case["weights"])
    for one in case["cases"]:
        drift = (torch.tensor(one["unrelated"]) - torch.tensor(one["ref_unrelated"])).mean()
        good = loss.one((logp - ref)[label], True, drift)
        bad = loss.one((logp - ref)[~label], False, drift)
        near(torch.cat([good, bad]).mean(), one["loss"])


def test_simpo_asks_its_margin_in_units_of_beta() -> None:
    """TRL's `simpo_gamma` is the margin itself: gap = gamma / beta."""
    case = frozen("1.16.0")["without_reference"]
    near(SimPo(beta=2.0, gap=1.0 / 2.0)(pairs_of(case, reference=False)), case["simpo"])


def test_the_hinge_of_slic_is_that_of_cpo_without_its_imitation() -> None:
    case = frozen("1.16.0")["without_reference"]
    near(Slic(delta=1.0, imitation=0.0)(pairs_of(case, reference=False)), case["hinge_of_sums"])


def test_orpo_is_the_likelihood_of_the_chosen_answer_less_the_odds_term() -> None:
    """TRL gives λ log σ(log odds ratio) for the term; the loss is − log π(chosen) / length − that."""
    case = frozen("1.16.0")["without_reference"]
    pairs = pairs_of(case, reference=False)
    near(Orpo(coef=0.1)(pairs) + pairs.chosen.per_token(), [-x for x in case["orpo_odds"]])


def test_the_reward_model_s_loss() -> None:
    case = frozen("1.16.0")["reward"]
    chosen, rejected, margin = given(case, "chosen", "rejected", "margin")
    sure = torch.ones(5)
    near(bradley_terry(chosen, rejected).mean(), case["plain"])
    near(Margin()(chosen, rejected, sure, margin).mean(), case["with_margin"])
    near(Soft(centre=0.01)(chosen, rejected, sure, margin).mean(), case["centred"])


# Distillation --------------------------------------------------------------------------------------------------------


def test_the_divergence_of_gkd_and_its_gradient() -> None:
    """TRL's beta is our `mixture`; its mean is over the tokens that have a label."""
    case = frozen("1.16.0")["distillation"]
    student, teacher, labels = given(case, "student", "teacher", "labels")
    weight = token_weights(labels != -100, "token_mean")
    for one in case["cases"]:
        logits = student.clone().requires_grad_()
        temperature = one["temperature"]
        apart = exact_divergence(logits / temperature, teacher / temperature, one["beta"])
        loss = (weight * apart).sum()
        near(loss, one["loss"])
        near(torch.autograd.grad(loss, logits)[0], one["gradient"])


def test_the_divergence_of_hidden_states_and_its_gradients() -> None:
    """That of TRL's DistillationTrainer; in the peer's order of scale, cap and temperature, which is ours."""
    case = frozen("1.16.0")["distillation"]
    ref_states, ref_weight, to_loss = given(case, "ref_states", "ref_weight", "to_loss")
    for one in case["chunked"]:
        states, weight = (x.requires_grad_() for x in given(case, "states", "weight"))
        found = reference_divergence(
            states,
            Head(weight, softcap=3.0),
            ref_states,
            Head(ref_weight, scale=0.5).logits,
            mixture=one["beta"],
            temperature=0.8,
        )
        near(found, one["divergence"])
        gradients = torch.autograd.grad((found * to_loss).sum(), (states, weight))
        for ours, theirs in zip(gradients, one["gradients"], strict=True):
            near(ours, theirs)


# Policy gradients ----------------------------------------------------------------------------------------------------

REDUCE = {
    "grpo": "sequence_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "dr_grpo": "fixed_length",
}


@pytest.mark.parametrize("number", range(10))
def test_losses_of_groups_and_their_gradients(number: int) -> None:
    """TRL's loss is minus our objective, summed with the weights of the reduction."""
    whole = frozen("1.16.0")["grpo"]
    case = whole["cases"][number]
    logp, old, ref, advantage = given(whole, "logp", "old_logp", "ref_logp", "advantage")
    mask = torch.tensor(whole["mask"]).bool()
    logp.requires_grad_()
    psi = advantage[:, None] * mask
    if case["loss_type"] == "cispo":
        surrogate = Cispo(cap=case["epsilon_high"])
    elif case["level"] == "sequence":
        surrogate = SequenceClipped(0.2, case["epsilon_high"])
    else:
        surrogate = Clipped(0.2, case["epsilon_high"])
    gain = surrogate(logp, old, psi, mask)
    kl = kl_estimate(logp, ref, "k3_ratio" if case["corrected"] else "k3", old)
    weight = token_weights(mask, REDUCE[case["loss_type"]], whole["limit"])
    loss = -(weight * torch.where(mask, gain - case["beta"] * kl, 0.0)).sum()
    near(loss, case["loss"])
    near(torch.autograd.grad(loss, logp)[0], case["gradient"])


def test_the_ratio_of_whole_responses() -> None:
    """RLOO with reuse: the product of the tokens' ratios, one objective per response."""
    case = frozen("1.16.0")["rloo_loss"]
    logp, old, advantage = given(case, "logp", "old_logp", "advantage")
    mask = torch.tensor(case["mask"]).bool()
    logp.requires_grad_()
    surrogate = SequenceClipped(0.2, 0.2, length_normalised=False)
    gain = surrogate(logp, old, advantage[:, None] * mask, mask)
    loss = -(token_weights(mask, "sequence_mean") * gain).sum()
    near(loss, case["loss"])
    near(torch.autograd.grad(loss, logp)[0], case["gradient"])


def advantages(scores: Tensor, piece: Group) -> Tensor:
    reward = scores.reshape(-1, 1)
    return piece(reward, torch.ones_like(reward, dtype=torch.bool), None, 4)[0].reshape(-1, 4)


def test_advantages_within_groups() -> None:
    case = frozen("1.16.0")["group_advantages"]
    (scores,) = given(case, "scores")
    near(advantages(scores, Group(standardise=True)), case["grpo_group"])
    near(advantages(scores, Group()), case["grpo_none"])
    near(advantages(scores, Group(leave_one_out=True)), case["rloo"])
    assert SPREAD_FLOOR == 1e-4


def test_leave_one_out_with_the_divergence_in_the_reward() -> None:
    case = frozen("1.16.0")["group_advantages"]
    with_kl = case["rloo_with_kl"]
    logp, ref = given(with_kl, "logp", "ref_logp")
    mask = torch.ones_like(logp, dtype=torch.bool)
    score = torch.tensor(case["scores"]).flatten()
    reward = at_last_token(score, mask) - with_kl["beta"] * kl_estimate(logp, ref, "k1")
    psi, _ = Group(leave_one_out=True)(reward, mask, None, 4)
    near(psi[:, 0].reshape(3, 4), with_kl["advantage"])


def test_the_punishment_of_long_responses() -> None:
    case = frozen("1.16.0")["overlong"]
    shaping = Overlong(buffer=case["cache"] / case["limit"], penalty=1.0)
    near(shaping(torch.tensor(case["lengths"]), case["limit"]), case["scores"])


# PPO -----------------------------------------------------------------------------------------------------------------


def test_whitening_differs_by_bessel_s_correction_and_is_zero_outside() -> None:
    """TRL divides by the variance over n − 1, we by that over n: ours = TRL's · √(n / (n − 1)) about the mean."""
    case = frozen("1.12.0")["whitening"]
    x, theirs, scaled = given(case, "x", "whitened", "scaled")
    mask = torch.tensor(case["mask"])
    n = int(mask.sum())
    near(masked_mean(x, mask), case["mean"])
    near(masked_var(x, mask), case["var_biased"])
    near(masked_var(x, mask) * n / (n - 1), case["var"])
    more = math.sqrt(n / (n - 1))
    near(whiten(x, mask)[mask], (theirs[mask] * more).tolist())
    assert not whiten(x, mask)[~mask].any()
    mean = case["mean"]
    near(whiten(x, mask, shift_mean=False)[mask], ((scaled[mask] - mean) * more + mean).tolist())


def ppo_inputs(kind: str) -> tuple[dict, Tensor, Tensor, Tensor, Tensor]:
    """(case, log-probabilities of sampler and reference, tokens [2, 5], mask that is false at tokens that are).

    TRL divides logits by temperature + 1e-7.
    """
    case = frozen("1.12.0")["ppo"][kind]
    (tokens,) = given(case, "response")
    sampled, ref = (scored(x, tokens) for x in given(case, "sampled_logits", "ref_logits"))
    return case, sampled, ref, tokens, torch.tensor(case["mask"])


def scored(logits: Tensor, tokens: Tensor) -> Tensor:
    logp, _ = token_scores(logits.flatten(0, 1), Head(), tokens.flatten())
    return logp.reshape(tokens.shape)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_rewards_and_advantages_of_ppo(kind: str) -> None:
    """TRL puts the score of a response that ended into the first place *after* its end, whose value it knows and whose
    KL is 0; we put it on the end token, after which the value is 0. So its row of n tokens is our row of n + 1."""
    case, sampled, ref, _, mask = ppo_inputs(kind)
    settings = case["settings"]
    kl = kl_estimate(sampled, ref, kind) * mask
    near(kl.sum(1).mean(), case["logged"]["objective/kl"])
    score, value = given(case, "score", "old_value")
    longer = torch.arange(5) < (mask.sum(1, keepdim=True) + 1)
    reward = at_last_token(score, longer) - settings["kl_coef"] * kl
    found = gae(reward, value, longer, gamma=settings["gamma"], lam=settings["lam"])
    near(found, case["advantage"])


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_the_loss_of_ppo_and_its_gradients(kind: str) -> None:
    """The critic's mean of TRL runs over that place after the end too; the policy's over the tokens alone."""
    case, sampled, _, tokens, mask = ppo_inputs(kind)
    settings = case["settings"]
    logits, value, old_value, raw, psi = given(case, "logits", "value", "old_value", "advantage", "whitened")
    logits.requires_grad_()
    value.requires_grad_()
    logp = scored(logits, tokens)
    gain = Clipped(settings["cliprange"], settings["cliprange"])(logp, sampled, psi * mask, mask)
    policy = -(token_weights(mask, "token_mean") * gain).sum()
    near(policy, case["logged"]["loss/policy_avg"])
    longer = torch.arange(5) < (mask.sum(1, keepdim=True) + 1)
    old_value = old_value * longer
    error = value_loss(value * longer, old_value, raw + old_value, 0.2)
    critic = (token_weights(longer, "token_mean") * error).sum()
    near(critic, case["logged"]["loss/value_avg"])
    loss = policy + settings["vf_coef"] * critic
    near(loss, case["loss"])
    to_logits, to_value = torch.autograd.grad(loss, (logits, value))
    near(to_logits, case["gradient_logits"])
    near(to_value, case["gradient_value"])


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_ppo_whitens_over_the_tokens(kind: str) -> None:
    case, *_, mask = ppo_inputs(kind)
    n = int(mask.sum())
    (raw, theirs) = given(case, "advantage", "whitened")
    near(whiten(raw, mask), (theirs * mask * math.sqrt(n / (n - 1))).tolist())
