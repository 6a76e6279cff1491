"""What is saved can be read by everybody who may read the folder."""

import json
import logging
import os
import shutil
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
import torch
from offenders import for_each
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.models.backbone import load_backbone, save_model
from tutelage.models.heads import load_reward_model, new_reward_model
from tutelage.models.model_files import check_adapter, check_finite, check_vocabulary, save_files
from tutelage.models.policy import Policy


@for_each([(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_weights_have_the_permissions_that_the_umask_allows(umask, mode, tmp_path):
    source = tiny.save("llama", tmp_path / "source")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    before = os.umask(umask)
    try:
        save_files(model, tokenizer, tmp_path / "saved")
    finally:
        os.umask(before)
    files = [*(tmp_path / "saved").iterdir()]
    assert "model.safetensors" in {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {mode}


LORA = config.Lora(rank=2)


@pytest.fixture
def folder(tiny_model: Callable[..., str], tmp_path: Path) -> Callable[[str], Path]:
    """`folder(family)`: a copy of a tiny model to spoil."""
    return lambda family: Path(shutil.copytree(tiny_model(family), tmp_path / family))


def described(folder: Path, **changes: object) -> None:
    """Change the config.json of a folder."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def with_weights(folder: Path, **more: torch.Tensor) -> None:
    """Change or add weights of a folder; a name has __ for its dots."""
    file = folder / "model.safetensors"
    changes = {name.replace("__", "."): weight for name, weight in more.items()}
    save_file(load_file(file) | changes, file, metadata={"format": "pt"})


def load(folder: Path | str, lora: config.Lora | None = None) -> Policy:
    return Policy(load_backbone(config.Model(str(folder), device="cpu", engine="plain"), lora))


@pytest.mark.parametrize(("family", "key"), [("llama", "num_hidden_layers"), ("gpt2", "n_layer")])
def test_more_layers_than_the_configuration_counts(folder: Callable[[str], Path], family: str, key: str) -> None:
    path = folder(family)
    described(path, **{key: 1})
    with pytest.raises(TutelageError, match=r"of its weights belong to layers beyond its number of layers .*\.1\."):
        load(path)


def test_weights_without_a_place_are_named(folder: Callable[[str], Path], caplog: pytest.LogCaptureFixture) -> None:
    path = folder("llama")
    with_weights(path, v_head__summary__weight=torch.zeros(1, 16))
    with caplog.at_level(logging.WARNING):
        load(path)
    assert "holds 1 weight for which a LlamaForCausalLM has no place" in caplog.text
    assert "v_head.summary.weight" in caplog.text


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_reward_model_is_no_policy(folder: Callable[[str], Path], family: str, tmp_path: Path) -> None:
    """Neither where the head of words is missing nor where it is the embedding, and nothing is missing."""
    path = folder(family)
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=1, pad_token_id=0)
    save_model(model, AutoTokenizer.from_pretrained(path), tmp_path / "reward")
    with pytest.raises(TutelageError, match=r"is a reward model .*use a causal language model"):
        load(tmp_path / "reward")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_neither_loaded_nor_saved(
    folder: Callable[[str], Path], number: float, tmp_path: Path
) -> None:
    path = folder("llama")
    policy = load(path, config.Lora())
    spoilt = torch.ones(16)
    spoilt[3] = number
    with_weights(path, model__norm__weight=spoilt)
    with pytest.raises(TutelageError, match=r"llama' cannot be used: weights of model.norm.weight are not finite"):
        load(path)
    with torch.no_grad():
        policy.model.lm_head.weight[7, 3] = number
    for save in (policy.save, policy.save_whole):
        with pytest.raises(TutelageError, match=r"was not saved to .*: weights of lm_head.weight are not finite"):
            save(tmp_path / "spoilt")
    assert not (tmp_path / "spoilt").exists()


def test_an_adapter_that_is_no_number_is_not_saved(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    policy = load(tiny_model("llama"), LORA)
    with torch.no_grad():
        policy.parameters()[0].fill_(float("nan"))
    for save in (policy.save, policy.save_whole):
        with pytest.raises(TutelageError, match="not finite"):
            save(tmp_path / "spoilt")


def test_large_weights_are_finite() -> None:
    model = torch.nn.Linear(1000, 1000)
    torch.nn.init.constant_(model.weight, 3e38)  # their sum is not
    check_finite(model, "never")


def test_a_tokenizer_that_is_larger_than_the_embedding(folder: Callable[[str], Path]) -> None:
    path = folder("qwen3")
    speech = AutoTokenizer.from_pretrained(path)
    size = len(speech)
    assert speech.add_tokens(["<|image|>"], special_tokens=True) == 1
    speech.save_pretrained(path)
    load(path)  # nothing writes it
    speech.chat_template = tiny.CHATML + "<|image|>"
    speech.save_pretrained(path)
    with pytest.raises(TutelageError, match=rf"1 of its tokens \(<\|image\|>\) lie beyond the {size} rows"):
        load(path)
    speech.chat_template = tiny.CHATML
    speech.add_tokens(["gravity"])
    speech.save_pretrained(path)
    with pytest.raises(TutelageError, match=r"1 of its tokens \(gravity\) lie beyond"):
        load(path)


def test_tokens_beyond_the_embedding_that_every_text_has(folder: Callable[[str], Path]) -> None:
    """A start, an end or padding is written without a chat template that says so."""
    path = folder("qwen3")
    speech = AutoTokenizer.from_pretrained(path)
    speech.add_special_tokens({"pad_token": "<|nothing|>"})
    speech.save_pretrained(path)
    with pytest.raises(TutelageError, match=r"1 of its tokens \(<\|nothing\|>\) lie beyond"):
        load(path)


def test_the_tokenizer_of_another_model() -> None:
    other = torch.nn.Module()
    other.get_input_embeddings = lambda: torch.nn.Embedding(280, 4)  # type: ignore[assignment]
    with pytest.raises(TutelageError, match=rf"{len(tiny.tokenizer()) - 280} of its tokens .* beyond the 280 rows"):
        check_vocabulary(other, tiny.tokenizer(), "there")


def test_an_adapter_that_does_not_say_its_kind(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": 2, "task_type": null}')
    assert check_adapter(tmp_path, "SEQ_CLS", "reward model") == {"r": 2, "task_type": None}


def test_a_rank_beyond_that_of_the_layers(tiny_model: Callable[..., str]) -> None:
    with pytest.raises(TutelageError, match=r"--lora.rank is 100000, but no linear layer .* a rank above 16"):
        load(tiny_model("llama"), config.Lora(rank=100_000))
    with pytest.raises(TutelageError, match=r"--lora.rank is 17, but"):
        load(tiny_model("llama"), config.Lora(rank=17))
    load(tiny_model("llama"), config.Lora(rank=16))


def test_adapters_of_another_kind_of_model(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    base = config.Model(tiny_model("llama"), device="cpu", engine="plain")
    load(base.path, LORA).save(tmp_path / "policy")
    new_reward_model(base, LORA, seed=0).save(tmp_path / "reward")
    with pytest.raises(TutelageError, match=r"\(CAUSAL_LM\), not for a reward model: train one"):
        load_reward_model(config.Model(str(tmp_path / "policy"), device="cpu"))
    with pytest.raises(TutelageError, match=r"\(SEQ_CLS\), not for a language model"):
        load(tmp_path / "reward")


def test_an_adapter_for_a_base_of_another_shape(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    load(tiny_model("llama"), LORA).save(tmp_path / "policy")
    file = tmp_path / "policy" / "adapter_config.json"
    other = tiny_model("llama", hidden_size=32)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": other}))
    with pytest.raises(TutelageError, match=r"policy' does not fit .*, its base: .*shape"):
        load(tmp_path / "policy")


def test_nothing_warns_of_the_future_of_other_packages(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        policy = load(tiny_model("llama"), LORA)
        policy.save(tmp_path / "policy")
        load(tmp_path / "policy", LORA)
        new_reward_model(config.Model(tiny_model("llama"), device="cpu"), LORA, seed=0).save(tmp_path / "reward")
        load_reward_model(config.Model(str(tmp_path / "reward"), device="cpu"))
