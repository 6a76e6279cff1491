"""Devices of models: names that torch does not have, and GPUs without room or without bf16."""

import pytest
import torch
from cards import pretend

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.models import backbone
from tutelage.models.backbone import pick_device, pick_dtype, to_device

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    backbone._warn_of_other_programs.cache_clear()


def test_a_gpu_that_is_not_there_is_refused_with_the_cause(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert pick_device("auto").type == "cpu"
    with pytest.raises(TutelageError, match=r"CUDA_VISIBLE_DEVICES set to ''.*--model.device cpu"):
        pick_device("cuda")


def test_a_number_beyond_the_gpus_is_refused(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, count=2)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(TutelageError, match=r"'cuda:7' .* 2 GPUs"):
        pick_device("cuda:7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(TutelageError, match="CUDA_VISIBLE_DEVICES set to '4,5'"):
        pick_device("cuda:4")


def test_bf16_on_a_gpu_without_it_is_refused(monkeypatch, tmp_path, tiny_model):
    model = backbone.load_whole(tiny_model("llama"))
    pretend(monkeypatch, tmp_path, capability=(7, 5))
    with pytest.raises(TutelageError, match="NVIDIA Test does not multiply bf16"):
        pick_dtype(config.Model("m", dtype="bf16"), CUDA, model)
    assert pick_dtype(config.Model("m", dtype="auto"), CUDA, model) == torch.float32
    pretend(monkeypatch, tmp_path)
    assert pick_dtype(config.Model("m", dtype="bf16"), CUDA, model) == torch.bfloat16


class Crowded(torch.nn.Linear):
    """A layer that the memory of a GPU does not take."""

    def to(self, device):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(("free", "warns"), [(70, False), (40, True)])
def test_a_gpu_that_another_program_fills(monkeypatch, tmp_path, caplog, free, warns):
    pretend(monkeypatch, tmp_path, free=free)
    for _ in range(2):
        with pytest.raises(TutelageError, match=f"{free}.0 GiB free.*nvidia-smi"):
            to_device(Crowded(2, 2), CUDA)
    assert caplog.text.count(f"hold {80 - free}.0 of the 80.0 GiB") == warns, "once"


def test_a_model_moves_to_the_cpu_as_it_is():
    layer = torch.nn.Linear(2, 2)
    assert to_device(layer, torch.device("cpu")) is layer
