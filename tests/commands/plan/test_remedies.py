"""What an out-of-memory error names, by the plan of the run."""

import re

import pytest
import torch
from transformers import LlamaConfig

import tutelage as tt
from tutelage.commands.plan.remedies import change_that_fits

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
