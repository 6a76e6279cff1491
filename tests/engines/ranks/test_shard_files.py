"""Weights and moments that every rank writes for itself."""

import shutil

import pytest
import torch
from jobs import kill_while_saving, loading_job, run, run_with_a_full_disk, saving_job
from safetensors.torch import load_file
from test_equality import settings_of
from tiny_training import learner_of, policy_of
from worlds import World

from tutelage.base.errors import TutelageError
from tutelage.engines.ranks.ranks import PeerLost

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
        "sft",
        tiny_model("llama"),
        dict.fromkeys(("text", "pairs", "prompts", "teacher")) | {"sft": str(file)},
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
