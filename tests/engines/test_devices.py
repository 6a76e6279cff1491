"""What the GPU engine needs of a machine, and why torch finds no GPU."""

import shutil
import sys
from importlib.util import find_spec

import pytest
import torch
from cards import pretend

from tutelage.base.errors import TutelageError
from tutelage.engines.devices import missing_gpu, obstacle, triton_kernels

CUDA = torch.device("cuda")


def test_a_card_with_all_that_triton_needs(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path)
    assert obstacle(CUDA) == ""


def test_a_cpu_always_can_and_other_devices_never():
    assert obstacle(torch.device("cpu")) == ""
    assert "NVIDIA" in obstacle(torch.device("mps"))


@pytest.mark.parametrize(
    ("changes", "word"), [({"cuda": None}, "NVIDIA"), ({"capability": (7, 5)}, "needs compute capability 8.0")]
)
def test_cards_that_triton_does_not_know(monkeypatch, tmp_path, changes, word):
    pretend(monkeypatch, tmp_path, **changes)
    assert word in obstacle(CUDA)


def test_an_old_torch_is_named_with_the_version_that_is_needed(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path)
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.7.1+cu126"))
    assert "2.8" in obstacle(CUDA)
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.10.0+cu130"))
    assert obstacle(CUDA) == ""


@pytest.mark.skipif(bool(find_spec("triton")), reason="Triton is installed")
def test_triton_itself(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, triton=False)
    assert "pip install triton" in obstacle(CUDA)


def test_the_compiler_and_the_headers_of_triton(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path)
    monkeypatch.delenv("CC")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C compiler" in obstacle(CUDA)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/clang" if name == "clang" else None)
    assert obstacle(CUDA) == ""
    (tmp_path / "Python.h").unlink()
    assert "Python.h" in obstacle(CUDA)


@pytest.mark.parametrize("visible", ["", "3"])
def test_hidden_gpus_are_named_as_the_cause(monkeypatch, visible):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert f"CUDA_VISIBLE_DEVICES set to {visible!r}" in missing_gpu()


def test_the_build_and_the_driver_as_causes(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert "build without CUDA" in missing_gpu()

    def fail():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update it.")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", fail)
    assert missing_gpu().endswith("too old (found version 11040)")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    assert missing_gpu() == "torch finds no GPU"


@pytest.mark.parametrize("module", ["head_kernels", "slot_kernels"])
def test_a_missing_triton_is_named(module, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, f"tutelage.engines.gpu.{module}", raising=False)
    with pytest.raises(TutelageError, match="Triton"):
        triton_kernels(module)
