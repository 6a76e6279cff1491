"""Memory of a rank: published figures, and laws of sharding."""

import math
from dataclasses import replace

import pytest

from tutelage.engines.plans.rank_memory import Memory, PlanSetting, memory, pass_tokens, recorded_tokens, saving
from tutelage.engines.plans.workload import BatchShape, SamplingLoad

from .sizes import SMALL, cluster, on_policy

MODEL_STATES = ("weights", "gradients", "moments")


def states(found: Memory) -> float:
    return sum(getattr(found, part) for part in MODEL_STATES)


def test_weights_gradients_and_moments_are_those_of_the_zero_paper():
    """Rajbhandari et al. 2020 (arXiv 1910.02054), figure 1: 7.5 G weights take 120 GB, 1.9 GB over 64 ranks."""
    work = on_policy(model=replace(SMALL, parameters=7_500_000_000))
    assert states(memory(work, cluster(64), PlanSetting("none", tokens=256))) == pytest.approx(120e9)
    assert states(memory(work, cluster(64), PlanSetting("full", tokens=256))) == pytest.approx(1.875e9)


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_sharding_over_n_ranks_divides_by_n(ranks):
    work = on_policy(critic=SMALL, rewards=(SMALL,))
    one, many = (memory(work, cluster(n, per_node=64), PlanSetting("full", tokens=256)) for n in (1, ranks))
    for part in (*MODEL_STATES, "reference", "critic", "rewards"):
        assert getattr(many, part) == pytest.approx(getattr(one, part) / ranks)


def test_hybrid_shards_within_a_node():
    of_node, hybrid = (
        memory(on_policy(), cluster(count, per_node=4), PlanSetting(kind, tokens=256))
        for count, kind in ((4, "full"), (16, "hybrid"))
    )
    assert states(of_node) == states(hybrid)


def test_more_ranks_tokens_and_lengths_are_monotone():
    def peak(count: int = 1, tokens: int = 256, prompt: int = 100) -> float:
        work = on_policy(batch=BatchShape(32, 4, prompt, 50))
        return memory(work, cluster(count), PlanSetting("full" if count > 1 else "none", tokens=tokens)).updating

    assert peak(8) < peak(4) < peak(2)
    assert peak(tokens=256) < peak(tokens=512) < peak(tokens=2048)
    assert peak(tokens=1 << 20, prompt=50) < peak(tokens=1 << 20, prompt=400)


def test_an_adapter_needs_no_copy_for_the_reference_and_fewer_moments():
    whole, adapter = (memory(on_policy(lora=rank), cluster(), PlanSetting(tokens=256)) for rank in (0, 8))
    assert whole.reference == 4 * SMALL.parameters
    assert adapter.reference == 0
    assert adapter.moments == 8 * 8 * SMALL.adapter
    assert adapter.weights == whole.weights


def test_an_engine_that_casts_one_layer_at_a_time_holds_no_copy_of_all():
    whole, each = (
        memory(on_policy(half=True, casts_layers=kind), cluster(), PlanSetting(tokens=256)).copies
        for kind in (False, True)
    )
    assert whole == 2 * SMALL.parameters
    assert each == 2 * SMALL.head, "larger than a layer"
    assert memory(on_policy(casts_layers=True), cluster(), PlanSetting(tokens=256)).copies == 0


def test_parts_that_are_not_there_take_nothing():
    plain = memory(on_policy(sampling=None, has_reference=False), cluster(), PlanSetting(tokens=256))
    assert plain.rows == 0
    assert plain.kv_cache == plain.decoding == plain.critic == plain.rewards == plain.reference == 0
    served = memory(on_policy(), cluster(), PlanSetting(tokens=256), serves=False)
    assert served.kv_cache == 0
    inference = memory(on_policy(trains=False, half=True), cluster(), PlanSetting(tokens=256))
    assert inference.weights == 2 * SMALL.parameters
    assert inference.gradients == inference.moments == 0


def test_keys_and_values_of_a_shared_prompt_are_stored_once():
    shared, apart = (
        memory(on_policy(batch=BatchShape(2, 8, 100, 50, kind)), cluster(), PlanSetting(tokens=256)).kv_cache
        for kind in (True, False)
    )
    assert shared == 4 * SMALL.key_values * (2 * 100 + 16 * 50)
    assert apart == 4 * SMALL.key_values * 16 * 150


def test_a_sharded_model_is_gathered_to_sample():
    found = memory(on_policy(half=True), cluster(4), PlanSetting("full", tokens=256))
    assert found.decoding == 4 * SMALL.parameters
    assert memory(on_policy(), cluster(4), PlanSetting("full", tokens=256), serves=False).decoding == 0


def test_rank_0_holds_the_weights_while_it_saves():
    assert saving(on_policy()) == 4 * SMALL.parameters
    assert saving(on_policy(critic=SMALL)) == 8 * SMALL.parameters
    assert saving(on_policy(lora=8)) == 4 * SMALL.parameters


def test_passes_hold_whole_groups():
    batch = BatchShape(8, 4, 100, 50)
    assert pass_tokens(batch, 1024, 1) == 900  # three groups of 300
    assert pass_tokens(batch, 200, 1) == 200
    assert pass_tokens(batch, 1 << 20, 1) == batch.tokens
    assert pass_tokens(batch, 1 << 20, 4) == batch.tokens / 4


def test_activations_of_sampling_are_kept_of_the_first_minibatch():
    work = on_policy(keeps=True, batch=BatchShape(1, 2, 10, 8), sampling=SamplingLoad(8))
    kept = memory(work, cluster(), PlanSetting(tokens=256))
    assert kept.activations == SMALL.recorded(half=False) * work.batch.tokens
    halved = memory(replace(work, half=True), cluster(), PlanSetting(tokens=256))
    assert 0.5 < halved.activations / kept.activations < 0.7, "h and y stay in float32"
    assert memory(replace(work, lora=8), cluster(), PlanSetting(tokens=256)).activations == kept.activations
    for changes in ({"updates": 4}, {"keeps": False}, {"epochs": 2.0}):
        assert recorded_tokens(replace(work, **changes), work.batch) == 0, (
            "no whole prompt, or not kept, or several epochs"
        )
    odd = replace(work, batch=BatchShape(5, 2, 10, 8), updates=2)
    assert recorded_tokens(odd, odd.batch) == pytest.approx(3 / 5 * odd.batch.tokens)
    assert recorded_tokens(odd, odd.batch.share(2)) == 0, "each rank has another share of a minibatch"
    assert recorded_tokens(replace(odd, updates=1), odd.batch.share(2)) == odd.batch.share(2).tokens
    for tokens in (64, 256):  # of a pass: beside the others of the update
        found = memory(odd, cluster(), PlanSetting(tokens=tokens)).activations
        other = SMALL.kept(half=False) * pass_tokens(odd.batch, tokens, 2)
        assert found == max(other, SMALL.recorded(half=False) * recorded_tokens(odd, odd.batch))


def test_the_gpu_engine_holds_frozen_weights_in_bf16_and_casts_one_layer_at_a_time():
    work = on_policy(half=True, fused=True, casts_layers=True)
    whole, adapter = (memory(replace(work, lora=rank), cluster(), PlanSetting(tokens=256)) for rank in (0, 8))
    assert (whole.weights, adapter.weights) == (4 * SMALL.parameters, 2 * SMALL.parameters)
    assert (whole.reference, adapter.reference) == (2 * SMALL.parameters, 0)
    assert (whole.copies, adapter.copies) == (2 * SMALL.head, 0)
    assert (whole.decoding, adapter.decoding) == (2 * SMALL.parameters, 0), "a copy of trained weights"
    exact = memory(replace(work, half=False), cluster(), PlanSetting(tokens=256))
    assert (exact.weights, exact.copies, exact.decoding) == (4 * SMALL.parameters, 0, 0)


def test_the_head_of_the_gpu_engine_is_bounded_for_any_number_of_tokens():
    wide = replace(SMALL, vocabulary=200_000)
    work = on_policy(model=wide, half=True, fused=True, batch=BatchShape(64, 1, 10, 4000))
    found = [memory(work, cluster(), PlanSetting(tokens=tokens)).logits for tokens in (256, 8192, 65_536)]
    assert found[0] < found[1] == found[2] == 6 * 2**27


@pytest.mark.parametrize(("prompts", "memory_of_device", "rows"), [(4, 8e9, 16), (100, 8e9, 256), (100, 3e8, 64)])
def test_slots_hold_all_rows_or_what_memory_allows(prompts, memory_of_device, rows):
    work = on_policy(half=True, fused=True, batch=BatchShape(prompts, 4, 100, 50), sampling=SamplingLoad(500))
    found = memory(work, cluster(memory=memory_of_device, runtime=0.0), PlanSetting(tokens=256))
    assert found.rows == rows
    table = 2 ** math.ceil(math.log2(max(1024, 100 * prompts)))
    assert found.kv_cache == 2 * SMALL.key_values * (table + rows * 500)


def test_a_sharded_model_holds_what_plain_holds():
    plain, own = (
        memory(on_policy(half=True, fused=kind, casts_layers=kind), cluster(4), PlanSetting("full", tokens=256))
        for kind in (False, True)
    )
    assert plain == own
