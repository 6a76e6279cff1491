"""What `auto` takes: an engine by the device, precision by the device, the engine and the size of the model."""

from dataclasses import replace

import pytest
import torch
from cards import pretend
from compilers import needs_compiler

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines import choose
from tutelage.engines.choose import LEAST_FEATURES, choose_dtype, engine_name, processor_engine
from tutelage.engines.cpu.native import build, matrix_products
from tutelage.models.backbone import load_backbone

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def multiplying(monkeypatch):
    monkeypatch.setattr(build, "multiplies_bf16", lambda: True)
    monkeypatch.setattr(matrix_products, "supports", lambda features: True)


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.parametrize(("name", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16)])
def test_what_is_named_is_taken(name, dtype, device):
    assert choose_dtype(name, device, "plain", 8) == dtype


@pytest.mark.usefixtures("multiplying")
def test_auto_takes_bf16_where_it_is_worth_it(monkeypatch):
    assert choose_dtype("auto", CPU, "auto", LEAST_FEATURES) == torch.bfloat16
    assert choose_dtype("auto", CPU, "cpu", LEAST_FEATURES) == torch.bfloat16
    assert choose_dtype("auto", CPU, "auto", LEAST_FEATURES - 1) == torch.float32
    assert choose_dtype("auto", CPU, "plain", LEAST_FEATURES) == torch.float32
    monkeypatch.setenv(choose.VARIABLE, "plain")
    assert choose_dtype("auto", CPU, "auto", LEAST_FEATURES) == torch.float32


@pytest.mark.usefixtures("multiplying")
def test_auto_takes_float32_without_products_of_bf16(monkeypatch):
    monkeypatch.setattr(build, "multiplies_bf16", lambda: False)
    assert choose_dtype("auto", CPU, "auto", LEAST_FEATURES) == torch.float32


@pytest.mark.parametrize("has_bf16", [True, False])
def test_auto_asks_a_gpu(monkeypatch, has_bf16):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    assert choose_dtype("auto", GPU, "auto", 8) == (torch.bfloat16 if has_bf16 else torch.float32)


@needs_compiler
@pytest.mark.parametrize("least", [64, 65])
def test_a_model_says_what_auto_took(tiny_model, monkeypatch, caplog, least):
    monkeypatch.setattr(build, "multiplies_bf16", lambda: True)
    monkeypatch.setattr(choose, "LEAST_FEATURES", least)
    caplog.set_level("INFO")
    folder = tiny_model("llama", hidden_size=64)
    trained = load_backbone(config.Model(folder, device="cpu", dtype="auto"), config.Lora())
    assert trained.dtype == (torch.bfloat16 if least == 64 else torch.float32)
    assert ("bf16, chosen for this machine" in caplog.text) == (least == 64)
    assert {weight.dtype for weight in trained.model.parameters()} == {torch.float32}
    read = load_backbone(config.Model(folder, device="cpu", dtype="auto"))
    assert {weight.dtype for weight in read.model.parameters()} == {trained.dtype}


@pytest.fixture
def unset(monkeypatch):
    monkeypatch.delenv(choose.VARIABLE, raising=False)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("cannot", [{}, {"capability": (7, 5)}, {"cuda": None}])
def test_auto_is_the_engine_of_the_device_that_can(monkeypatch, tmp_path, cannot):
    pretend(monkeypatch, tmp_path, **cannot)
    assert engine_name("auto", CPU) == "cpu"
    assert engine_name("auto", GPU) == ("plain" if cannot else "gpu")
    assert engine_name("auto", torch.device("mps")) == "plain"
    for name in ("plain", "cpu", "gpu"):
        assert engine_name(name, GPU) == name
    monkeypatch.setenv(choose.VARIABLE, "plain")
    assert engine_name("auto", GPU) == engine_name("auto", CPU) == "plain"


@pytest.mark.usefixtures("unset")
def test_a_gpu_that_the_engine_cannot_use_falls_back_with_one_warning_or_is_refused(
    monkeypatch, tmp_path, tiny_model, caplog
):
    loaded = load_backbone(config.Model(tiny_model("llama"), device="cpu", engine="plain"))
    pretend(monkeypatch, tmp_path, capability=(7, 5))
    choose._warn_of_reference_engine.cache_clear()
    there = replace(loaded, device=torch.device("cuda", 0), engine="auto")
    assert [choose.engine_for(there).name for _ in range(2)] == ["plain", "plain"]
    assert caplog.text.count("compute capability 8.0") == 1
    with pytest.raises(TutelageError, match=r"--engine gpu cannot compute on cuda:0.*capability 8.0"):
        choose.engine_for(replace(there, engine="gpu"))
    assert choose.engine_for(replace(loaded, engine="gpu")).name == "gpu", "on a CPU by the same code"


@pytest.mark.usefixtures("multiplying", "unset")
@pytest.mark.parametrize("name", ["plain", "gpu"])
def test_the_kernels_of_the_cpu_engine_are_for_that_engine_alone(monkeypatch, name):
    assert choose_dtype("auto", CPU, name, LEAST_FEATURES) == torch.float32
    monkeypatch.setenv(choose.VARIABLE, name)
    assert choose_dtype("auto", CPU, "auto", LEAST_FEATURES) == torch.float32
    assert processor_engine().name == name
    assert choose.layer_products(CPU, torch.float32).output is torch.nn.functional.linear
