"""What is saved is what was trained: adapters on every kind of layer, merged, as transformers and as we load them."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from tiers import every_value
from torch import Tensor
from transformers import AutoModelForCausalLM

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.rows import EncodedRow, collate
from tutelage.models import merging
from tutelage.models.backbone import load_backbone
from tutelage.models.heads import ScalarModel, load_reward_model, new_reward_model
from tutelage.models.policy import Policy

TARGETS = {
    "llama": ("auto", "lm_head", "q_proj,lm_head", "embed_tokens,q_proj", "embed_tokens,lm_head"),
    "gpt2": ("auto", "lm_head", "c_attn,lm_head", "wte,c_attn", "wte,lm_head"),
}
ROWS = [EncodedRow((40, 41, 42), (50, 60, 70)), EncodedRow((9,), (8, 7, 6))]


def load(folder: object, lora: config.Lora | None = None, engine: config.EngineName = "plain") -> Policy:
    return Policy(load_backbone(config.Model(str(folder), device="cpu", engine=engine), lora))


@torch.no_grad()
def train(model: Policy | ScalarModel) -> None:
    """Change adapters as a training would, by a lot."""
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        weight += 0.3 * torch.randn(weight.shape, generator=generator)


@torch.no_grad()
def logp(policy: Policy) -> Tensor:
    return policy.scores(collate(ROWS, 0, policy.device)).logp


@torch.no_grad()
def plain(model: Any) -> Tensor:
    """The same from the logits of transformers, row by row."""
    found = []
    for row in ROWS:
        logits = model.eval()(input_ids=torch.tensor([row.prompt + row.response])).logits[0].log_softmax(-1)
        before = logits[len(row.prompt) - 1 : -1]
        found.append(before.gather(1, torch.tensor(row.response)[:, None]).squeeze(1))
    return torch.stack(found)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("family", "tied"), every_value(TARGETS, (True, False)))
def test_a_saved_model_computes_what_base_and_adapter_did(
    tiny_model: Callable[..., str], tmp_path: Path, family: str, tied: bool
) -> None:
    base = tiny_model(family, tie_word_embeddings=tied)
    for targets in TARGETS[family]:
        checkpoint, whole = tmp_path / targets / "checkpoint", tmp_path / targets / "model"
        policy = load(base, config.Lora(rank=2, targets=targets))
        train(policy)
        with warnings.catch_warnings(action="error", category=UserWarning):  # of PEFT, about tied weights
            policy.save(checkpoint)
            policy.save_whole(whole)
        policy.verify(whole)
        adapter = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), checkpoint)
        expected = plain(adapter)
        assert (expected - logp(load(base))).abs().max() > 0.1
        assert_close(logp(policy), expected)
        assert_close(plain(AutoModelForCausalLM.from_pretrained(whole)), expected)
        for engine in ("plain", "cpu"):
            assert_close(logp(load(whole, engine=engine)), expected)
            assert_close(logp(load(checkpoint, engine=engine)), expected)
            assert_close(logp(load(checkpoint, config.Lora(rank=2), engine=engine)), expected)
        assert_close(logp(load(checkpoint, config.Lora(rank=0))), expected)
        settings = json.loads((whole / "config.json").read_text())
        assert settings["tie_word_embeddings"] is (tied and targets == "auto")


def test_a_saved_model_is_trained_and_saved_again(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    folder = Path(tiny_model("gpt2"))
    for number, lora in enumerate((config.Lora(2, targets="lm_head"), config.Lora(), config.Lora(2, targets="wte"))):
        policy = load(folder, lora)
        train(policy)
        folder = tmp_path / str(number)
        policy.save_whole(folder)
        policy.verify(folder)
        assert_close(logp(load(folder)), logp(policy))


def test_the_weights_of_the_trained_model_stay(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    policy = load(tiny_model("qwen3"), config.Lora(rank=2, targets="lm_head,embed_tokens"))
    train(policy)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    policy.save_whole(tmp_path)
    assert all(torch.equal(weight, before[name]) for name, weight in policy.model.state_dict().items())
    assert policy.model.config.tie_word_embeddings


def test_a_continued_adapter_on_an_embedding_is_its_own_reference(
    tiny_model: Callable[..., str], tmp_path: Path
) -> None:
    for number, targets in enumerate(("embed_tokens", "embed_tokens,lm_head")):
        first = load(tiny_model("qwen3"), config.Lora(rank=2, targets=targets))
        train(first)
        first.save(tmp_path / str(number))
        policy = load(tmp_path / str(number), config.Lora(rank=2))
        policy.freeze_reference()
        train(policy)
        with policy.reference():
            assert_close(logp(policy), logp(first))
        assert (logp(policy) - logp(first)).abs().max() > 0.1


@pytest.mark.parametrize("targets", ["auto", "embed_tokens,q_proj"])
def test_a_reward_model_scores_what_base_and_adapter_did(
    tiny_model: Callable[..., str], tmp_path: Path, targets: str
) -> None:
    settings = config.Model(tiny_model("qwen3"), device="cpu")
    model = new_reward_model(settings, config.Lora(rank=2, targets=targets), seed=0)
    train(model)
    model.save(tmp_path / "checkpoint")
    model.save_whole(tmp_path / "model")
    model.verify(tmp_path / "model")
    for folder in ("checkpoint", "model"):
        saved = load_reward_model(config.Model(str(tmp_path / folder), device="cpu"))
        assert_close(torch.tensor(saved.fingerprint()), torch.tensor(model.fingerprint()))


def test_a_wrong_merge_is_refused_with_the_difference(
    tiny_model: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load(tiny_model("qwen3"), config.Lora(rank=2, targets="lm_head"))
    train(policy)
    policy.save(tmp_path / "checkpoint")
    monkeypatch.setattr(merging, "_untie", lambda model: None)
    with pytest.raises(TutelageError, match=r"merged is not the one that was trained: log π\(.*\) behind .* nats off"):
        policy.save_whole(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(TutelageError, match="merged is not the one that was trained"):
        load(tmp_path / "checkpoint")


@torch.no_grad()
def test_a_folder_with_other_weights_is_not_the_trained_model(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    settings = config.Model(tiny_model("llama"), device="cpu")
    policy, reward = load(settings.path, config.Lora()), new_reward_model(settings, config.Lora(), seed=0)
    for model in (policy, reward):
        folder = tmp_path / type(model).__name__
        model.save_whole(folder)
        model.verify(folder)
        model.parameters()[3].add_(0.1)
        with pytest.raises(TutelageError, match="The saved model is not the one that was trained"):
            model.verify(folder)


def test_rounding_is_no_difference() -> None:
    model = merging.Output((1, 2), torch.tensor([[-3.0, -20.0], [-torch.inf, -0.5]]), torch.finfo(torch.float32).eps)
    near = merging.Output(model.tokens, model.values + 1e-3, model.epsilon)
    merging.refuse_difference(model, near, None, "It")
    half = merging.Output(model.tokens, model.values + 0.3, torch.finfo(torch.bfloat16).eps)
    merging.refuse_difference(model, half, None, "It")
