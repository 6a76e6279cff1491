"""Mismatch of sampler and trainer: its metrics, and truncated importance sampling against enumeration."""

import math
from dataclasses import replace

import pytest
import torch
from compilers import needs_compiler
from simple_goal import low_tokens
from tiers import long_except
from tiny_training import World, policy_of, recipe_of

from tutelage.algorithms.recipe import objective, prepare
from tutelage.algorithms.recipe_state import initial_state
from tutelage.base.errors import TutelageError
from tutelage.core.batch import ScoredRollout
from tutelage.core.reduce import token_weights
from tutelage.engines.cpu import cpu_engine
from tutelage.rollout.local import LocalGenerator
from tutelage.train.rl.batch_scores import mismatch_metrics, share_truncated, truncated_importance

INF = float("inf")
# One state, four words, one token each: everything can be counted.
TRAINER = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
SAMPLER = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
SCORE = torch.tensor([1.0, -2.0, 0.5, 3.0])


def one_token_each(cap, sampler=SAMPLER, **more):
    """The four answers of one token, as scored after they were sampled by `sampler`."""
    mask = torch.ones(4, 1, dtype=torch.bool)
    weight = None if cap is None else truncated_importance(sampler[:, None], TRAINER[:, None], mask, cap)
    return ScoredRollout(
        **{
            "prompt": torch.zeros(4, 1, dtype=torch.long),
            "prompt_mask": mask,
            "response": torch.arange(4)[:, None],
            "mask": mask,
            "logp": TRAINER[:, None],
            "terminated": mask[:, 0],
            "truncated": ~mask[:, 0],
            "group": 1,
            "ids": ("a", "b", "c", "d"),
            "score": SCORE,
            "ref_logp": TRAINER[:, None],
            "importance": weight,
        }
        | more
    )


def gradient(recipe, scored, chance):
    """Σ over answers of P(answer under the sampler) · its gradient, in the logits of the four words."""
    state = initial_state(recipe)
    batch, *_ = prepare(recipe, scored, state)
    logits = TRAINER.clone().requires_grad_()
    logp = logits.log_softmax(-1)[:, None]
    weight = token_weights(batch.mask, recipe.reduce, 1) * 4 * chance[:, None]
    objective(recipe, batch, logp, None, weight, state).backward()
    return logits.grad


PLAIN = ("penalty=none", "shaping.missing_end=none")


@pytest.mark.parametrize("name", ["reinforce", "reward_to_go"])
@pytest.mark.parametrize("surrogate", ["ScoreFunction", "ImportanceWeighted", "Clipped"])
def test_without_a_cap_the_expected_gradient_is_the_one_on_policy(name, surrogate):
    """E_sampler[w ∇log π Ψ] = E_trainer[∇log π Ψ] = ∇ Σ π(a) score(a), by enumeration."""
    recipe = recipe_of(*PLAIN, f"surrogate={surrogate}", "advantage=TotalReturn", name=name)
    logits = TRAINER.clone().requires_grad_()
    (logits.softmax(-1) * SCORE).sum().backward()
    torch.testing.assert_close(gradient(recipe, one_token_each(INF), SAMPLER.exp()), logits.grad)
    uncorrected = gradient(recipe, one_token_each(None), SAMPLER.exp())
    assert (uncorrected - logits.grad).abs().max() > 0.1


@pytest.mark.parametrize("cap", [1.0, 1.2, 2.0, 3.5])
def test_the_cap_holds_each_token_by_itself(cap):
    """E_sampler[min(w, C) ∇log π Ψ] with w = 1/4, 2/3, 3/2, 4."""
    recipe = recipe_of(*PLAIN, "advantage=TotalReturn", name="reinforce")
    expected = torch.zeros(4)
    p, q = TRAINER.exp(), SAMPLER.exp()
    for word in range(4):
        slope = torch.nn.functional.one_hot(torch.tensor(word), 4) - p
        expected += q[word] * min(float(p[word] / q[word]), cap) * SCORE[word] * slope
    torch.testing.assert_close(gradient(recipe, one_token_each(cap), q), expected)
    weight = one_token_each(cap).importance
    held = sum(ratio >= cap for ratio in (1 / 4, 2 / 3, 3 / 2, 4))
    assert share_truncated(weight, torch.ones(4, 1, dtype=torch.bool), cap) == held / 4


def test_importance_weights_apply_to_the_surrogate_alone():
    recipe = recipe_of("shaping.missing_end=none", name="ppo")
    value = torch.tensor([[0.3], [0.1], [-0.2], [0.4]])
    plain, weighed = (
        prepare(recipe, one_token_each(cap, value=value), initial_state(recipe))[0] for cap in (None, 2.0)
    )
    assert torch.equal(plain.target, weighed.target)
    torch.testing.assert_close(weighed.advantage, plain.advantage * torch.tensor([[1 / 4], [2 / 3], [1.5], [2.0]]))
    inside = recipe_of("shaping.missing_end=none", "samples=4", name="grpo")
    ref = one_token_each(None).ref_logp - 0.3
    silent = torch.zeros(4)
    groups = [one_token_each(cap, ref_logp=ref, score=silent, group=4) for cap in (None, 2.0)]
    assert torch.equal(*(gradient(inside, scored, SAMPLER.exp()) for scored in groups)), "only the KL is left"
    assert gradient(inside, groups[0], SAMPLER.exp()).abs().max() > 0


def test_the_figures_are_those_counted_by_hand():
    sampler = torch.tensor([[-1.0, -2.0, -9.0], [-0.5, -7.0, -7.0]])
    trainer = torch.tensor([[-1.1, -1.7, -1.0], [-0.5, -1.0, -2.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    told = mismatch_metrics(sampler, trainer, mask)
    assert told["sampler/mismatch"] == pytest.approx((0.1 + 0.3 + 0) / 3)
    k3 = (math.exp(-0.1) - 1 + 0.1) + (math.exp(0.3) - 1 - 0.3) + 0
    assert told["sampler/kl"] == pytest.approx(k3 / 3, rel=1e-4)
    assert told["sampler/ratio_max"] == pytest.approx(math.exp(0.3))
    weight = truncated_importance(sampler, trainer, mask, 1.2)
    torch.testing.assert_close(weight, torch.tensor([[math.exp(-0.1), 1.2, 1.0], [1.0, 1.0, 1.0]]))
    assert share_truncated(weight, mask, 1.2) == pytest.approx(1 / 3)


def test_the_mean_of_k3_is_the_divergence():
    told = [
        mismatch_metrics(SAMPLER[a, None, None], TRAINER[a, None, None], torch.ones(1, 1) > 0)["sampler/kl"]
        for a in range(4)
    ]
    mean = float((SAMPLER.exp() * torch.tensor(told)).sum())
    assert mean == pytest.approx(float((SAMPLER.exp() * (SAMPLER - TRAINER)).sum()), rel=1e-5)


# In the loop ------------------------------------------------------------------------------------------------


def run(folder, mismatch, dtype="bf16", steps=2, cap=2.0, recipe=None, **more):
    policy = policy_of(folder, dtype=dtype)
    recipe = recipe or recipe_of("update.minibatches=2", "update.epochs=1")
    world = World(policy, recipe, steps=steps, reward=low_tokens, **more)
    world.settings = replace(world.settings, mismatch=mismatch, mismatch_cap=cap)
    return world, list(world.train())


SAMPLER_FIGURES = {"sampler/mismatch", "sampler/kl", "sampler/ratio_max"}


@pytest.mark.parametrize("mismatch", ["none", "recompute", "truncated"])
def test_bfloat16_logs_the_mismatch_of_sampler_and_trainer(tiny_model, mismatch):
    recipe = recipe_of("samples=2", name="rloo")
    _, steps = run(tiny_model("llama"), mismatch, recipe=recipe)
    for step in steps:
        told = {name for name in step.metrics if name.startswith("sampler/")}
        assert told == SAMPLER_FIGURES | ({"sampler/truncated"} if mismatch == "truncated" else set())
        assert 0 < step.metrics["sampler/mismatch"] < 0.05
        assert 0 <= step.metrics["sampler/kl"] < 0.01
        assert 1 < step.metrics["sampler/ratio_max"] < 1.5


@pytest.mark.parametrize("name", ["rloo", "ppo"])
def test_float32_recomputes_nothing_and_logs_no_mismatch(name, tiny_model):
    recipe = recipe_of("samples=2", name=name)
    _, steps = run(tiny_model("llama"), None, "float32", recipe=recipe)
    assert not any(name.startswith("sampler/") for step in steps for name in step.metrics)
    assert all(step.sample.importance is None for step in steps)


@needs_compiler
def test_an_exact_policy_recomputes_nothing_in_bfloat16(tiny_model, monkeypatch):
    """Old log-probabilities are the sampler's, and the first ratio is 1 to the last bit."""
    monkeypatch.setenv("TUTELAGE_ENGINE", "cpu")
    monkeypatch.setattr(cpu_engine, "multiplies_bf16", lambda: True)
    sizes = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    folder = tiny_model("llama", **sizes, intermediate_size=96)
    recipe = recipe_of("samples=2", "update.minibatches=1", "update.epochs=1", name="grpo")
    world, steps = run(folder, None, recipe=recipe)
    assert world.policy.is_exact
    for step in steps:
        assert not any(name.startswith("sampler/") for name in step.metrics)
        assert step.metrics["ratio/max"] == 1.0


def test_a_policy_that_is_not_exact_recomputes(tiny_model, monkeypatch):
    monkeypatch.setenv("TUTELAGE_ENGINE", "plain")
    world, (step,) = run(tiny_model("llama"), None, steps=1, recipe=recipe_of("samples=2", name="rloo"))
    assert not world.policy.is_exact
    assert "sampler/mismatch" in step.metrics


@pytest.fixture
def shifted(monkeypatch):
    """A sampler that reports other log-probabilities than the trainer's: half a nat more, or less, in turn."""
    original = LocalGenerator.generate

    def generate(*given, **named):
        rollout = original(*given, **named)
        turn = torch.where(torch.arange(rollout.mask.shape[1]) % 2 == 0, 0.5, -1.0)
        return replace(rollout, logp=rollout.logp + turn * rollout.mask)

    monkeypatch.setattr(LocalGenerator, "generate", generate)


def test_the_old_log_probabilities_are_the_chosen_ones(tiny_model, shifted):
    folder = tiny_model("llama")
    recipe = recipe_of("samples=2", name="rloo")
    old = {way: run(folder, way, "float32", 1, recipe=recipe)[1][0] for way in ("recompute", "truncated")}
    sample, mask = old["truncated"].sample, old["truncated"].sample.mask
    turn = torch.where(torch.arange(mask.shape[1]) % 2 == 0, 0.5, -1.0) * mask
    assert torch.equal(old["recompute"].sample.logp, sample.logp)
    assert old["recompute"].sample.importance is None
    torch.testing.assert_close(sample.importance[mask], (-turn).exp().clamp(max=2.0)[mask], rtol=1e-3, atol=0)
    told = old["truncated"].metrics
    assert told["kl/old"] == pytest.approx(0.0, abs=1e-6), "before the only step the trainer is where it was"
    assert told["sampler/truncated"] == pytest.approx(float((turn[mask] == -1.0).float().mean()))
    assert told["sampler/mismatch"] == pytest.approx(float(turn[mask].abs().mean()), rel=1e-3)
    assert told["sampler/ratio_max"] == pytest.approx(math.e, rel=1e-3)
    with pytest.raises(TutelageError, match="policy and the sampler disagree by 1 nats"):
        run(folder, "none", "float32", 1, recipe=recipe)
    step = run(folder, "none", "bf16", 1, recipe=recipe)[1][0]
    assert step.metrics["ratio/max"] == pytest.approx(math.e, rel=0.1), "the sampler's own are the old ones"


def test_importance_weights_change_the_update_unless_the_cap_makes_them_one(tiny_model, shifted):
    folder, recipe = tiny_model("llama"), recipe_of("samples=2", "shaping.missing_end=none", name="rloo")
    learned = {}
    for way, cap in (("recompute", 2.0), ("truncated", 2.0), ("truncated", INF)):
        learned[way, cap] = run(folder, way, "float32", 1, cap, recipe=recipe)[0].everything()
    one, two, three = learned.values()
    assert any((a - b).abs().max() > 1e-5 for a, b in zip(one, two, strict=True))
    assert any((a - b).abs().max() > 1e-5 for a, b in zip(two, three, strict=True))


@pytest.mark.parametrize("mismatch", long_except(["truncated"], ["recompute", "truncated"]))
def test_bfloat16_learns(tiny_model, mismatch):
    _, steps = run(
        tiny_model("llama"),
        mismatch,
        steps=12,
        lr=2e-2,
        batch=8,
        recipe=recipe_of("samples=4", "penalty=none", "shaping.missing_end=none", name="rloo"),
    )
    scores = [step.metrics["score/mean"] for step in steps]
    assert sum(scores[-3:]) / 3 > sum(scores[:3]) / 3 + 0.05
    assert all(math.isfinite(value) for step in steps for value in step.metrics.values())
