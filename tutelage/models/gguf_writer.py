"""Export of a policy as a GGUF file, the format of llama.cpp: its architecture and weights in llama.cpp's layout.

llama.cpp has one implementation per architecture, with parameters stored under keys named by the package gguf. A
configuration that llama.cpp's implementation does not match is rejected, since the file would load but give different
outputs. The keys do not cover everything in transformers' configuration and tokenizer, and transformers' reader ignores
some of them. The file therefore also contains the folder's small files, under a key that other programs ignore;
`model_folder` unpacks them to restore the original model.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, RopeScalingType
from jaxtyping import Float
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tutelage.base.errors import TutelageError
from tutelage.models.gguf_tokenizer import INSTEAD, add_tokenizer
from tutelage.models.model_files import check_finite

Weight: TypeAlias = Float[Tensor, "..."]
"""A weight, of any shape."""

SWA_PERIOD = 6
"""Period of full-attention layers in Gemma 3, as hard-coded in llama.cpp."""


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp: its name, the assumptions of its implementation, and its layout of weights."""

    key: MODEL_ARCH
    required: Mapping[str, Any]
    """Required values of configuration settings that llama.cpp hard-codes."""
    add: Callable[[GGUFWriter, Any], None]
    """Writes the parameters of a configuration."""
    lay_out: Callable[[str, Weight, Any], Weight] = field(default=lambda name, weight, settings: weight)
    """Converts a weight to the layout of the file."""


def architecture_of(settings: Any) -> Architecture:
    """The architecture of a configuration of transformers.

    Raises TutelageError for unsupported architectures and for settings that llama.cpp does not support.
    """
    kind = settings.model_type
    if kind not in ARCHITECTURES:
        raise TutelageError(
            f"A model of the architecture {kind} cannot be written as a GGUF file here; these can: "
            f"{', '.join(sorted(ARCHITECTURES))}. {INSTEAD}."
        )
    architecture = ARCHITECTURES[kind]
    for name, expected in architecture.required.items():
        value = getattr(settings, name, expected)
        if value != expected:
            raise _refused(kind, name, value, repr(expected))
    return architecture


def frequency_factors(settings: Any) -> Float[Tensor, " half"] | None:
    """Divisors of the rotary frequencies, if the configuration scales them individually (Llama 3)."""
    rope = _rope(settings)
    if rope.get("rope_type") != "llama3":
        return None
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](settings, torch.device("cpu"))
    width = settings.head_dim
    plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    return plain / scaled


def _refused(kind: str, name: str, value: object, expected: str) -> TutelageError:
    return TutelageError(
        f"This {kind} model has {name} = {value!r} in its configuration, but llama.cpp requires {expected}; its GGUF "
        f"file would give different outputs. {INSTEAD}."
    )


def _rope(settings: Any) -> dict[str, Any]:
    """The rotary settings; those of full-attention layers if layer types differ."""
    rope = settings.rope_parameters
    return dict(rope.get("full_attention", rope))


def _add_sizes(writer: GGUFWriter, settings: Any) -> None:
    """Write the parameters common to all architectures."""
    writer.add_vocab_size(settings.vocab_size)
    writer.add_context_length(settings.max_position_embeddings)
    writer.add_embedding_length(settings.hidden_size)
    writer.add_block_count(settings.num_hidden_layers)
    writer.add_head_count(settings.num_attention_heads)


def _add_rotary(writer: GGUFWriter, settings: Any) -> None:
    """Write the parameters of an architecture with rotary positions, grouped-query attention and RMSNorm."""
    _add_sizes(writer, settings)
    heads = settings.hidden_size // settings.num_attention_heads
    width = getattr(settings, "head_dim", None) or heads
    writer.add_feed_forward_length(settings.intermediate_size)
    writer.add_head_count_kv(settings.num_key_value_heads)
    writer.add_layer_norm_rms_eps(settings.rms_norm_eps)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    rope = _rope(settings)
    writer.add_rope_freq_base(rope["rope_theta"])
    scaling = rope.get("rope_type", "default")
    match scaling:
        case "default" | "llama3":
            return
        case "linear":
            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        case "yarn" if not {"attention_factor", "mscale", "mscale_all_dim"} & {
            name for name, value in rope.items() if value is not None
        }:
            writer.add_rope_scaling_type(RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        case _:
            raise _refused(settings.model_type, "rope_parameters", rope, "default, linear, llama3 or plain yarn")


def _add_gemma(writer: GGUFWriter, settings: Any) -> None:
    _add_rotary(writer, settings)
    writer.add_sliding_window(settings.sliding_window)
    sizes = (settings.head_dim, settings.hidden_size // settings.num_attention_heads)
    scale = settings.query_pre_attn_scalar
    if scale != sizes[settings.num_hidden_layers in (46, 62)]:  # llama.cpp detects 27B models by their number of layers
        raise _refused(settings.model_type, "query_pre_attn_scalar", scale, "the width of a head")


def _add_gemma2(writer: GGUFWriter, settings: Any) -> None:
    _add_gemma(writer, settings)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        cap = getattr(settings, name)
        if not cap:
            raise _refused("gemma2", name, cap, "a cap")
    writer.add_attn_logit_softcapping(settings.attn_logit_softcapping)
    writer.add_final_logit_softcapping(settings.final_logit_softcapping)


def _add_gemma3(writer: GGUFWriter, settings: Any) -> None:
    _add_gemma(writer, settings)
    pattern = [
        "full_attention" if number % SWA_PERIOD == 0 else "sliding_attention"
        for number in range(1, settings.num_hidden_layers + 1)
    ]
    if list(settings.layer_types) != pattern:
        raise _refused("gemma3", "layer_types", settings.layer_types, f"full attention in each {SWA_PERIOD}th")
    local = settings.rope_parameters["sliding_attention"]["rope_theta"]
    writer.add_rope_freq_base_swa(local)


def _add_gpt2(writer: GGUFWriter, settings: Any) -> None:
    _add_sizes(writer, settings)
    writer.add_feed_forward_length(settings.n_inner or 4 * settings.n_embd)
    writer.add_layer_norm_eps(settings.layer_norm_epsilon)


def _by_pairs(name: str, weight: Weight, settings: Any) -> Weight:
    """Permute rows for rotary positions: llama.cpp rotates neighbouring rows of a head, transformers its two halves."""
    match = re.search(r"self_attn\.([qk])_proj\.", name)
    if not match:
        return weight
    heads = settings.num_attention_heads if match[1] == "q" else settings.num_key_value_heads
    return weight.view(heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _one_added(name: str, weight: Weight, settings: Any) -> Weight:
    """Add 1 to the weights of norms: Gemma multiplies by 1 + w, the file stores the factor."""
    return weight + 1 if name.endswith("norm.weight") else weight


def _transposed(name: str, weight: Weight, settings: Any) -> Weight:
    """Transpose matrices: GPT-2 stores [in, out], the file [out, in]."""
    return weight.T if re.search(r"\.(c_attn|c_proj|c_fc)\.weight$", name) else weight


ARCHITECTURES = {
    "llama": Architecture(MODEL_ARCH.LLAMA, {"hidden_act": "silu"}, _add_rotary, _by_pairs),
    "qwen2": Architecture(MODEL_ARCH.QWEN2, {"hidden_act": "silu", "use_sliding_window": False}, _add_rotary),
    "qwen3": Architecture(
        MODEL_ARCH.QWEN3, {"hidden_act": "silu", "use_sliding_window": False, "attention_bias": False}, _add_rotary
    ),
    "gemma2": Architecture(
        MODEL_ARCH.GEMMA2, {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}, _add_gemma2, _one_added
    ),
    "gemma3_text": Architecture(
        MODEL_ARCH.GEMMA3,
        {
            "hidden_activation": "gelu_pytorch_tanh",
            "attention_bias": False,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "use_bidirectional_attention": False,
        },
        _add_gemma3,
        _one_added,
    ),
    "gpt2": Architecture(
        MODEL_ARCH.GPT2,
        {
            "activation_function": "gelu_new",
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
        _add_gpt2,
        _transposed,
    ),
}
"""Supported architectures by transformers' `model_type`."""


def file_name(name: str, names: gguf.TensorNameMap) -> str:
    """The name of a transformers weight in the file. Raises TutelageError if it has none."""
    place = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if place is None:
        raise TutelageError(f"llama.cpp has no place for the weight {name}. {INSTEAD}.")
    return place


FILES = "tutelage.files"
"""Key of the folder's small files: a JSON object from names to contents."""

KINDS = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "bf16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
"""Storage types of matrices by name. Norms, biases and learned positions are always float32."""


def write_gguf(model: Any, tokenizer: Any, file: Path, kind: str, *, name: str) -> None:
    """Write a causal language model of transformers and its tokenizer to `file`, with matrices of type `kind`.

    The file appears only when complete. Raises TutelageError for a model or tokenizer that llama.cpp does not support,
    for non-finite weights, and if the file cannot be written.
    """
    settings = model.config
    architecture = architecture_of(settings)
    check_finite(model, f"{file} is not written")
    _, file_type = KINDS[kind]
    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        writer = GGUFWriter(unfinished, gguf.MODEL_ARCH_NAMES[architecture.key])
        writer.add_type("model")
        writer.add_name(name)
        writer.add_file_type(file_type)
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        architecture.add(writer, settings)
        add_tokenizer(writer, tokenizer, settings.vocab_size)
        with tempfile.TemporaryDirectory() as folder:
            settings.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            files = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).iterdir())}
        writer.add_string(FILES, json.dumps(files, ensure_ascii=False))
        for place, weight in _weights(model, architecture):
            _add_tensor(writer, place, weight, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(unfinished, file)
    except OSError as error:
        raise TutelageError(f"{file} cannot be written ({error.strerror}): give --out another place.") from error
    finally:
        if unfinished.exists():
            unfinished.unlink()


def small_files(reader: GGUFReader) -> Mapping[str, str]:
    """Configuration and tokenizer of a file written by `write_gguf`; empty for other files."""
    files: Mapping[str, str] = json.loads(text_of(reader, FILES) or "{}")
    return files


def text_of(reader: GGUFReader, key: str) -> str:
    """The text under a key; empty if missing."""
    field = reader.get_field(key)
    return "" if field is None else str(field.contents())


def _weights(model: Any, architecture: Architecture) -> Iterator[tuple[str, Tensor]]:
    """The weights with their names in the file."""
    settings = model.config
    names = gguf.get_tensor_name_map(architecture.key, settings.num_hidden_layers)
    factors = frequency_factors(settings) if hasattr(settings, "rope_parameters") else None
    if factors is not None:
        yield "rope_freqs.weight", factors
    for name, weight in model.named_parameters():  # tied weights once, as the embedding
        yield file_name(name, names), architecture.lay_out(name, weight.detach().float().cpu(), settings)


def _add_tensor(writer: GGUFWriter, place: str, weight: Tensor, kind: str) -> None:
    raw, _ = KINDS[kind]
    values = np.ascontiguousarray(weight.numpy())
    if weight.dim() < 2 or place.startswith("position_embd"):
        raw = GGMLQuantizationType.F32
    elif raw == GGMLQuantizationType.Q8_0 and weight.shape[-1] % gguf.GGML_QUANT_SIZES[raw][0]:
        raw = GGMLQuantizationType.F16  # rows that are not a multiple of the block size
    writer.add_tensor(place, values if raw == GGMLQuantizationType.F32 else gguf.quantize(values, raw), raw_dtype=raw)
