"""From the settings of a command to one step in numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tiny

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.commands.plan.workloads import Lengths, run_of
from tutelage.engines.plans.hardware import Cluster, gpu_named
from tutelage.engines.plans.rank_memory import PlanSetting, memory
from tutelage.engines.plans.step_time import phases

LENGTHS = Lengths(20.0, 10.0)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A model folder with its configuration alone."""
    folder = tmp_path_factory.mktemp("bare")
    made = Path(tiny.save("llama", tmp_path_factory.mktemp("whole")))
    (folder / "config.json").write_text((made / "config.json").read_text())
    return str(folder)


def test_supervised_commands(bare, tmp_path):
    common = {"model": tt.Model(bare), "data": "none.jsonl", "out": tmp_path, "batch_size": 8}
    sft = run_of(tt.SftSettings(**common, lora=tt.Lora(rank=4)), LENGTHS)
    assert (sft.work.batch.rows, sft.work.lora, sft.steps) == (8, 4, None)
    assert sft.work.trainable == 4 * sft.work.model.adapter
    reward = run_of(tt.RewardSettings(**common), LENGTHS)
    assert reward.work.is_scalar
    assert reward.work.batch.rows == 16
    steps = run_of(tt.RewardSettings(**common, steps=True), LENGTHS)
    assert (steps.work.is_scalar, steps.work.batch.rows) == (True, 8)
    dpo = run_of(tt.DpoSettings(**common, epochs=2.0), LENGTHS)
    assert dpo.work.reference == 0.5
    assert dpo.work.sampling is None


def test_pretraining_is_of_windows(tmp_path):
    shape = tt.Shape(vocabulary=400, hidden=32, layers=2, heads=4, context=64)
    found = run_of(tt.PretrainSettings(data="none.txt", out=tmp_path, shape=shape, batch_size=4), Lengths())
    assert found.work.batch.tokens == 4 * 64
    assert found.work.model.layers == 2


def planned(work):
    """The memory of a step on a GPU, and the operations of its phases."""
    device, setting = Cluster(gpu_named("l4")), PlanSetting(tokens=64)
    held = memory(work, device, setting)
    return held, {phase.name: phase.operations for phase in phases(work, device, setting, held)}


def test_a_teacher_is_held_and_scores_the_batch(bare, tmp_path):
    """Beside a student with adapters too, which has no reference of its own; given answers are not sampled."""
    common = {"model": tt.Model(bare), "out": tmp_path, "batch_size": 8, "lora": tt.Lora(rank=2)}
    given = {"teacher": "other", "data": "none.jsonl", "on_policy": 0.25}
    with pytest.raises(TutelageError, match="other"):
        run_of(tt.DistillSettings(**common, **given), LENGTHS)
    work = run_of(tt.DistillSettings(**common, **given | {"teacher": f"{bare}/"}), LENGTHS).work
    assert (work.teacher, work.sampling.rounds, work.scorings) == (work.model, 0.25, 0.75)
    held, without = (planned(one) for one in (work, replace(work, teacher=None)))
    assert held[0].reference - without[0].reference == 4 * work.model.parameters
    assert held[1]["scoring"] > 2 * without[1]["scoring"]
    served = run_of(
        tt.DistillSettings(**common, teacher="http://localhost:8000", prompts="none.jsonl", recipe="reverse_kl"),
        LENGTHS,
    )
    assert served.work.teacher is None
    assert served.notes == ("the server of --teacher is not counted",)


def test_the_policy_scores_its_answers_where_the_sampler_rounds(bare, tmp_path):
    half = {"model": tt.Model(bare, dtype="bf16"), "out": tmp_path, "prompts": "none.jsonl", "reward": ("own:reward",)}
    exact = half | {"model": tt.Model(bare, dtype="float32")}
    for settings, expected in (
        (exact, (0, 0)),
        (half, (0, 1)),
        (half | {"mismatch": "none"}, (0, 0)),
        (half | {"mismatch": "recompute"}, (1, 0)),
        (half | {"rollouts": "http://localhost:8000"}, (1, 0)),
    ):
        work = run_of(tt.ImproveSettings(**settings), LENGTHS).work
        assert (work.scorings, work.rescorings) == expected


def improved(model: str, out: Path, **changes):
    settings = {"prompts": "none.jsonl", "reward": ("own:reward",), "batch_size": 16} | changes
    return run_of(tt.ImproveSettings(model=tt.Model(model), out=out, **settings), LENGTHS)


def test_a_recipe_says_how_often_its_batch_is_computed(bare, tmp_path):
    grpo = improved(bare, tmp_path, recipe="grpo", set=("update.minibatches=1",)).work
    assert (grpo.batch.samples, grpo.epochs, grpo.updates, grpo.critic) == (8, 1, 1, None)
    ppo = improved(bare, tmp_path, recipe="ppo", set=("update.minibatches=4",), critic="network").work
    assert (ppo.epochs, ppo.updates) == (4, 16)
    assert ppo.critic == ppo.model
    remax = improved(bare, tmp_path, recipe="remax").work
    assert remax.sampling is not None
    assert remax.sampling.rounds == 2  # a greedy answer beside the sampled one
    trpo = improved(bare, tmp_path, recipe="trpo")
    assert trpo.work.epochs == 21
    assert "curvature" in trpo.notes[0]


def test_reward_models_count_and_functions_do_not(bare, tmp_path):
    assert improved(bare, tmp_path, recipe="grpo").work.rewards == ()
    assert len(improved(bare, tmp_path, recipe="grpo", reward=(f"{bare}=2", "own:reward")).work.rewards) == 1


def test_rounds_sample_more_than_they_learn(bare, tmp_path):
    common = {"model": tt.Model(bare), "prompts": "none.jsonl", "out": tmp_path, "reward": ("own:reward",)}
    kept = run_of(tt.RejectionSettings(**common, samples=8, keep=2, batch_size=16), LENGTHS).work
    assert kept.sampling is not None
    assert kept.batch.rows == 16
    assert kept.sampling.rounds * kept.batch.rows == 8 * kept.batch.prompts
    pairs = run_of(tt.DpoSettings(**common, samples=8, batch_size=16), LENGTHS).work
    assert pairs.sampling is not None
    assert pairs.sampling.rounds * pairs.batch.rows == 8 * 16


def test_lengths_and_steps_are_counted_in_the_data(tmp_path):
    model = tiny.save("llama", tmp_path / "model")
    rows = [{"prompt": "Why? " * n, "completion": "Because."} for n in (1, 2, 3, 6)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = tt.SftSettings(
        model=tt.Model(model), data=str(tmp_path / "data.jsonl"), out=tmp_path, batch_size=2, held_out=0.0
    )
    counted = run_of(settings, Lengths())
    assert counted.steps == 2
    assert counted.work.batch.prompt > counted.work.batch.response > 0
    assert run_of(settings, Lengths(0.0, 7.0)).work.batch.response == 7.0


def test_without_data_or_lengths_the_missing_file_is_named(bare, tmp_path):
    settings = tt.SftSettings(model=tt.Model(bare), data=str(tmp_path / "none.jsonl"), out=tmp_path)
    with pytest.raises(TutelageError, match=r"none\.jsonl"):
        run_of(settings, Lengths())
    with pytest.raises(TutelageError, match="int cannot be planned"):
        run_of(3, Lengths())
