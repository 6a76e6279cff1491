"""Every model folder of an earlier release computes what it computed, by our loader and by plain transformers and PEFT.

The stored numbers are logits of magnitude 1 in float32, computed by matrices of width 16: other processors round the
sums differently by about 1e-6, and a weight that is lost, transposed or scaled shows in the first digit.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM, AutoPeftModelForSequenceClassification
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rows
from tutelage.models.backbone import load_backbone
from tutelage.models.heads import load_reward_model

from .archives import INTERRUPTED

TOKENS = torch.tensor([[5, 17, 29, 41, 53, 67, 79, 83]])
"""The input of the stored numbers."""


def close(found: Tensor, stored: Tensor) -> None:
    torch.testing.assert_close(found, stored, rtol=1e-4, atol=1e-4)


def is_reward_model(folder: Path) -> bool:
    return (folder / "fingerprint.json").exists()


def our_logits(folder: Path) -> Tensor:
    """By our loaders: a reward model's score, [1, 1], or the logits of the last four positions, [1, 4, V]."""
    model = config.Model(str(folder), device="cpu")
    if not is_reward_model(folder):
        return load_backbone(model).model(TOKENS).logits[:, -4:]
    everywhere = torch.ones_like(TOKENS, dtype=torch.bool)
    rows = Rows(prompt=TOKENS[:, :3], prompt_mask=everywhere[:, :3], response=TOKENS[:, 3:], mask=everywhere[:, 3:])
    return load_reward_model(model).scores(rows)[:, None]


def plain_logits(folder: Path) -> Tensor:
    """The same without a line of our code."""
    if (folder / "adapter_config.json").exists():
        if is_reward_model(folder):
            model = AutoPeftModelForSequenceClassification.from_pretrained(folder, num_labels=1)
        else:
            model = AutoPeftModelForCausalLM.from_pretrained(folder)
    elif is_reward_model(folder):
        model = AutoModelForSequenceClassification.from_pretrained(folder)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder)
    return model.eval()(TOKENS).logits[:, -4:]


@torch.no_grad()
def test_every_model_folder_computes_what_it_computed(place: Callable[..., Path]) -> None:
    place("start", "sft", "sft-lora", "reward", "round", *INTERRUPTED, "expected")
    stored = load_file("expected/logits.safetensors")
    assert {str(file.parent) for file in Path().rglob("tokenizer.json")} == set(stored)
    for name, logits in stored.items():
        close(our_logits(Path(name)), logits)
        close(plain_logits(Path(name)), logits)


def test_a_reward_model_whose_head_changed_is_refused_by_its_stored_fingerprint(place: Callable[..., Path]) -> None:
    folder = place("reward") / "reward" / "model"
    fingerprint = json.loads((folder / "fingerprint.json").read_text())
    fingerprint["scores"][0] += 0.01
    (folder / "fingerprint.json").write_text(json.dumps(fingerprint))
    with pytest.raises(TutelageError, match="does not score its canned inputs"):
        load_reward_model(config.Model(str(folder), device="cpu"))
