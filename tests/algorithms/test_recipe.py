"""The template: what looks across rows happens once, and afterwards any split of the batch adds up."""

import json
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from algorithms.batches import LIMIT, greedy_for, padded, scored_for
from tutelage.algorithms.recipe import (
    Critic,
    GradientSteps,
    Linear,
    Observation,
    Penalty,
    Recipe,
    critic_loss,
    critic_only,
    live_rows,
    needs_divergence,
    needs_entropy,
    needs_greedy,
    needs_reference,
    needs_values,
    objective,
    prepare,
)
from tutelage.algorithms.recipe_state import RecipeState, after_update, initial_state, restored_state, state_metrics
from tutelage.algorithms.registry import RECIPES
from tutelage.base.errors import TutelageError
from tutelage.core.advantages import Gae, RewardToGo, TotalReturn
from tutelage.core.baselines import MovingAverage
from tutelage.core.batch import Batch, ScoredRollout
from tutelage.core.groups import Group
from tutelage.core.kl import Adaptive, Doubling
from tutelage.core.reduce import token_weights
from tutelage.core.shaping import ScoreShaping
from tutelage.core.surrogates import Clipped, KlPenalised, ScoreFunction


def prepared(recipe: Recipe, scored: ScoredRollout, state: RecipeState | None = None) -> Batch:
    state = state or initial_state(recipe)
    greedy = greedy_for(scored) if needs_greedy(recipe) else None
    batch, _, _ = prepare(recipe, scored, state, greedy=greedy, max_length=LIMIT)
    return batch


def moved(batch: Batch, seed: int = 5) -> tuple[Tensor, Tensor]:
    """Log-probabilities of a policy that has moved a little, and entropies."""
    noise = torch.randn(batch.logp.shape, generator=torch.Generator().manual_seed(seed))
    return torch.where(batch.mask, batch.logp + 0.3 * noise, 0.0), noise.abs()


@pytest.mark.parametrize("name", RECIPES)
def test_micro_batches_add_up_exactly(name: str) -> None:
    recipe = RECIPES[name]
    batch, state = prepared(recipe, scored_for(recipe)), initial_state(recipe)
    logp, entropy = moved(batch)
    weight = token_weights(batch.mask, recipe.reduce, LIMIT)
    whole = logp.clone().requires_grad_()
    total = objective(recipe, batch, whole, entropy, weight, state, divergence=whole**2)
    (slope,) = torch.autograd.grad(total, whole)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
    for sizes in ([1] * len(batch), [3, len(batch) - 3]):
        value, value_loss, gradient = 0.0, 0.0, torch.zeros_like(slope)
        for index in order.split(sizes):
            part = logp[index].clone().requires_grad_()
            given = batch.rows(index), part, entropy[index], weight[index], state
            piece = objective(recipe, *given, divergence=part**2)
            gradient[index] = torch.autograd.grad(piece, part)[0]
            value += float(piece.detach())
            if recipe.critic:
                value_loss += float(critic_loss(recipe, batch.rows(index), entropy[index], weight[index]))
        assert value == pytest.approx(float(total.detach()), abs=1e-12)
        assert torch.allclose(gradient, slope, atol=1e-14)
        if recipe.critic:
            assert value_loss == pytest.approx(float(critic_loss(recipe, batch, entropy, weight)), abs=1e-12)


@pytest.mark.parametrize("name", RECIPES)
def test_padding_changes_nothing(name: str) -> None:
    recipe = RECIPES[name]
    scored = scored_for(recipe)
    plain, wide = prepared(recipe, scored), prepared(recipe, padded(scored, 3))
    assert torch.allclose(wide.advantage[:, :LIMIT], plain.advantage, atol=1e-14)
    assert not wide.advantage[:, LIMIT:].any()
    if plain.target is not None:
        assert torch.allclose(wide.target[:, :LIMIT], plain.target, atol=1e-14)
    logp, entropy = moved(plain)
    wider = torch.nn.functional.pad(logp, (0, 3)), torch.nn.functional.pad(entropy, (0, 3), value=9.0)
    state, values = initial_state(recipe), []
    for batch, (x, h) in ((plain, (logp, entropy)), (wide, wider)):
        weight = token_weights(batch.mask, recipe.reduce, LIMIT)
        values.append(float(objective(recipe, batch, x, h, weight, state, divergence=x**2 + 1)))
    assert values[0] == pytest.approx(values[1], abs=1e-12)


@pytest.mark.parametrize("name", RECIPES)
def test_the_order_of_prompts_and_of_rows_within_them_changes_nothing(name: str) -> None:
    recipe = RECIPES[name]
    scored = scored_for(recipe)
    generator = torch.Generator().manual_seed(3)
    within = torch.stack([torch.randperm(scored.group, generator=generator) for _ in range(4)])
    order = (torch.tensor([2, 0, 3, 1])[:, None] * scored.group + within).reshape(-1)
    if needs_greedy(recipe):  # its stand-in is made from the first row of a group
        order = (torch.tensor([2, 0, 3, 1])[:, None] * scored.group + torch.arange(scored.group)).reshape(-1)
    plain, shuffled = prepared(recipe, scored), prepared(recipe, scored.rows(order))
    assert torch.allclose(shuffled.advantage, plain.advantage[order], atol=1e-14)


@pytest.mark.parametrize("name", RECIPES)
def test_at_the_sampler_the_gradient_is_that_of_the_score_function(name: str) -> None:
    """Whatever the surrogate, the first step of a rollout follows ∇ log π · Ψ (and the penalty, where in the loss)."""
    recipe = RECIPES[name]
    batch, state = prepared(recipe, scored_for(recipe)), initial_state(recipe)
    weight = token_weights(batch.mask, recipe.reduce, LIMIT)
    plain = replace(recipe, surrogate=ScoreFunction(), update=GradientSteps())
    if getattr(recipe.surrogate, "length_normalised", True) is False:
        plain, weight = (replace(plain, reduce="sequence_sum"), token_weights(batch.mask, "sequence_mean", LIMIT))
    found = []
    for which, w in ((recipe, weight), (plain, token_weights(batch.mask, plain.reduce, LIMIT))):
        logp = batch.logp.clone().requires_grad_()
        value = objective(which, batch, logp, 0 * logp.detach(), w, state, divergence=logp**2)
        found.append(torch.autograd.grad(value, logp)[0])
    assert torch.allclose(found[0], found[1], atol=1e-14)


def test_ppo_with_one_step_and_no_clip_is_a2c_with_gae() -> None:
    ppo, a2c = RECIPES["ppo"], RECIPES["a2c"]
    one = replace(ppo, surrogate=Clipped(float("inf"), float("inf")), update=GradientSteps())
    same = replace(a2c, advantage=ppo.advantage, entropy=0.0)
    scored = scored_for(ppo)
    slopes = []
    for recipe in (one, same):
        batch = prepared(recipe, scored)
        logp = batch.logp.clone().requires_grad_()
        weight = token_weights(batch.mask, recipe.reduce, LIMIT)
        gain = objective(recipe, batch, logp, None, weight, initial_state(recipe))
        slopes.append(torch.autograd.grad(gain, logp)[0])
    assert torch.allclose(slopes[0], slopes[1], atol=1e-15)


def test_grpo_without_its_spread_is_a_share_of_rloo() -> None:
    grpo = replace(RECIPES["grpo"], advantage=Group(), penalty=None)
    rloo = replace(RECIPES["rloo"], samples=8, penalty=None)
    scored = scored_for(grpo)
    assert torch.allclose(prepared(grpo, scored).advantage, prepared(rloo, scored).advantage * 7 / 8)


def test_the_score_is_shaped_and_the_penalty_taken_off_every_token() -> None:
    recipe = Recipe(name="mine", shaping=ScoreShaping(clip=0.5), advantage=RewardToGo(), penalty=Penalty(coef=0.2))
    scored = scored_for(recipe)
    batch = prepared(recipe, scored)
    kl = scored.logp - scored.ref_logp
    for b in range(len(scored)):
        length = int(scored.mask[b].sum())
        score = float(scored.score[b].clamp(-0.5, 0.5)) if length < LIMIT else -1.0
        for t in range(length):
            expected = score - 0.2 * float(kl[b, t:length].sum())
            assert float(batch.advantage[b, t]) == pytest.approx(expected)


def test_a_penalty_in_the_loss_stays_out_of_the_reward_and_follows_its_coefficient() -> None:
    recipe = replace(RECIPES["grpo"], penalty=Penalty(kind="k2", coef=0.3, where="loss"))
    scored = scored_for(recipe)
    batch = prepared(recipe, scored)
    assert torch.equal(batch.advantage, prepared(replace(recipe, penalty=None), scored).advantage)
    logp, _ = moved(batch)
    weight = token_weights(batch.mask, recipe.reduce, LIMIT)
    state = initial_state(recipe)
    values = [
        float(objective(recipe, batch, logp, None, weight, replace(state, penalty={**state.penalty, "coef": c})))
        for c in (0.0, 0.3, 0.6)
    ]
    paid = float((weight * (logp - batch.ref_logp) ** 2 / 2).sum())
    assert values[0] - values[1] == pytest.approx(0.3 * paid)
    assert values[0] - values[2] == pytest.approx(0.6 * paid)


def test_an_exact_penalty_is_asked_for_and_used() -> None:
    recipe = replace(RECIPES["grpo"], penalty=Penalty(kind="exact", coef=0.1, where="loss"))
    assert needs_divergence(recipe) == 1.0
    assert needs_divergence(RECIPES["grpo"]) is None
    batch, state = prepared(recipe, scored_for(recipe)), initial_state(recipe)
    weight, kl = token_weights(batch.mask, recipe.reduce), torch.full(batch.mask.shape, 2.0)
    with pytest.raises(ValueError, match="divergence of every token"):
        objective(recipe, batch, batch.logp, None, weight, state)
    free = objective(replace(recipe, penalty=None), batch, batch.logp, None, weight, state)
    paid = objective(recipe, batch, batch.logp, None, weight, state, divergence=kl)
    assert float(free - paid) == pytest.approx(0.2)


def test_controllers_are_driven_by_the_divergence_that_is_theirs() -> None:
    recipe = replace(
        RECIPES["ppo_penalty"],
        penalty=Penalty(coef=0.15, controller=Adaptive(target=6.0, horizon=1000)),
        surrogate=KlPenalised(coef=1.0, controller=Doubling(target=0.01)),
    )
    state = initial_state(recipe)
    assert (state.penalty_coef, state.surrogate_coef, state.step) == (0.15, 1.0, 0)
    after = after_update(recipe, state, Observation(kl_reference=6.6, kl_old=0.1, rows=100))
    assert after.penalty_coef == pytest.approx(0.15 * 1.01)
    calm = after_update(recipe, state, Observation(kl_reference=6.6, kl_old=0.001, rows=100))
    assert (calm.penalty_coef, calm.surrogate_coef) == (after.penalty_coef, 0.5)
    assert (after.surrogate_coef, after.step) == (2.0, 1)
    batch = prepared(recipe, scored_for(recipe), after)
    cheap = prepared(recipe, scored_for(recipe), state)
    assert not torch.equal(batch.advantage, cheap.advantage)  # the reward pays the coefficient of now
    logp, _ = moved(batch)
    weight = token_weights(batch.mask, recipe.reduce)
    values = [float(objective(recipe, batch, logp, None, weight, s)) for s in (state, after)]
    assert values[1] < values[0]


def test_the_entropy_bonus_follows_its_schedule() -> None:
    recipe = replace(RECIPES["reinforce"], entropy=Linear(start=0.4, end=0.0, steps=4))
    assert needs_entropy(recipe)
    assert not needs_entropy(RECIPES["reinforce"])
    batch, state = prepared(recipe, scored_for(recipe)), initial_state(recipe)
    weight = token_weights(batch.mask, recipe.reduce)
    with pytest.raises(ValueError, match="entropy bonus"):
        objective(recipe, batch, batch.logp, None, weight, state)
    bonus, entropy = [], torch.ones_like(batch.logp)
    for step in (0, 1, 4, 9):
        at = replace(state, step=step)
        given, without = (objective(recipe, batch, batch.logp, h, weight, at) for h in (entropy, 0 * entropy))
        bonus.append(float(given - without) / float(weight.sum()))
    assert bonus == pytest.approx([0.4, 0.3, 0.0, 0.0])


def test_a_moving_average_remembers_earlier_batches_and_not_this_one() -> None:
    recipe = Recipe(
        name="mine",
        advantage=TotalReturn(MovingAverage(decay=0.5)),
        penalty=None,
        shaping=ScoreShaping(missing_end=None),
    )
    scored, state, means = scored_for(recipe), initial_state(recipe), []
    for k in (1.0, 2.0, 3.0):
        batch, state, _ = prepare(recipe, replace(scored, score=torch.full_like(scored.score, k)), state)
        means.append(k - float(batch.advantage[0, 0]))
    assert means == pytest.approx([0.0, 1.0, (0.25 * 1.0 + 0.5 * 2.0) / 0.75])


def test_running_statistics_are_those_of_all_scores_together() -> None:
    recipe = Recipe(
        name="mine", advantage=TotalReturn(), penalty=None, shaping=ScoreShaping(normalise="running", missing_end=None)
    )
    state, seen = initial_state(recipe), []
    for seed in range(3):
        scored = scored_for(recipe, seed)
        scored = replace(scored, score=scored.score * (seed + 1) + 100.0)
        seen.append(scored.score)
        batch, state, _ = prepare(recipe, scored, state)
    together = torch.cat(seen)
    assert state.shaping["count"] == len(together)
    assert state.shaping["mean"] == pytest.approx(float(together.mean()))
    assert state.shaping["squares"] == pytest.approx(float(together.var(correction=0)) * len(together))
    expected = (seen[-1] - together.mean()) / together.std(correction=0)
    assert torch.allclose(batch.advantage[:, 0], expected)
    once = replace(recipe, shaping=ScoreShaping(normalise="batch", missing_end=None))
    plain = prepared(once, scored_for(recipe)).advantage[:, 0]
    assert float(plain.mean()) == pytest.approx(0.0, abs=1e-12)
    assert float(plain.std(correction=0)) == pytest.approx(1.0, abs=1e-6)


def test_dead_groups_are_counted_and_dropped_on_request() -> None:
    recipe = replace(RECIPES["grpo"], shaping=ScoreShaping(missing_end=None))
    scored = scored_for(recipe)
    score = scored.score.clone()
    score[8:16] = 0.3
    scored = replace(scored, score=score)
    state = initial_state(recipe)
    batch, _, metrics = prepare(recipe, scored, state)
    assert float(metrics["groups/dead"]) == 0.25
    assert len(batch) == 32
    assert batch.advantage[8:16].abs().max() < 1e-9
    kept, _, metrics = prepare(replace(recipe, dynamic_sampling=1), scored, state)
    assert float(metrics["groups/dead"]) == 0.25
    assert [set(kept.ids), len(kept)] == [{"0", "2", "3"}, 24]
    assert torch.equal(kept.advantage, torch.cat((batch.advantage[:8], batch.advantage[16:])))
    alive = torch.arange(32).reshape(4, 8)[[0, 2, 3]].reshape(-1)
    assert torch.equal(live_rows(recipe, scored, state).nonzero().squeeze(1), alive)
    dead = replace(scored, score=torch.ones(32))
    assert len(prepare(replace(recipe, dynamic_sampling=1), dead, state)[0]) == 32  # nothing else to train on


def test_a_first_batch_with_running_statistics_has_live_rows_inside_the_clip() -> None:
    """The batch itself is among the scores that it is normalised by: without it, a first batch would be all clip."""
    shaping = ScoreShaping(normalise="running", clip=3.0, missing_end=None)
    recipe = replace(RECIPES["grpo"], shaping=shaping, dynamic_sampling=1)
    scored = scored_for(recipe)
    scored = replace(scored, score=scored.score + 100.0)
    state = initial_state(recipe)
    assert live_rows(recipe, scored, state).all()
    assert state == initial_state(recipe), "to ask which rows are live counts no score"
    _, _, metrics = prepare(recipe, scored, state)
    assert float(metrics["groups/dead"]) == 0.0


@pytest.mark.parametrize("normalise", ["batch", "running"])
def test_greedy_scores_are_on_the_scale_of_the_scores(normalise: str) -> None:
    """A greedy answer that scores as the sampled one did leaves no advantage, whatever the normalisation."""
    recipe = replace(RECIPES["remax"], penalty=None, shaping=ScoreShaping(normalise=normalise, missing_end=None))
    scored = replace(scored_for(recipe), score=torch.linspace(-3.0, 8.0, 8))
    greedy = replace(greedy_for(scored), score=scored.score[::2])
    batch, state, _ = prepare(recipe, scored, initial_state(recipe), greedy=greedy)
    assert not batch.advantage[::2].any()
    assert batch.advantage[1::2, 0].min() > 0
    assert state.shaping["count"] == len(scored)


def test_greedy_scores_stay_with_their_prompts() -> None:
    remax = replace(
        RECIPES["remax"], samples=2, dynamic_sampling=1, penalty=None, shaping=ScoreShaping(missing_end=None)
    )
    scored = scored_for(remax)
    score = scored.score.clone()
    score[2:4] = 0.3  # a prompt to be dropped
    scored = replace(scored, score=score)
    greedy = replace(greedy_for(scored), score=torch.tensor([10.0, 20.0, 30.0, 40.0]))
    batch, _, _ = prepare(remax, scored, initial_state(remax), greedy=greedy)
    expected = score[[0, 1, 4, 5, 6, 7]] - torch.tensor([10.0, 10.0, 30.0, 30.0, 40.0, 40.0])
    assert torch.allclose(batch.advantage[:, 0], expected)


def test_metrics_tell_the_reward_from_what_is_trained_on() -> None:
    recipe = replace(RECIPES["ppo"], shaping=ScoreShaping(missing_end=-5.0))
    scored = scored_for(recipe)
    _, _, metrics = prepare(recipe, scored, initial_state(recipe))
    assert float(metrics["score/mean"]) == pytest.approx(float(scored.score.mean()))
    shaped = torch.where(scored.terminated, scored.score, -5.0)
    assert float(metrics["score/shaped"]) == pytest.approx(float(shaped.mean()))
    kl = torch.where(scored.mask, scored.logp - scored.ref_logp, 0.0).sum(1)
    assert float(metrics["kl/reference"]) == pytest.approx(float(kl.mean()))
    assert float(metrics["length/mean"]) == pytest.approx(float(scored.mask.sum(1).double().mean()))
    assert float(metrics["ended"]) == pytest.approx(float(scored.terminated.double().mean()))
    assert float(metrics["advantage/std"]) == pytest.approx(1.0, abs=1e-6)
    assert metrics["penalty/coef"] == 0.05
    assert "groups/dead" in metrics


def test_an_empty_response_and_scores_that_do_not_vary_give_no_nan() -> None:
    for name, recipe in RECIPES.items():
        scored = scored_for(recipe)
        mask = scored.mask.clone()
        mask[0] = False
        scored = replace(
            scored, mask=mask, score=torch.ones_like(scored.score), terminated=torch.ones(len(mask)).bool()
        )
        batch = prepared(recipe, scored)
        assert batch.advantage.isfinite().all(), name
        assert not batch.advantage[0].any(), name
        weight = token_weights(batch.mask, recipe.reduce, LIMIT)
        zeros, state = torch.zeros_like(batch.logp), initial_state(recipe)
        gain = objective(recipe, batch, batch.logp, zeros, weight, state, divergence=zeros)
        assert gain.isfinite(), name


def test_what_each_recipe_asks_of_the_loop() -> None:
    critics = {"value_baseline", "q_actor_critic", "td_actor_critic", "vpg", "a2c", "a2c_n_step"}
    critics |= {"natural_gradient", "trpo", "ppo", "ppo_kl_stop", "ppo_penalty", "vc_ppo", "vapo", "turn_ppo"}
    assert {name for name, r in RECIPES.items() if needs_values(r)} == critics
    assert {name for name, r in RECIPES.items() if needs_greedy(r)} == {"remax"}
    assert {name for name, r in RECIPES.items() if needs_entropy(r)} == {"a2c", "a2c_n_step"}
    free = {name for name, r in RECIPES.items() if not needs_reference(r)}
    assert free == {"dr_grpo", "dapo", "gspo", "cispo"}
    state = initial_state(RECIPES["vc_ppo"])
    assert critic_only(RECIPES["vc_ppo"], state)
    assert not critic_only(RECIPES["vc_ppo"], replace(state, step=10))
    assert not critic_only(RECIPES["ppo"], state)


def test_the_state_survives_a_checkpoint_and_refuses_another_versions() -> None:
    recipe = replace(RECIPES["moving_baseline"], shaping=ScoreShaping(normalise="running"))
    _, state, _ = prepare(recipe, scored_for(recipe), initial_state(recipe))
    state = after_update(recipe, state, Observation(kl_reference=1 / 3, kl_old=0.1, rows=7))
    saved = json.loads(json.dumps(state.to_dict()))
    assert restored_state(recipe, saved) == state
    assert state != initial_state(recipe)
    with pytest.raises(TutelageError, match="momentum"):
        restored_state(recipe, saved | {"momentum": 1.0})
    without_state = replace(recipe, name="mine", advantage=TotalReturn())
    with_more = replace(recipe, name="mine", surrogate=KlPenalised())
    with_less = replace(recipe, name="mine", penalty=None)
    for other, slot in ((without_state, "advantage"), (with_more, "surrogate"), (with_less, "penalty")):
        with pytest.raises(TutelageError, match=f"recipe mine: .*state of {slot} is"):
            restored_state(other, saved)


@pytest.mark.parametrize("name", RECIPES)
def test_the_first_state_of_every_recipe_survives_a_checkpoint(name: str) -> None:
    state = initial_state(RECIPES[name])
    assert restored_state(RECIPES[name], json.loads(json.dumps(state.to_dict()))) == state


def test_a_function_of_ones_own_fits_a_slot() -> None:
    def twice(reward, mask, value, group, context):
        return 2 * Gae(whiten=False)(reward, mask, torch.zeros_like(reward), group)[0], None

    def square(logp, old_logp, advantage, mask):
        return -((logp - advantage) ** 2)

    recipe = Recipe(name="mine", advantage=twice, surrogate=square, penalty=None)
    batch, state = prepared(recipe, scored_for(recipe)), initial_state(recipe)
    weight = token_weights(batch.mask, "token_mean")
    found = objective(recipe, batch, batch.logp, None, weight, state)
    assert float(found) == pytest.approx(-float(((batch.logp - batch.advantage)[batch.mask] ** 2).mean()))


def test_critic_loss_is_what_the_critic_can_still_learn() -> None:
    recipe = replace(RECIPES["ppo"], critic=Critic(clip=None))
    batch = prepared(recipe, scored_for(recipe))
    weight = token_weights(batch.mask, recipe.reduce)
    assert float(critic_loss(recipe, batch, batch.target, weight)) == 0.0
    off_by_one = critic_loss(recipe, batch, batch.target + 1.0, weight)
    assert float(off_by_one) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no target for a critic"):
        critic_loss(RECIPES["grpo"], batch, batch.logp, weight)


def test_rewards_of_turns_join_the_score_and_keep_a_group_alive() -> None:
    """Equal scores, unequal rewards of the first turn: the return of an episode is the sum of both."""
    recipe = replace(RECIPES["turn_rloo"], shaping=ScoreShaping(missing_end=None))
    scored = scored_for(recipe)
    width = scored.mask.shape[1]
    turn = torch.arange(width).expand_as(scored.response)
    paid = torch.zeros_like(scored.logp)
    paid[0, 0] = 2.0
    equal = replace(scored, score=torch.ones_like(scored.score), ref_logp=scored.logp, turn=turn, turn_reward=paid)
    batch, _, metrics = prepare(recipe, equal, initial_state(recipe))
    assert float(batch.advantage[0, 0]) == pytest.approx(2.0)
    assert batch.advantage[1 : recipe.samples, 0].tolist() == pytest.approx([-2 / 3] * 3)
    assert not batch.advantage[:, 1:].any()
    assert metrics["groups/dead"] == pytest.approx(1 - recipe.samples / len(scored))
    assert live_rows(recipe, equal, initial_state(recipe)).sum() == recipe.samples
    single = replace(equal, turn=None)
    assert prepare(recipe, single, initial_state(recipe))[2]["groups/dead"] == metrics["groups/dead"]
    assert live_rows(recipe, single, initial_state(recipe)).sum() == recipe.samples


@dataclass(frozen=True)
class Counting:
    """An advantage with memory that logs it: the number of rollouts."""

    def init(self) -> dict[str, float]:
        return {"rollouts": 0}

    def __call__(self, reward, mask, value, group, context, state):
        psi, target = TotalReturn()(reward, mask, value, group, context)
        return (psi, target), {"rollouts": state["rollouts"] + 1}

    def metrics(self, state: dict[str, float]) -> dict[str, float]:
        return {"rollouts": state["rollouts"]}


def test_a_piece_logs_its_own_state() -> None:
    recipe = replace(RECIPES["reinforce"], advantage=Counting())
    assert state_metrics(recipe, initial_state(recipe)) == {"advantage/rollouts": 0.0}
    assert state_metrics(recipe, RecipeState(advantage={"rollouts": 3})) == {"advantage/rollouts": 3.0}


def test_a_piece_that_logs_no_number_is_refused() -> None:
    recipe = replace(RECIPES["reinforce"], advantage=Counting())
    with pytest.raises(TutelageError, match=r"Counting\.metrics gives 'three' for 'rollouts'"):
        state_metrics(recipe, RecipeState(advantage={"rollouts": "three"}))


def test_the_pieces_of_the_package_log_what_the_table_of_metrics_has() -> None:
    """None logs a state by itself, so every metric has its entry."""
    for recipe in RECIPES.values():
        assert state_metrics(recipe, initial_state(recipe)) == {}


def test_a_hole_between_turns_is_refused() -> None:
    recipe = RECIPES["turn_rloo"]
    scored = scored_for(recipe)
    mask = torch.tensor([True, True, False, False, True, True]).expand_as(scored.mask)
    with pytest.raises(TutelageError, match="turns"):
        prepare(recipe, replace(scored, mask=mask, turn=mask.long().cumsum(1) // 3), initial_state(recipe))


def test_groups_are_told_apart_by_the_rewards_of_turns_not_by_columns() -> None:
    """Turns of 2 + 2 and of 3 + 3 tokens with equal rewards are alike; turns of 2 + 2 and of 4 tokens are not."""
    recipe = replace(RECIPES["mt_grpo"], samples=2, shaping=ScoreShaping(missing_end=None))
    scored = scored_for(recipe, prompts=1)

    def live(*episodes: tuple[int, ...], paid: float) -> bool:
        mask, turn, reward = (torch.zeros(2, 6) for _ in range(3))
        for row, lengths in enumerate(episodes):
            mask[row, : sum(lengths)] = 1
            turn[row, : sum(lengths)] = torch.repeat_interleave(
                torch.arange(len(lengths)), torch.tensor(lengths)
            ).float()
            reward[row, lengths[0] - 1] = paid
        rows = replace(scored, mask=mask.bool(), turn=turn.long(), turn_reward=reward, score=torch.ones(2))
        return bool(live_rows(recipe, rows, initial_state(recipe)).all())

    assert not live((2, 2), (3, 3), paid=1.0)
    assert live((2, 2), (4,), paid=0.0)
