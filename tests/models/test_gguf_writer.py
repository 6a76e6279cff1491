"""GGUF files that are written: read back by gguf, by transformers, by `--model`, and by llama.cpp where it is there."""

import json
import math
import urllib.request
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader
from offenders import for_each
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config

from tutelage.base.errors import TutelageError
from tutelage.models.gguf_reader import model_folder
from tutelage.models.gguf_writer import frequency_factors, write_gguf

ROPE = {
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 24},
    "linear": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
}

CASES = {
    "llama": ("llama", {"num_key_value_heads": 2, "attention_bias": True, "tie_word_embeddings": True}),
    "llama3": ("llama", {"rope_parameters": ROPE["llama3"]}),
    "yarn": ("llama", {"rope_parameters": ROPE["yarn"]}),
    "linear": ("llama", {"rope_parameters": ROPE["linear"]}),
    "qwen3": ("qwen3", {}),
    "gemma2": ("gemma2", {}),
    "gemma3": ("gemma3", {"layer_types": ["sliding_attention"] * 2}),
    "gpt2": ("gpt2", {}),
}
"""Models by what is particular about them: a family of `tiny`, and changes of its configuration."""

TEXTS = (
    "Why 123  is, it's?",
    "User: Was ist Schnee? \n\n It's ❄ cold",
    "  two  spaces \t",
    "<|im_start|>user\nWhy 1234567?<|im_end|>\n<|im_start|>assistant\n",
    "naïve café 日本語 ٣٤٥ ½ I'LL we'd",
    "",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """`made(case)`: the folder of a model with a chat template, made once."""
    folders: dict[str, str] = {}

    def folder(case: str) -> str:
        if case not in folders:
            family, shape = CASES[case]
            folders[case] = tiny.save(
                family, tmp_path_factory.mktemp(case), words={"chat": True, "pad": tiny.PAD}, **shape
            )
        return folders[case]

    return folder


def written(folder: str, file: Path, kind: str = "f32") -> Path:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    write_gguf(model, tokenizer, file, kind, name="tiny")
    return file


def logits(folder: str) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder)(torch.arange(60)[None]).logits


def assert_same_tokenizer(ours, theirs) -> None:
    for text in TEXTS:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"], text
    assert ours.chat_template == theirs.chat_template
    assert (ours.eos_token, ours.pad_token) == (theirs.eos_token, theirs.pad_token)


@for_each(CASES)
def test_a_file_of_float32_is_the_model_that_it_was_written_from(case, made, tmp_path) -> None:
    folder = made(case)
    again = model_folder(str(written(folder, tmp_path / "tiny.gguf")))
    source, back = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (folder, again))
    for name, weight in source.items():
        exact = not (case.startswith("gemma") and name.endswith("norm.weight"))  # the file holds 1 + w
        torch.testing.assert_close(back[name], weight, rtol=0, atol=0 if exact else 1e-7, msg=name)
    torch.testing.assert_close(logits(again), logits(folder), rtol=0, atol=1e-5)
    assert_same_tokenizer(AutoTokenizer.from_pretrained(again), AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_reader_of_transformers_finds_the_same_model(made, family, tmp_path) -> None:
    folder = made("llama")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    if family == "qwen2":
        shape = {key: getattr(model.config, key) for key in ("hidden_size", "num_hidden_layers", "vocab_size")}
        model = AutoModelForCausalLM.from_config(
            Qwen2Config(**shape, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2)
        )
        tiny.roughen(model)
    elif model.config.attention_bias:  # transformers' reader does not know of biases of a Llama
        model = AutoModelForCausalLM.from_pretrained(tiny.save("llama", tmp_path / "plain", words={"chat": True}))
    write_gguf(model, tokenizer, tmp_path / "tiny.gguf", "f32", name="tiny")
    source = {"pretrained_model_name_or_path": tmp_path, "gguf_file": "tiny.gguf"}
    back = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(back.state_dict()[name], weight, rtol=0, atol=0)
    tokens = torch.arange(60)[None]
    with torch.no_grad():
        torch.testing.assert_close(back(tokens).logits, model(tokens).logits, rtol=0, atol=1e-5)
    assert_same_tokenizer(AutoTokenizer.from_pretrained(**source), tokenizer)


@for_each([("f16", Kind.F16), ("bf16", Kind.BF16), ("q8_0", Kind.Q8_0)])
def test_matrices_have_the_kind_that_was_asked_for_and_norms_are_whole(kind, raw, tmp_path) -> None:
    wide = {"hidden_size": 32, "head_dim": 8, "intermediate_size": 48}
    folder = tiny.save("llama", tmp_path / "llama", **wide)
    found = {one.name: one for one in GGUFReader(written(folder, tmp_path / "tiny.gguf", kind)).tensors}
    weights = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert len(found) == len(weights)
    assert found["blk.0.attn_norm.weight"].tensor_type == Kind.F32
    assert found["blk.0.attn_v.weight"].tensor_type == raw
    narrow = Kind.F16 if raw == Kind.Q8_0 else raw  # 48 numbers fill no whole number of blocks of 32
    assert found["blk.0.ffn_down.weight"].tensor_type == narrow
    for name, place in (("self_attn.v_proj", "attn_v"), ("mlp.up_proj", "ffn_up")):
        weight = weights[f"model.layers.0.{name}.weight"].numpy()
        there = found[f"blk.0.{place}.weight"]
        values = gguf.dequantize(there.data, there.tensor_type)
        np.testing.assert_array_equal(values, gguf.dequantize(gguf.quantize(weight, raw), raw))
        assert np.abs(values - weight).max() <= np.abs(weight).max() / 127


def test_the_keys_say_what_the_configuration_says(made, tmp_path) -> None:
    reader = GGUFReader(written(made("llama3"), tmp_path / "tiny.gguf"))
    value = {key: field.contents() for key, field in reader.fields.items() if "." in key}
    tokenizer = AutoTokenizer.from_pretrained(made("llama3"))
    assert value["general.architecture"] == "llama"
    assert value["llama.context_length"] == tiny.CONTEXT
    assert value["llama.rope.dimension_count"] == 4
    assert value["llama.attention.head_count_kv"] == 4
    assert value["tokenizer.ggml.pre"] == "gpt-2"
    assert value["tokenizer.ggml.eos_token_id"] == tokenizer.eos_token_id
    assert value["tokenizer.ggml.add_bos_token"] is False
    assert value["tokenizer.chat_template"] == tiny.CHATML
    assert value["tokenizer.ggml.tokens"][tokenizer.eos_token_id] == tokenizer.eos_token
    assert "rope_freqs.weight" in {one.name for one in reader.tensors}


def test_frequencies_of_llama_3_are_divided_by_wavelength() -> None:
    """High frequencies stay, low ones are divided by the factor, and those between go from one to the other."""
    settings = LlamaConfig(hidden_size=64, num_attention_heads=1, head_dim=64, rope_parameters=ROPE["llama3"])
    factors = frequency_factors(settings)
    for i in range(32):
        wavelength = 2 * math.pi * 10000 ** (2 * i / 64)
        share = min(max((32 / wavelength - 1.0) / (4.0 - 1.0), 0.0), 1.0)
        assert factors[i] == pytest.approx(1 / ((1 - share) / 8 + share), rel=1e-4)
    assert {float(factors[0]), float(factors[-1])} == {1.0, 8.0}


def test_what_llama_cpp_computes_otherwise_is_refused_and_leaves_no_file(tmp_path) -> None:
    for family, shape, sentence in (
        ("opt", {}, "architecture opt cannot be written as a GGUF file here; these can: gemma2, .*llama"),
        ("gpt2", {"activation_function": "relu"}, "activation_function = 'relu'"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic"),
        ("gemma3", {}, "layer_types = .* full attention in each 6th"),
        ("gemma2", {"query_pre_attn_scalar": 9}, "query_pre_attn_scalar = 9"),
    ):
        folder = tiny.save(family, tmp_path / family, **shape)
        with pytest.raises(TutelageError, match=sentence):
            written(folder, tmp_path / "tiny.gguf")
    assert not list(tmp_path.glob("*gguf*"))
    (tmp_path / "occupied").write_text("")
    folder = tiny.save("llama", tmp_path / "llama")
    with pytest.raises(TutelageError, match="give --out another place"):
        written(folder, tmp_path / "occupied" / "tiny.gguf")


@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_computes_the_same_probabilities_from_the_same_tokens(made, case, tmp_path) -> None:
    """Runs where the package xllamacpp is installed, which holds llama.cpp. Its GELU is a table in half precision."""
    llama_cpp = pytest.importorskip("xllamacpp")
    folder = made(case)
    params = llama_cpp.CommonParams()
    params.model.path = str(written(folder, tmp_path / "tiny.gguf"))
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 90, 1, 1
    params.cache_type_k = params.cache_type_v = llama_cpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = llama_cpp.Server(params)

    def post(path: str, body: dict) -> dict:
        request = urllib.request.Request(
            server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request))

    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        answer = post("/tokenize", {"content": text, "add_special": True, "parse_special": True})
        assert answer["tokens"] == tokenizer(text)["input_ids"], text
    with torch.no_grad():
        distributions = AutoModelForCausalLM.from_pretrained(folder)(torch.arange(60)[None]).logits.log_softmax(-1)
    compared = 0
    for length in (60, 52, 40, 25):  # where half a character would be answered, the server leaves the numbers out
        body = {"prompt": list(range(length)), "n_predict": 1, "n_probs": 300, "temperature": 0.0}
        for one in post("/completion", body).get("completion_probabilities", [])[:1]:
            found = {item["id"]: item["logprob"] for item in one["top_logprobs"]}
            for token, value in found.items():
                expected = distributions[0, length - 1, token].item()
                assert value == pytest.approx(expected, abs=2e-3 if case.startswith("g") else 1e-5)
            compared += len(found)
    assert compared >= 300
