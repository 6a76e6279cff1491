"""Models in shards: what a rank holds of them, and what is refused."""

import shutil
from types import SimpleNamespace

import pytest
import tiny
import torch
from jobs import (
    half_precision_job,
    kill_while_saving,
    loading_job,
    memory_job,
    run,
    run_with_a_full_disk,
    saving_job,
    teacher_job,
)
from safetensors.torch import load_file
from test_equality import settings_of
from tiny_training import learner_of, policy_of
from torch.distributed.fsdp import FSDPModule
from worlds import World

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.commands.layout import lay_out
from tutelage.engines.interface import PromptTokens
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.processes import join
from tutelage.engines.ranks.ranks import PeerLost, Ranks
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.models.sharding import shard_


@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_holds_its_share_of_weights_gradients_and_moments(tiny_model, worlds, size):
    """Rows of a weight are divided; a rank has up to one row more than its share."""
    whole = memory_job(tiny_model("llama", hidden_size=64, intermediate_size=128), sharded=False)
    for held in worlds(size).run(memory_job, tiny_model("llama", hidden_size=64, intermediate_size=128), True):
        assert held < (1 / size + 0.05) * whole


def test_a_rank_holds_its_share_of_a_teacher(tiny_model, worlds, tmp_path):
    teacher = tiny.save("llama", tmp_path / "teacher", seed=1, hidden_size=64, intermediate_size=128)
    settings = {"model": tt.Model(tiny_model("llama")), "teacher": teacher, "prompts": "p", "out": tmp_path}
    for held, all_of_it in worlds(2).run(teacher_job, settings):
        assert held < 0.55 * all_of_it


def test_no_copy_of_a_layer_in_half_precision_waits_for_the_backward_pass(tiny_model, worlds):
    folder = tiny_model("llama", hidden_size=64, intermediate_size=128)
    waiting, logp, norm = half_precision_job(folder, False)
    assert waiting > 0
    for kept, theirs, of_shards in worlds(2).run(half_precision_job, folder, True):
        assert kept == 0
        torch.testing.assert_close(theirs, logp, rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(of_shards, 2 * norm, rtol=1e-2, atol=0.0)  # both ranks read the same rows


class Counted(Ranks):
    """Ranks whose machines have so many processes each."""

    counts = ()

    def gather(self, value):
        return list(self.counts)


def refusal(tmp_path, counts, shard="hybrid", engine="auto", **changes):
    """The message of `improve` that refuses to shard over machines with these numbers of ranks."""
    model = tt.Model("nowhere", engine=engine)
    settings = tt.ImproveSettings(model=model, prompts="p", reward=("r:r",), out=tmp_path, shard=shard)
    ranks = Counted(size=sum(counts))
    type(ranks).counts = [count for count in counts for _ in range(count)]
    with pytest.raises(TutelageError) as error:
        lay_out(settings.shard, SimpleNamespace(ranks=ranks), model, lambda model: None)
    return str(error.value)


def test_layouts_that_cannot_be(tmp_path, monkeypatch):
    assert "add --processes N" in refusal(tmp_path, [1])
    for engine in ("cpu", "gpu"):
        assert f"omit --model.engine {engine}" in refusal(tmp_path, [2], shard="full", engine=engine)
    assert "use --shard full" in refusal(tmp_path, [4])
    assert "but each has one" in refusal(tmp_path, [1, 1])
    assert "there are 2 on one and 3 on another" in refusal(tmp_path, [2, 3])
    monkeypatch.delattr(FSDPModule, "set_reduce_scatter_unused_params")  # as in PyTorch 2.11
    assert torch.__version__ in refusal(tmp_path, [2], shard="full")


@pytest.mark.parametrize("recipe", ["trpo", "natural_gradient"])
def test_a_natural_step_is_not_taken_in_shards(tmp_path, recipe):
    given = {"model": tt.Model("m"), "prompts": "p", "reward": ("r:r",), "recipe": recipe}
    with pytest.raises(TutelageError, match=f"{recipe!r} takes a natural step"):
        tt.improve(tt.ImproveSettings(**given, out=tmp_path, shard="full"))


def test_decoding_through_shards_is_an_error_of_the_program(tiny_model, worlds):
    assert all("gathered()" in told for told in worlds(2).run(decode_in_shards, tiny_model("llama")))


def decode_in_shards(folder):
    policy = Policy(load_backbone(tt.Model(folder, device="cpu"), tt.Lora()))
    shard_(policy, Passes(join()), policy.device)
    prompts, sampling = PromptTokens(((40, 41),), ("a",)), tt.Sampling(max_new_tokens=2)
    with policy.gathered():
        assert policy.generate(prompts, 1, sampling, seed=0).response.shape == torch.Size([1, 2])
    try:
        policy.generate(prompts, 1, sampling, seed=0)
    except RuntimeError as error:
        return str(error)


SHARDS = {"shard": "full"}


@pytest.fixture
def uneven(tiny_model):
    """A model whose weights neither two nor three ranks share evenly."""
    return tiny_model("llama", intermediate_size=35)


def assert_same(one, other):
    assert len(one) == len(other)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_rank_writes_its_own_and_any_number_reads_it(uneven, worlds, tmp_path):
    """To the last bit: written at 2, read at 3 and the other way round, and by one process, which writes it for 2."""
    for writers, readers in ((2, 3), (3, 2)):
        saved = tmp_path / f"of {writers}"
        saved.mkdir()
        written = worlds(writers).run(saving_job, uneven, saved)[0]
        sizes = [file.stat().st_size for file in (saved / "shards").glob("*.safetensors")]
        assert len(sizes) == writers
        assert max(sizes) < 2 * min(sizes)
        for read in worlds(readers).run(loading_job, uneven, saved):
            assert_same(written, read)
    policy = policy_of(uneven, engine="plain")
    learner = learner_of({"policy": policy.parameters()}, steps=2)
    learner.load(saved / "state.pt")
    moments = [value for each in learner.optimiser.state.values() for value in each.values()]
    assert_same(written, [*learner.parameters, *moments])
    torch.save({"learner": learner.state()}, tmp_path / "state.pt")
    assert_same(written, worlds(2).run(loading_job, uneven, tmp_path)[0])


@pytest.fixture
def given(tiny_model, tmp_path):
    """Settings of `sft` in shards, three steps with a checkpoint of each."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"prompt": "What is {n}?", "completion": "a star {n}"}}\n' for n in range(6)))
    settings = settings_of(
        "sft", tiny_model("llama"), dict.fromkeys(("text", "pairs", "prompts", "teacher")) | {"sft": str(file)}
    )
    return settings | SHARDS | {"batch_size": 2, "epochs": 1.0, "held_out": 0.0, "samples": 0, "rouge": 0}


def test_a_rank_that_is_killed_while_it_saves_loses_nothing(given, worlds, tmp_path):
    """The checkpoint before stays, and the run goes on from it to the same bits."""
    own = World(2, 2)
    for pipe in own.pipes:
        pipe.send((kill_while_saving, (given | {"out": tmp_path / "killed"}, 2)))
    failed, error = own.pipes[0].recv()
    own.close()
    assert failed
    assert isinstance(error, PeerLost)
    saved = {each.name for each in (tmp_path / "killed" / "checkpoints").iterdir()}
    assert saved - {".tmp-step-2"} == {"step-1"}
    worlds(2).run(run, "sft", given | {"out": tmp_path / "killed", "resume": True})
    worlds(2).run(run, "sft", given | {"out": tmp_path / "whole"})
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("killed", "whole"))
    assert_same(one.values(), other.values())


def test_a_disk_that_is_full_on_one_rank_is_told_by_the_first(given, worlds, tmp_path):
    with pytest.raises(TutelageError, match="checkpoint of step 1 could not be written"):
        worlds(2).run(run_with_a_full_disk, given | {"out": tmp_path / "run"})
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    shutil.rmtree(tmp_path / "run")
