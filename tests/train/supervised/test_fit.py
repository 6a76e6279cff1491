"""The supervised loop: its loss, independence of the budget, and stops at values that are not finite."""

import math
from itertools import groupby

import pytest
import torch
from forked import python
from offenders import for_each
from tiny_training import (
    CPU,
    PAD,
    assert_close,
    assert_identical,
    learner_of,
    policy_of,
    snapshot,
    some_pairs,
    some_rows,
)
from torch.nn.functional import logsigmoid

from tutelage.base import config
from tutelage.core.rows import EncodedRow, collate
from tutelage.models.heads import new_reward_model
from tutelage.train.learner import Learner, NotFinite
from tutelage.train.supervised.batches import Order, collate_pairs, windows
from tutelage.train.supervised.fit import WeightedPairs, WeightedRows, fit, imitate
from tutelage.train.supervised.reward_model import prefer, preference_figures


def fine_tune(policy, rows, steps, budget, batch=6, **settings):
    learner = learner_of({"policy": policy.parameters()}, steps, **settings)
    order = Order(rows, batch, seed=0)
    return learner, fit(
        learner,
        policy,
        lambda step: WeightedRows.of(collate(order(step), PAD, CPU)),
        lambda part: imitate(policy, part),
        budget=budget,
        seed=0,
    )


def reward_steps(model, pairs, steps, budget):
    learner = learner_of({"model": model.parameters()}, steps)
    order = Order(pairs, 6, seed=0)
    return learner, fit(
        learner,
        model,
        lambda step: WeightedPairs.of(collate_pairs(order(step), PAD, CPU)),
        lambda part: prefer(model, part),
        budget=budget,
        seed=0,
    )


def scalar(folder, rank=0):
    return new_reward_model(config.Model(folder, device="cpu"), config.Lora(rank=rank), seed=0)


@pytest.mark.parametrize("rank", [0, 2])
def test_no_budget_changes_fine_tuning(tiny_model, rank):
    found, losses = [], []
    for budget in (1, 50, 100_000):
        policy = policy_of(tiny_model("llama"), rank)
        _, steps = fine_tune(policy, some_rows(18), 3, budget)
        losses.append([step.metrics["loss"] for step in steps])
        found.append(snapshot(policy.parameters()))
    for other, loss in zip(found[1:], losses[1:], strict=True):
        assert loss == pytest.approx(losses[0], abs=1e-5)
        assert_close(other, found[0], atol=1e-6)


@pytest.mark.parametrize("rank", [0, 2])
def test_no_budget_changes_a_reward_model(tiny_model, rank):
    found, told = [], []
    for budget in (1, 90, 100_000):
        model = scalar(tiny_model("gpt2"), rank)
        _, steps = reward_steps(model, some_pairs(18, p_chosen=0.8, margin=0.1), 3, budget)
        told.append([[step.metrics[name] for name in ("loss", "accuracy", "margin")] for step in steps])
        found.append(snapshot(model.parameters()))
    for other, numbers in zip(found[1:], told[1:], strict=True):
        torch.testing.assert_close(torch.tensor(numbers), torch.tensor(told[0]), rtol=0, atol=1e-5)
        assert_close(other, found[0], atol=1e-6)


def test_the_loss_is_the_mean_over_all_response_tokens_of_the_batch(tiny_model):
    """Not the mean of the rows' means, which differs for rows of different lengths. Prompt tokens have no weight."""
    policy = policy_of(tiny_model("qwen3"))
    rows = some_rows(6)
    total = tokens = 0
    for row in rows:
        logits = policy.model(input_ids=torch.tensor([row.prompt + row.response])).logits[0]
        logp = logits[len(row.prompt) - 1 : -1].log_softmax(-1)
        total = total - logp.gather(1, torch.tensor(row.response)[:, None]).sum()
        tokens += len(row.response)
    (total / tokens).backward()
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in policy.parameters()))
    policy.model.zero_grad()
    _, steps = fine_tune(policy, rows, 1, budget=40)
    step = next(steps)
    assert step.metrics["loss"] == pytest.approx(float(total) / tokens, rel=1e-5)
    assert step.metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)


def test_the_loss_of_weighted_rows_is_their_weighted_mean(tiny_model):
    """Σ_i w_i Σ_t nll_it / Σ_i w_i n_i; with weights that are all alike, bit for bit that without weights."""
    policy = policy_of(tiny_model("qwen3"))
    rows = collate(some_rows(4), PAD, CPU)
    each = -policy.scores(rows).logp.detach().where(rows.mask, 0).sum(1)
    weights = torch.tensor([0.25, 0.0, 2.0, 1.0])
    expected = (weights * each).sum() / (weights * rows.mask.sum(1)).sum()
    loss, _ = imitate(policy, WeightedRows.of(rows, weights.tolist()))
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    assert torch.equal(WeightedRows.of(rows, [1.0] * 4).weight, WeightedRows.of(rows).weight)


@for_each([(1.0, 0.0), (0.7, 0.0), (1.0, 0.5), (0.2, 0.3), (0.5, 0.0)])
def test_preferences_are_fitted_by_the_weighted_cross_entropy(p_chosen, margin, tiny_model):
    model = scalar(tiny_model("llama"))
    pairs = some_pairs(6, p_chosen=p_chosen, margin=margin)

    def score(row):
        return model.model(input_ids=torch.tensor([row.prompt + row.response])).logits[0, 0]

    loss, weights = 0, 0
    for pair in pairs:
        d = score(pair.chosen) - score(pair.rejected)
        loss = loss - pair.source.weight * (
            p_chosen * logsigmoid(d - margin) + (1 - p_chosen) * logsigmoid(-d - margin)
        )
        weights += pair.source.weight
    (loss / weights).backward()
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None))
    model.model.zero_grad()
    _, steps = reward_steps(model, pairs, 1, budget=60)
    step = next(steps)
    assert step.metrics["loss"] == pytest.approx(float(loss) / weights, rel=1e-4)
    assert step.metrics["grad_norm"] == pytest.approx(norm, rel=1e-3)


def test_held_out_figures_are_those_of_the_pairs_one_by_one(tiny_model):
    model = scalar(tiny_model("llama"))
    pairs = some_pairs(9, p_chosen=1.0) + some_pairs(4, seed=7, p_chosen=0.3)
    differences = []
    with torch.no_grad():
        for pair in pairs:
            a, b = (
                float(model.model(input_ids=torch.tensor([row.prompt + row.response])).logits[0, 0])
                for row in (pair.chosen, pair.rejected)
            )
            differences.append(a - b)
    p = [pair.source.p_chosen for pair in pairs]
    right = [(d > 0) == (share > 0.5) for d, share in zip(differences, p, strict=True)]
    loss = [
        -share * math.log(1 / (1 + math.exp(-d))) - (1 - share) * math.log(1 / (1 + math.exp(d)))
        for d, share in zip(differences, p, strict=True)
    ]
    found = preference_figures(model, pairs, budget=50)
    assert found["accuracy"] == pytest.approx(sum(right) / len(right))
    assert found["loss"] == pytest.approx(sum(loss) / len(loss), rel=1e-4)
    assert found["margin"] == pytest.approx(sum(differences) / len(differences), rel=1e-3)


def test_fine_tuning_learns_its_demonstrations(tiny_model):
    policy = policy_of(tiny_model("opt"), rank=4)
    _, steps = fine_tune(policy, some_rows(6), 60, 100_000, lr=3e-2)
    losses = [step.metrics["loss"] for step in steps]
    assert losses[-1] < 0.6 * losses[0]


# Stopping before harm ---------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_before_the_step(tiny_model):
    policy = policy_of(tiny_model("llama"))
    rows = some_rows(12)
    learner = learner_of({"policy": policy.parameters()}, 4)

    def batch(step):
        made = WeightedRows.of(collate(rows[6 * (step % 2) : 6 * (step % 2) + 6], PAD, CPU))
        if step == 1:
            made.weight[4, 0] = torch.nan
        return made

    steps = fit(learner, policy, batch, lambda part: imitate(policy, part), budget=30, seed=0)
    assert next(steps).index == 1
    good, state = snapshot(policy.parameters()), learner.optimiser.state_dict()["state"][0]["exp_avg"].clone()
    with pytest.raises(NotFinite, match=r"loss became nan in step 2 on rows .*4.* of the batch") as caught:
        next(steps)
    assert len(str(caught.value).split(" of the batch")[0].split("rows ")[1].split(",")) < 6, "only its micro-batch"
    assert_identical(policy.parameters(), good)
    assert torch.equal(learner.optimiser.state_dict()["state"][0]["exp_avg"], state)
    assert learner.step == 1


def test_a_gradient_that_is_not_finite_stops_before_the_step():
    """√x at 0 is 0, and its slope is infinite."""
    x = torch.nn.Parameter(torch.tensor([0.0, 1.0]))
    learner = Learner({"x": [x]}, config.Optimiser(lr=1e-5, weight_decay=0.1), 2)
    x.sqrt().sum().backward()
    with pytest.raises(NotFinite, match="gradient of step 1 is not finite"):
        learner.update()
    assert x.tolist() == [0.0, 1.0]
    assert not learner.optimiser.state


LITTLE_MEMORY = """
import resource, torch
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.train.learner import Learner

weights = torch.nn.Parameter(torch.ones(256, 2**16))  # 64 MiB, and moments of 128 MiB
learner = Learner({"policy": [weights]}, config.Optimiser(lr=1.0), 2)
weights.grad = torch.ones_like(weights)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 100 * 2**20, resource.RLIM_INFINITY))
try:
    learner.update()
except TutelageError as error:
    print(error)
    print("kept" if bool((weights == 1).all()) else "changed")
"""


def test_moments_without_room_are_told_of_in_a_sentence_and_change_no_weight():
    """In a process of its own, whose address space is limited to what it has and 100 MiB."""
    out, _ = python(LITTLE_MEMORY).communicate(timeout=300)
    told, weights = out.splitlines()
    assert told.startswith("Memory ran out in the optimiser's step 1: its moments take 8 bytes for each of 16,777,216")
    assert weights == "kept"


# What moves the weights -------------------------------------------------------------------------------------


@for_each(["linear", "cosine", "constant"])
def test_the_learning_rate_follows_its_schedule(schedule):
    x = torch.nn.Parameter(torch.zeros(3, 3))
    settings = config.Optimiser(lr=0.5, warmup=4, schedule=schedule)
    learner = Learner({"x": [x]}, settings, 20)
    factors = [learner.factor(step) for step in range(20)]
    assert factors[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert factors[4] == 1.0
    halfway = {"linear": 0.5, "cosine": 0.5, "constant": 1.0}[schedule]
    assert factors[12] == pytest.approx(halfway)
    last = {"linear": 1 / 16, "cosine": math.sin(math.pi / 32) ** 2, "constant": 1.0}[schedule]
    assert factors[19] == pytest.approx(last)
    learner.step = 12
    x.sum().backward()
    assert learner.update()["lr"] == pytest.approx(0.5 * halfway)
    assert learner.optimiser.param_groups[0]["lr"] == pytest.approx(0.5 * halfway)


def test_gradients_are_clipped_together_and_the_norm_before_is_logged(monkeypatch):
    a, b = torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(3))
    learner = Learner({"a": [a], "b": [b]}, config.Optimiser(lr=1e-5, max_norm=0.25), 5)
    (3 * a.sum() - 4 * b.sum()).backward()
    seen = []
    monkeypatch.setattr(learner.optimiser, "step", lambda: seen.extend([a.grad.clone(), b.grad.clone()]))
    told = learner.update()["grad_norm"]
    assert told == pytest.approx(math.sqrt(4 * 9 + 3 * 16))
    assert math.sqrt(sum(float((g**2).sum()) for g in seen)) == pytest.approx(0.25, rel=1e-4)
    assert float(seen[0][0, 0] / seen[1][0]) == pytest.approx(-0.75)


def test_weights_decay_and_biases_do_not_and_groups_have_rates_of_their_own():
    wide, narrow, other = (torch.nn.Parameter(torch.ones(*shape)) for shape in ((2, 2), (2,), (2, 2)))
    settings = config.Optimiser(lr=0.1, weight_decay=0.5, schedule="constant")
    learner = Learner({"policy": [wide, narrow], "critic": [other]}, settings, 5, critic=0.01)
    (0 * (wide.sum() + narrow.sum() + other.sum())).backward()
    learner.update()
    assert wide[0, 0].item() == pytest.approx(1 - 0.1 * 0.5)
    assert narrow[0].item() == 1.0
    assert other[0, 0].item() == pytest.approx(1 - 0.01 * 0.5)


# Which rows ------------------------------------------------------------------------------------------------


@for_each([(10, 3), (9, 3), (4, 9), (1, 1)])
def test_every_item_is_read_once_an_epoch_in_an_order_that_the_step_alone_decides(count, batch):
    order = Order(list(range(count)), batch, seed=5)
    per_epoch = -(-count // min(batch, count))
    assert order.steps_per_epoch == per_epoch
    epochs = [[item for s in range(per_epoch) for item in order(e * per_epoch + s)] for e in range(3)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    assert count < 4 or len({tuple(epoch) for epoch in epochs}) == 3
    fresh = Order(list(range(count)), batch, seed=5)
    backwards = {step: fresh(step) for step in reversed(range(3 * per_epoch))}
    assert all(order(step) == items for step, items in backwards.items())
    assert count < 4 or any(Order(list(range(count)), batch, seed=6)(s) != order(s) for s in range(per_epoch))


@for_each([1, 3, 4, 40])
def test_items_that_share_something_are_read_together_but_never_fill_a_batch(size):
    items = [(group, number) for number in range(size) for group in range(12)]
    order = Order(items, 16, seed=3, together=[group for group, _ in items])
    epoch = [item for step in range(order.steps_per_epoch) for item in order(step)]
    assert sorted(epoch) == sorted(items)
    runs = [len(list(run)) for _, run in groupby(epoch, key=lambda item: item[0])]
    assert max(runs) >= min(size, 4)
    if size <= 4:
        assert len(runs) == 12
    assert all(len({group for group, _ in order(step)}) >= 2 for step in range(order.steps_per_epoch - 1))
    assert size > 1 or epoch == [item for step in range(order.steps_per_epoch) for item in Order(items, 16, 3)(step)]


@for_each([(20, 7), (21, 7), (19, 7), (5, 7), (7, 7), (8, 7), (2, 2), (1, 4)])
def test_windows_predict_every_token_of_a_stream_once(length, context):
    stream = list(range(100, 100 + length))
    made = windows(stream, context)
    assert [token for row in made for token in row.response] == stream[1:]
    assert all(len(row) <= context for row in made)
    assert all(row.prompt == (row.response[0] - 1,) for row in made), "each starts from the token before"
    assert made == [] if length == 1 else all(isinstance(row, EncodedRow) for row in made)
