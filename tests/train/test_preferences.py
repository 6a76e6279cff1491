"""Preference losses on transformers: against single rows, closed forms, and under other weights of pairs."""

import math

import pytest
import torch
from offenders import for_each
from tiers import long_except
from tiny_training import assert_close, gradients_of, learner_of, policy_of, snapshot, some_pairs, some_rows

from tutelage.base.errors import TutelageError
from tutelage.core.preferences import PREFERENCE_LOSSES, AnswerPairs, Answers, Kto
from tutelage.core.rows import EncodedRow
from tutelage.data.records import Preference, UnpairedAnswer, user
from tutelage.train.supervised import batches
from tutelage.train.supervised.batches import EncodedPair, Order
from tutelage.train.supervised.fit import fit
from tutelage.train.supervised.preference_job import (
    compare,
    completion_logps,
    mean_drift,
    paired_job,
    preference_loss,
    refer,
    referred_batch,
    summed,
    unrelated,
)
from tutelage.train.supervised.unpaired_job import (
    LabelledCompletion,
    encode_unpaired,
    label,
    labelled_batch,
    single_loss,
    unpaired_job,
)


def alone(policy, row):
    """log π of one answer, from the model's own logits on that row and nothing else."""
    tokens = torch.tensor([row.prompt + row.response])
    logits = policy.model(input_ids=tokens).logits[0, len(row.prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(-1, torch.tensor(row.response)[:, None]).sum()


def learnt(policy, size=0.05):
    """A policy that differs a little from its reference."""
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(size * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return policy


def referred(policy, pairs):
    return refer(policy, pairs, 1000, drift=True, max_length=64)


def paired(policy, name, items, held_out=()):
    """The job of a loss by its name, in batches of eight."""
    order = Order(items, 8, seed=0)
    return paired_job(policy, PREFERENCE_LOSSES[name], order, 99, budget=1000, held_out=held_out)


def weighted_mean(values, items):
    weights = torch.tensor([item.pair.source.weight for item in items])
    return float((weights * torch.as_tensor(values)).sum() / weights.sum())


# The loss ---------------------------------------------------------------------------------------------------


@for_each(PREFERENCE_LOSSES)
def test_the_loss_of_a_batch_is_that_of_its_pairs_one_by_one(name, tiny_model):
    policy = policy_of(tiny_model("qwen3"))
    items = referred(policy, some_pairs(5, p_chosen=0.8, margin=0.3))
    ref = [
        (float(alone(policy, i.pair.chosen).detach()), float(alone(policy, i.pair.rejected).detach())) for i in items
    ]
    learnt(policy)
    loss = PREFERENCE_LOSSES[name]

    def answers(side, number):
        row = getattr(items[number].pair, side)
        mine, its = alone(policy, row)[None].detach(), torch.tensor([ref[number][side == "rejected"]])
        return Answers(logp=mine, ref_logp=its, length=torch.tensor([len(row.response)]))

    expected = [
        float(
            loss(
                AnswerPairs(
                    chosen=answers("chosen", i), rejected=answers("rejected", i), p_chosen=0.8, margin=0.3, drift=0.25
                )
            )
        )
        for i in range(5)
    ]
    found, told = compare(policy, loss, referred_batch(policy, items, 0.25))
    assert float(found) == pytest.approx(weighted_mean(expected, items), rel=1e-4)
    h = [tuple(float(answers(side, i).log_ratio()) for side in ("chosen", "rejected")) for i in range(5)]
    beta = getattr(loss, "beta", 1.0)
    assert float(told["kl/chosen"]) == pytest.approx(weighted_mean([-a for a, _ in h], items), rel=1e-3)
    assert float(told["kl/rejected"]) == pytest.approx(weighted_mean([-b for _, b in h], items), rel=1e-3)
    assert float(told["margin"]) == pytest.approx(weighted_mean([beta * (a - b) for a, b in h], items), rel=1e-3)
    assert float(told["accuracy"]) == pytest.approx(weighted_mean([float(a > b) for a, b in h], items))


@for_each(PREFERENCE_LOSSES)
def test_swapping_the_answers_with_the_label_changes_nothing(name, tiny_model):
    policy = policy_of(tiny_model("llama"))
    pairs = some_pairs(4, p_chosen=0.7, margin=0.2)
    swapped = [
        EncodedPair(p.rejected, p.chosen, Preference((), "b", "a", p_chosen=0.3, weight=p.source.weight, margin=0.2))
        for p in pairs
    ]
    one, other = referred(policy, pairs), referred(policy, swapped)
    learnt(policy)
    loss = PREFERENCE_LOSSES[name]
    found = [compare(policy, loss, referred_batch(policy, items, 0.1)) for items in (one, other)]
    assert float(found[0][0]) == pytest.approx(float(found[1][0]), rel=1e-5)
    assert float(found[0][1]["accuracy"]) == pytest.approx(float(found[1][1]["accuracy"]))


def test_before_the_first_step_policy_and_reference_agree(tiny_model):
    policy = policy_of(tiny_model("gpt2"))
    items = referred(policy, some_pairs(6))
    found, told = compare(policy, PREFERENCE_LOSSES["dpo"], referred_batch(policy, items, 0.0))
    assert float(found) == pytest.approx(math.log(2), abs=1e-5)
    assert float(told["margin"]) == pytest.approx(0.0, abs=1e-5)
    assert float(told["kl/chosen"]) == pytest.approx(0.0, abs=1e-4)


def test_the_first_gradient_of_dpo_is_half_beta_times_the_difference_of_the_scores(tiny_model):
    """∇ −log σ(β h) = −σ(−β h) β ∇h, and h = 0."""
    policy = policy_of(tiny_model("llama"))
    items = referred(policy, some_pairs(4))
    loss, _ = compare(policy, PREFERENCE_LOSSES["dpo"], referred_batch(policy, items, 0.0))
    loss.backward()
    got = gradients_of(policy)
    ahead = [alone(policy, i.pair.chosen) - alone(policy, i.pair.rejected) for i in items]
    weights = torch.tensor([i.pair.source.weight for i in items])
    (-0.05 * (weights * torch.stack(ahead)).sum() / weights.sum()).backward()
    for one, other in zip(got, gradients_of(policy), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_weight_of_two_is_a_repeated_pair_and_a_weight_of_zero_a_missing_one(tiny_model):
    policy = policy_of(tiny_model("llama"))

    def pairs(*weights):
        base = some_pairs(3)
        return [
            EncodedPair(p.chosen, p.rejected, Preference((), "a", "b", weight=w))
            for p, w in zip(base, weights, strict=True)
            if w
        ]

    one = referred(policy, pairs(1.0, 2.0, 0.0))
    twice = referred(policy, pairs(1.0, 1.0, 0.0))
    twice.append(twice[-1])
    nothing = [*one, *referred(policy, [EncodedPair(*some_rows(2, seed=9), Preference((), "a", "b", weight=0.0))])]
    learnt(policy)
    losses = [
        float(compare(policy, PREFERENCE_LOSSES["dpo"], referred_batch(policy, items, 0.0))[0])
        for items in (one, twice, nothing)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)


def test_pairs_that_are_made_when_they_are_read_are_those_made_beforehand(tiny_model, monkeypatch):
    policy = policy_of(tiny_model("llama"))
    pairs = some_pairs(7)
    for drift in (False, True):
        made = refer(policy, pairs, 1000, drift=drift, max_length=64)
        with monkeypatch.context() as changed:
            changed.setattr(batches, "MOST_IN_MEMORY", 3)
            changed.setattr(batches, "READ_AT_ONCE", 7)
            later = refer(policy, pairs, 1000, drift=drift, max_length=64)
        assert isinstance(later, batches.EncodedWhenRead)
        assert list(later) == list(made)


# Unrelated answers ------------------------------------------------------------------------------------------


def test_unrelated_answers_belong_to_other_prompts():
    rows = [EncodedRow((p,), (p, p, p)) for p in (1, 1, 2, 3)]
    prompts = [row.prompt for row in rows]
    found = unrelated(rows, prompts, max_length=3)
    assert [row.prompt for row in found] == [(1,), (1,), (2,), (3,)]
    assert [row.response[0] for row in found] == [2, 2, 3, 1]
    assert all(len(row) <= 3 for row in found)
    assert unrelated(rows[:2], prompts[:2], max_length=9) == rows[:2], "where there is no other prompt"


def test_the_drift_is_the_mean_log_ratio_of_unrelated_answers(tiny_model):
    policy = policy_of(tiny_model("llama"))
    items = referred(policy, some_pairs(5))
    others = [item.unrelated for item in items]
    before = [float(alone(policy, row).detach()) for row in others]
    learnt(policy)
    expected = sum(float(alone(policy, row).detach()) - b for row, b in zip(others, before, strict=True)) / 5
    found = mean_drift(policy, others, [item.ref_unrelated for item in items], 30)
    assert found == pytest.approx(expected, rel=1e-3)


def test_kto_is_given_the_drift_of_the_policy_as_it_is(tiny_model):
    policy = policy_of(tiny_model("llama"))
    items = referred(policy, some_pairs(8))
    for name, drifting in (("kto", True), ("dpo", False)):
        job = paired(policy, name, items)
        assert not job.batch(0).drift.any()
        learnt(policy)
        assert bool(job.batch(0).drift.all()) == drifting


# Training ---------------------------------------------------------------------------------------------------


def train(policy, job, steps, lr=3e-3, budget=1000):
    learner = learner_of({"policy": policy.parameters()}, steps, lr)
    return [step.metrics for step in fit(learner, policy, job.batch, job.objective, budget=budget, seed=0)]


@for_each(["dpo", "kto", "orpo"])
def test_no_budget_changes_what_is_learnt(name, tiny_model):
    found = []
    for budget in (1, 100, 100_000):
        policy = policy_of(tiny_model("llama"))
        items = referred(policy, some_pairs(10, p_chosen=0.9))
        job = paired(policy, name, items, items[:3])
        told = train(policy, job, 3, budget=budget)
        found.append((snapshot(policy.parameters()), told[-1], job.look()))
    for parameters, told, look in found[1:]:
        assert_close(parameters, found[0][0], atol=1e-5)
        for key in ("loss", "accuracy", "margin", "kl/chosen"):
            assert told[key] == pytest.approx(found[0][1][key], rel=1e-3, abs=1e-4)
            assert look[key] == pytest.approx(found[0][2][key], rel=1e-3, abs=1e-4)


def telling_pairs(count):
    """Pairs whose chosen answers use eight tokens and whose rejected answers use eight others."""
    generator = torch.Generator().manual_seed(0)

    def ids(low, high):
        return tuple(torch.randint(low, high, (4,), generator=generator).tolist())

    return [
        EncodedPair(EncodedRow(prompt, ids(20, 28)), EncodedRow(prompt, ids(200, 208)), Preference((), "a", "b"))
        for prompt in (ids(10, 299)[: 1 + i % 4] for i in range(count))
    ]


@pytest.mark.parametrize(
    ("name", "rank"),
    long_except([("dpo", 0), ("kto", 4)], [(name, 0) for name in PREFERENCE_LOSSES] + [("dpo", 4), ("kto", 4)]),
)
def test_every_loss_learns_the_preference_and_generalises_to_new_pairs(tiny_model, name, rank):
    policy = policy_of(tiny_model("llama"), rank)
    pairs = telling_pairs(48)
    train_items, aside = (referred(policy, part) for part in (pairs[:32], pairs[32:]))
    job = paired(policy, name, train_items, aside)
    before = job.look()
    train(policy, job, 24, lr=1e-2 if rank else 3e-3)
    after = job.look()
    assert after["accuracy"] >= 0.8
    assert after["margin"] > before["margin"] + 0.05
    assert after["loss"] < before["loss"]


def test_flipped_labels_teach_the_opposite(tiny_model):
    policy = policy_of(tiny_model("llama"))
    flipped = [EncodedPair(p.chosen, p.rejected, Preference((), "a", "b", p_chosen=0.0)) for p in telling_pairs(32)]
    job = paired(policy, "dpo", referred(policy, flipped))
    told = train(policy, job, 16)
    assert told[-1]["accuracy"] == 1.0, "measured against the side that the label calls better"
    assert told[-1]["margin"] < 0


def test_a_label_of_one_half_gives_dpo_no_gradient(tiny_model):
    policy = policy_of(tiny_model("llama"))
    even = [EncodedPair(p.chosen, p.rejected, Preference((), "a", "b", p_chosen=0.5)) for p in telling_pairs(8)]
    loss, _ = compare(policy, PREFERENCE_LOSSES["dpo"], referred_batch(policy, referred(policy, even), 0.0))
    loss.backward()
    assert all(float(g.abs().max()) < 1e-6 for g in gradients_of(policy))


# Single answers ---------------------------------------------------------------------------------------------


def labelled(policy, count):
    answers = [(row, good) for p in telling_pairs(count) for row, good in ((p.chosen, True), (p.rejected, False))]
    return label(policy, answers, 1000, max_length=64)


def test_labelled_answers_alone_and_in_pairs_have_one_loss(tiny_model):
    """With as many good as bad answers, the unpaired loss is the paired one, whose two halves it averages."""
    policy = policy_of(tiny_model("llama"))
    pairs = telling_pairs(6)
    loss = Kto(beta=0.3, desirable=1.2, undesirable=0.7)
    items, single = referred(policy, pairs), labelled(policy, 6)
    learnt(policy)
    paired, told = compare(policy, loss, referred_batch(policy, items, 0.2))
    alone_, told_alone = single_loss(policy, loss, labelled_batch(policy, single, 0.2))
    assert float(paired) == pytest.approx(float(alone_), rel=1e-5)
    for key in ("margin", "kl/chosen", "kl/rejected"):
        assert float(told[key]) == pytest.approx(float(told_alone[key]), rel=1e-4)


def test_single_answers_are_learnt_and_no_budget_changes_it(tiny_model):
    found = []
    for budget in (1, 1000):
        policy = policy_of(tiny_model("llama"))
        items = labelled(policy, 20)
        job = unpaired_job(policy, Kto(), Order(items[:24], 8, 0), 20, budget=budget, held_out=items[24:])
        train(policy, job, 20, budget=budget)
        look = job.look()
        assert look["accuracy"] >= 0.75
        assert look["margin"] > 0.05
        found.append(snapshot(policy.parameters()))
    assert_close(found[0], found[1], atol=1e-4)


def test_a_batch_of_good_answers_alone_is_no_division_by_zero(tiny_model):
    policy = policy_of(tiny_model("llama"))
    good = [item for item in labelled(policy, 4) if item.good]
    assert isinstance(good[0], LabelledCompletion)
    _, told = single_loss(policy, Kto(), labelled_batch(policy, good, 0.0))
    assert all(math.isfinite(float(x)) for x in told.values())
    assert float(told["kl/rejected"]) == 0.0


def test_answers_that_do_not_fit_are_counted(tiny_model):
    policy = policy_of(tiny_model("llama"))
    records = [UnpairedAnswer(user("why"), "because " * 90, True), UnpairedAnswer(user("why"), "no", False)]
    kept, cuts = encode_unpaired(records, policy.tokenizer, 32)
    assert [good for _, good in kept] == [True, False]
    assert all(len(row) <= 32 for row, _ in kept)
    assert cuts.responses == 1


# Asking for a loss ------------------------------------------------------------------------------------------


def test_settings_of_a_loss_are_read_from_text():
    assert preference_loss("dpo", ("beta=0.3", "smoothing=0.2")).smoothing == 0.2
    assert preference_loss("ipo", ("per_token=false",)).per_token is False
    assert preference_loss("kto", ("beta=1",)).beta == 1.0
    assert preference_loss("tutelage.core.preferences:SimPo", ("gap=0.1",)).gap == 0.1


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("dop", (), "no loss 'dop'.*did you mean 'dpo'"),
        ("dpo", ("betta=0.1",), "betta.*did you mean 'beta'"),
        ("dpo", ("beta=high",), "beta must be a number"),
        ("dpo", ("beta=-1",), r"beta must be in \(0, ∞\]"),
        ("dpo", ("beta",), "not an assignment"),
        ("tutelage.core.preferences:bradley_terry", ("beta=1",), "has no settings"),
        ("tutelage.core.preferences:NEEDS_REFERENCE", (), "cannot be called"),
        ("tutelage.core.nowhere:Loss", (), "nowhere"),
    ],
)
def test_settings_out_of_range_are_refused(name, given, told):
    with pytest.raises(TutelageError, match=told):
        preference_loss(name, given)


def test_log_probabilities_of_answers_are_in_the_order_of_the_rows(tiny_model):
    policy = policy_of(tiny_model("opt"))
    rows = some_rows(7)
    found = completion_logps(policy, rows, budget=40)
    expected = torch.stack([alone(policy, row).detach() for row in rows])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_an_evaluation_adds_up_over_any_split(tiny_model):
    policy = policy_of(tiny_model("llama"))
    items = referred(policy, some_pairs(7))
    learnt(policy)
    batch = referred_batch(policy, items, 0.0)

    def objective(pairs):
        return compare(policy, PREFERENCE_LOSSES["dpo"], pairs)

    one, other = (summed(policy, objective, batch, tokens) for tokens in (1, 10_000))
    assert one == pytest.approx(other, rel=1e-4)
