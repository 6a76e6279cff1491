"""Natural-gradient steps on transformers: the curvature against forward-mode derivatives, the step against its laws."""

import pytest
import tiny
import torch
import torch.autograd.forward_ad as forward_ad
from simple_goal import expected, low_tokens
from tiers import every_value, long_except
from tiny_training import CPU, PAD, World, assert_close, assert_identical, policy_of, recipe_of, snapshot, some_rows
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from tutelage.base.errors import TutelageError
from tutelage.core.kl import exact_kl
from tutelage.core.reduce import token_weights
from tutelage.core.rows import collate, positions
from tutelage.models.budget import Budget
from tutelage.rewards.function import FunctionReward
from tutelage.train.rl.natural_gradient import Fisher, flat, parts_by_logits, put

FREE = "shaping.missing_end=none"


def logits_of(policy, rows):
    """Every response token's logits from the model's own output, one row at a time."""
    found = []
    for b in range(len(rows)):
        prompt, response = rows.prompt[b][rows.prompt_mask[b]], rows.response[b][rows.mask[b]]
        out = policy.model(input_ids=torch.cat([prompt, response])[None]).logits[0]
        found.append(out[len(prompt) - 1 : -1].float())
    return torch.cat(found)


def pushed(policy, rows, v):
    """J v by forward-mode differentiation of the whole model: no backward pass anywhere. Float[N, V]"""
    own = {name: p for name, p in policy.model.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in own.values()]
    tokens, mask = torch.cat([rows.prompt, rows.response], 1), torch.cat([rows.prompt_mask, rows.mask], 1)
    with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        dual = {
            name: forward_ad.make_dual(p.detach(), piece.view_as(p))
            for (name, p), piece in zip(own.items(), v.split(sizes), strict=True)
        }
        given = {"input_ids": tokens, "attention_mask": mask.long(), "position_ids": positions(mask)}
        logits = functional_call(policy.model, dual, kwargs=given | {"use_cache": False}).logits
        first = rows.prompt.shape[1] - 1
        return forward_ad.unpack_dual(logits[:, first : first + rows.mask.shape[1]][rows.mask]).tangent


def unlike_zero(policy):
    """Change a LoRA adapter, half of whose gradients are 0 at initialisation."""
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return policy


def vectors(policy, count):
    size = sum(p.numel() for p in policy.parameters())
    return [torch.randn(size, generator=torch.Generator().manual_seed(seed)) for seed in range(count)]


# The curvature ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "rank"), every_value(tiny.EVERY, (0, 2)))
def test_the_product_is_the_covariance_of_the_score_function(tiny_model, family, rank):
    """wᵀF v = mean over tokens of Cov_p(J w, J v), the derivatives taken forwards."""
    policy = unlike_zero(policy_of(tiny_model(family), rank))
    rows = collate(some_rows(4), PAD, CPU)
    v, w = vectors(policy, 2)
    fisher = Fisher(policy, rows, temperature=1.0, budget=Budget(1000))
    p = logits_of(policy, rows).softmax(-1).detach()
    jv, jw = (pushed(policy, rows, x) for x in (v, w))
    covariance = (p * jv * jw).sum(-1) - (p * jv).sum(-1) * (p * jw).sum(-1)
    variance = (p * jv * jv).sum(-1) - (p * jv).sum(-1) ** 2
    scale = float(variance.mean())
    assert float(w @ fisher(v)) == pytest.approx(float(covariance.mean()), abs=2e-4 * scale)
    assert float(v @ fisher(v)) == pytest.approx(scale, rel=1e-3)
    assert float(v @ fisher(w)) == pytest.approx(float(w @ fisher(v)), abs=1e-4 * scale)


def test_the_temperature_divides_the_logits(tiny_model):
    policy = unlike_zero(policy_of(tiny_model("llama"), 2))
    rows = collate(some_rows(3), PAD, CPU)
    (v,) = vectors(policy, 1)
    jv = pushed(policy, rows, v) / 0.5
    p = (logits_of(policy, rows) / 0.5).softmax(-1).detach()
    variance = (p * jv * jv).sum(-1) - (p * jv).sum(-1) ** 2
    found = v @ Fisher(policy, rows, temperature=0.5, budget=Budget(1000))(v)
    assert float(found) == pytest.approx(float(variance.mean()), rel=1e-3)


def test_no_budget_changes_the_product(tiny_model):
    policy = unlike_zero(policy_of(tiny_model("llama"), 2))
    rows = collate(some_rows(6), PAD, CPU)
    (v,) = vectors(policy, 1)
    whole = Fisher(policy, rows, temperature=1.0, budget=Budget(1000))
    cut = Fisher(policy, rows, temperature=1.0, budget=Budget(1))
    assert [len(list(parts_by_logits(rows, 300, Budget(tokens)))) for tokens in (1000, 1)] == [1, 6]
    torch.testing.assert_close(cut(v), whole(v), rtol=1e-3, atol=1e-5)
    assert torch.equal(whole(v), whole(v)), "the graph that is kept is not used up"


def test_a_large_vocabulary_makes_small_micro_batches(monkeypatch):
    from tutelage.train.rl import natural_gradient as fisher

    rows = collate(some_rows(8), PAD, CPU)
    monkeypatch.setattr(fisher, "LOGITS_AT_ONCE", 300 * 25)
    parts = list(parts_by_logits(rows, 300, Budget(1000)))
    assert sum(len(part) for part in parts) == 8
    assert all(len(part) == 1 or len(part) * int(part.lengths().max()) <= 25 for part in parts)


# The step ---------------------------------------------------------------------------------------------------


def natural(*changes, name="trpo"):
    return recipe_of(FREE, *changes, name=name)


def one_step(policy, recipe, **more):
    """The metrics of one step, the parameters before it, the scored rollout."""
    world = World(policy, recipe, steps=1, **more)
    before = flat(policy.parameters())
    step = next(world.train())
    return step.metrics, before, step.sample


def divergence(policy, rows, before):
    """KL(before‖now), a mean over tokens, from the models' own logits."""
    after = flat(policy.parameters())
    now = logits_of(policy, rows).detach()
    put(policy.parameters(), before)
    old = logits_of(policy, rows).detach()
    put(policy.parameters(), after)
    return float(exact_kl(old, now).mean())


@pytest.mark.parametrize(
    ("family", "rank"),
    long_except([("llama", 2), ("gemma2", 0)], [("llama", 0), ("llama", 2), ("gpt2", 2), ("gemma2", 0)]),
)
def test_the_whole_step_has_the_requested_kl(tiny_model, family, rank):
    """½ dᵀF d = δ without damping, and below δ with it."""
    for damping in (0.0, 0.1):
        policy = policy_of(tiny_model(family), rank)
        recipe = natural("update.max_kl=1e-4", f"update.damping={damping}", name="natural_gradient")
        told, before, sample = one_step(policy, recipe)
        d = flat(policy.parameters()) - before
        put(policy.parameters(), before)
        length = float(d @ Fisher(policy, sample, temperature=1.0, budget=Budget(1000))(d)) / 2
        if damping:
            assert 0 < length < 1e-4
        else:
            assert length == pytest.approx(1e-4, rel=0.02)
            assert told["kl/old"] == pytest.approx(1e-4, rel=0.3)
        assert told["step/share"] == 1.0


@pytest.mark.parametrize(("family", "rank"), every_value(tiny.EVERY, (0, 2)))
def test_after_a_step_with_search_the_bound_holds_and_the_objective_has_risen(tiny_model, family, rank):
    policy = policy_of(tiny_model(family), rank)
    told, before, sample = one_step(policy, natural("update.damping=1e-3", "critic=none", "advantage=RewardToGo"))
    apart = divergence(policy, sample, before)
    assert told["kl/old"] == pytest.approx(apart, rel=1e-2, abs=1e-7)
    assert 0 < apart <= 0.01
    assert told["step/gain"] > 0
    assert told["updates"] == 1
    assert 0 < told["step/share"] <= 1


def test_the_logged_gain_is_that_of_the_importance_weighted_objective(tiny_model):
    policy = policy_of(tiny_model("llama"))
    told, _, sample = one_step(policy, natural("critic=none", "advantage=RewardToGo", "penalty=none"))
    psi = torch.where(sample.mask, sample.score[:, None], 0.0)  # the score comes at the end: reward-to-go is the score
    weight = token_weights(sample.mask, "token_mean")
    with torch.no_grad():
        logp = policy.scores(sample).logp
    after = float((weight * torch.exp(logp - sample.logp) * psi).sum())
    assert told["policy/objective"] == pytest.approx(float((weight * psi).sum()), rel=1e-5)
    assert told["step/gain"] == pytest.approx(after - told["policy/objective"], rel=1e-3)


def test_where_no_step_raises_the_objective_the_policy_is_unchanged(tiny_model):
    policy = policy_of(tiny_model("llama"))
    same = FunctionReward(lambda prompts, texts: [0.5] * len(texts), "the same")
    recipe = natural("critic=none", "samples=2", "advantage=Group", "penalty=none")
    told, before, _ = one_step(policy, recipe, reward=same)
    assert torch.equal(flat(policy.parameters()), before)
    assert (told["updates"], told["step/share"], told["kl/old"], told["ratio/max"]) == (0, 0, 0, 1)


def test_a_line_search_that_fails_restores_the_policy(tiny_model, monkeypatch):
    from tutelage.train.rl import natural_gradient as update

    monkeypatch.setattr(update, "mean_kl", lambda *given, **more: 1.0)
    policy = policy_of(tiny_model("llama"))
    told, before, _ = one_step(policy, natural("update.backtracks=2"))
    assert torch.equal(flat(policy.parameters()), before)
    assert told["updates"] == 0


def test_an_objective_that_is_not_finite_is_refused_and_the_policy_restored(tiny_model, monkeypatch):
    from tutelage.train.rl import natural_gradient as update

    monkeypatch.setattr(update, "mean_kl", lambda *given, **more: float("nan"))
    policy = policy_of(tiny_model("llama"))
    world = World(policy, natural(name="natural_gradient"), steps=1)
    before = snapshot(policy.parameters())
    with pytest.raises(TutelageError, match="not finite"):
        next(world.train())
    assert_identical(policy.parameters(), before)


@pytest.mark.parametrize("rank", long_except([2], [0, 2]))
def test_no_budget_changes_the_step(tiny_model, rank):
    found = []
    for budget in (20, 100_000):
        policy = policy_of(tiny_model("llama"), rank)
        world = World(policy, natural("update.cg=4"), steps=1, budget=budget)
        told = [step.metrics for step in world.train()]
        found.append((world.everything(), told))
    assert_close(found[0][0], found[1][0], atol=2e-4)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert one["step/share"] == other["step/share"]
        assert one["kl/old"] == pytest.approx(other["kl/old"], rel=2e-2)


# The critic -------------------------------------------------------------------------------------------------


def test_the_learning_rate_is_the_critics_alone(tiny_model):
    found = []
    for lr in (1e-9, 1e-2):
        policy = policy_of(tiny_model("llama"))
        world = World(policy, natural(), steps=1, lr=lr, weight_decay=0.1)
        next(world.train())
        found.append((flat(policy.parameters()), flat(world.critic.parameters())))
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("place", ["trunk", "network"])
def test_the_critic_fits_its_targets_and_in_the_warm_up_nothing_else_moves(tiny_model, place):
    from tutelage.base import config

    policy = policy_of(tiny_model("llama"))
    start = config.Model(tiny_model("llama"), device="cpu") if place == "network" else None
    recipe = natural("critic.warmup=3", "critic.clip=none", "update.critic_steps=3")
    world = World(policy, recipe, steps=4, lr=2e-2, place=place, start=start)
    before = snapshot(policy.parameters())
    steps = world.train()
    losses = []
    for _ in range(3):
        losses.append(next(steps).metrics["value/loss"])
        assert_identical(policy.parameters(), before)
    assert losses[-1] < losses[0]
    assert next(steps).metrics["updates"] == 1
    assert not torch.equal(policy.parameters()[0], before[0])


# Learning ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", long_except(["trpo"], ["trpo", "natural_gradient"]))
def test_an_adapter_learns(tiny_model, name):
    """It has no hold on the head, and learns less than all weights do (see test_every_recipe)."""
    policy = policy_of(tiny_model("llama"), 4)
    recipe = natural("penalty=none", "update.max_kl=0.1", "samples=8", name=name)
    world = World(policy, recipe, steps=8, lr=1e-2, reward=low_tokens, tokens=2)
    before = expected(policy, world.order.items)
    for _ in world.train():
        pass
    assert expected(policy, world.order.items) > before + 0.04


def test_the_text_loss_is_part_of_the_objective(tiny_model):
    from tutelage.train.supervised.language import PretrainingMix, mean_loss

    policy = policy_of(tiny_model("llama"))
    text = some_rows(6, seed=4)
    mix = PretrainingMix(policy, text, batch=6, coef=100.0, seed=0)
    recipe = natural("ptx=100", "critic=none", "advantage=RewardToGo")
    before = mean_loss(policy, text, 1000)
    told, *_ = one_step(policy, recipe, mix=mix)
    after = mean_loss(policy, text, 1000)
    assert after < before
    assert told["step/gain"] == pytest.approx(100 * (before - after), rel=0.05)
