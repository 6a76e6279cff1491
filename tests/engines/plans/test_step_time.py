"""Operations, bytes and seconds by phase: closed forms and laws."""

from dataclasses import replace

import pytest

from tutelage.engines.plans.rank_memory import PlanSetting, memory
from tutelage.engines.plans.step_time import CACHE_SHARE, DRAW, GRAPH_OVERHEAD, StepPhase, phases
from tutelage.engines.plans.workload import BatchShape, SamplingLoad, Workload

from .sizes import SMALL, cluster, on_policy


def found(work: Workload, setting: PlanSetting | None = None, **changes) -> dict[str, StepPhase]:
    """The phases of a step by name."""
    setting, where = setting or PlanSetting(tokens=1024), cluster(**changes)
    return {phase.name: phase for phase in phases(work, where, setting, memory(work, where, setting))}


def test_the_update_is_three_forward_passes_and_two_for_adapters():
    work = on_policy(sampling=None, reference=0.0)
    forward = SMALL.forward(work.batch.tokens, work.batch.pairs, work.batch.scored)
    assert found(work)["update"].operations == pytest.approx(3 * forward)
    adapters = 6 * 4 * SMALL.adapter * work.batch.tokens
    assert found(replace(work, lora=4))["update"].operations == pytest.approx(2 * forward + adapters)
    again = found(work, PlanSetting(checkpointing=True, tokens=1024))["update"].operations
    assert again == pytest.approx(3 * forward + SMALL.forward(work.batch.tokens, work.batch.pairs, 0))
    assert found(replace(work, epochs=4.0, updates=16))["update"].operations == pytest.approx(12 * forward)


def test_a_large_vocabulary_computes_its_head_once_more():
    work = on_policy(sampling=None, reference=0.0, batch=BatchShape(8, 1, 10, 500))
    wide = replace(work, model=replace(SMALL, vocabulary=200_000))
    head = 2 * SMALL.head * work.batch.scored
    setting = PlanSetting(tokens=4096)
    more = found(wide, setting)["update"].operations - found(work, setting)["update"].operations
    assert more == pytest.approx(head)


def test_scoring_adds_up_over_models():
    batch = on_policy().batch
    whole = SMALL.forward(batch.tokens, batch.pairs, batch.scored)
    scalar = SMALL.forward(batch.tokens, batch.pairs, 0)
    work = on_policy(scorings=1.0, critic=SMALL, rewards=(SMALL, SMALL))
    assert found(work)["scoring"].operations == pytest.approx(2 * whole + 3 * scalar)
    assert "scoring" not in found(on_policy(reference=0.0))


def test_decoding_reads_the_weights_for_every_token():
    work = on_policy(batch=BatchShape(1, 1, 1e-9, 50))
    phase = found(work)["decode"]
    logits = 80.0 * SMALL.vocabulary
    cached = 4 * SMALL.key_values * 25
    assert phase.traffic == pytest.approx(50 * (4 * (SMALL.matrices + SMALL.head) + cached + logits))
    assert phase.bound == "kernel launches"


def test_more_devices_share_the_work_and_send_the_gradients():
    work = on_policy(batch=BatchShape(64, 4, 100, 50))
    one, four = found(work), found(work, count=4)
    for name in ("prefill", "scoring"):
        assert four[name].operations == pytest.approx(one[name].operations / 4)
    assert four["sync"].sent == pytest.approx(2 * 3 / 4 * 4 * SMALL.parameters)
    assert "sync" not in one


def test_a_sharded_model_sends_more_and_hides_it_where_it_can():
    work = on_policy(batch=BatchShape(64, 4, 100, 50), sampling=None)
    full = found(work, PlanSetting("full", tokens=1024), count=4, link=1e14)["sync"]
    whole = found(work, PlanSetting("none", tokens=1024), count=4, link=1e14)["sync"]
    assert full.sent > whole.sent
    assert (full.seconds, full.bound) == (0.0, "hidden")
    slow = found(work, PlanSetting("full", tokens=1024), count=4, link=1e5)["sync"]
    assert slow.bound == "network"


@pytest.mark.parametrize("rate", ["float32", "bandwidth", "link"])
def test_a_faster_device_is_never_slower(rate):
    def seconds(factor: float) -> float:
        changes = {rate: factor * 1e10}
        setting = PlanSetting("full", tokens=1024)
        return sum(phase.seconds for phase in found(on_policy(), setting, count=4, **changes).values())

    assert seconds(1.0) > seconds(2.0) > seconds(4.0)


def test_servers_sample_while_trainers_train():
    work, where, setting = on_policy(), cluster(2), PlanSetting("none", tokens=1024)
    held = memory(work, where, setting, serves=False)
    one, two = ({phase.name: phase for phase in phases(work, where, setting, held, cluster(n))} for n in (1, 2))
    assert {"decode (server)", "weights to servers"} <= set(one)
    assert "decode" not in one
    assert two["decode (server)"].seconds < one["decode (server)"].seconds
    assert one["weights to servers"].sent == 2 * SMALL.parameters


def test_activations_of_sampling_save_the_first_minibatch_its_forward_pass():
    for updates in (1, 2):
        work = on_policy(batch=BatchShape(2, 2, 10, 8), sampling=SamplingLoad(8), updates=updates)
        without, kept = (found(replace(work, keeps=keeps))["update"] for keeps in (False, True))
        forward = work.model.forward(work.batch.tokens, work.batch.pairs, 0)
        assert without.operations - kept.operations == pytest.approx(forward / updates)


def fused(**changes) -> Workload:
    """The step of reinforcement learning on the GPU engine."""
    return on_policy(half=True, fused=True, casts_layers=True, **changes)


@pytest.mark.parametrize(("samples", "prompts"), [(1, 128), (8, 16), (32, 8)])
def test_a_graph_reads_weights_in_bf16_and_each_prompt_once_per_group_of_16(samples, prompts):
    """128 rows run in each step; a prompt with 32 completions is in two groups."""
    work = fused(batch=BatchShape(128 / samples, samples, 100, 50))
    phase = found(work)["decode"]
    cached = 2 * SMALL.key_values * (prompts * 100 + 128 * 25)
    streamed = 2 * (SMALL.matrices + SMALL.head) + 128 * DRAW * SMALL.vocabulary
    assert phase.traffic == pytest.approx(50 * (streamed + cached))
    assert phase.reading == pytest.approx(50 * (streamed + cached / CACHE_SHARE) / cluster().device.reading)
    assert phase.overhead == pytest.approx(50 * SMALL.layers * GRAPH_OVERHEAD)


def test_slots_take_the_next_row_where_batches_wait_for_their_longest():
    """1,024 rows of 50 tokens with a limit of 200 in 256 slots: as many steps as one batch of the longest."""
    work = fused(batch=BatchShape(128, 8, 100, 50), sampling=SamplingLoad(200))
    steps = found(work)["decode"].overhead / (SMALL.layers * GRAPH_OVERHEAD)
    assert steps == pytest.approx(200)
    twice = replace(work, batch=replace(work.batch, prompts=256))
    assert found(twice)["decode"].overhead == pytest.approx(2 * 200 * SMALL.layers * GRAPH_OVERHEAD)


def test_the_gpu_engine_computes_its_head_once_more_and_rounds_what_it_trains():
    work = fused(sampling=None, reference=0.0)
    whole = SMALL.forward(work.batch.tokens, work.batch.pairs, work.batch.scored)
    head = 2 * SMALL.head * work.batch.scored
    assert found(work)["update"].operations == pytest.approx(3 * whole + head)
    plain, own = (found(replace(work, fused=kind, lora=4))["update"].traffic for kind in (False, True))
    assert own < plain - 5 * SMALL.parameters, "frozen weights are in bf16"


def test_a_sharded_model_is_computed_by_plain():
    batch = BatchShape(64, 4, 100, 50)
    setting = PlanSetting("full", tokens=1024)
    plain = on_policy(half=True, batch=replace(batch, shared=batch.packs))
    assert found(fused(batch=batch), setting, count=4) == found(plain, setting, count=4)
