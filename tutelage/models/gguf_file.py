"""A policy written as a GGUF file, the format of llama.cpp.

llama.cpp's keys do not say everything that transformers' configuration and tokenizer say, and transformers' own reader
passes over some of what they do say. So the file also holds the folder's small files, under a key that other programs
pass over: `model_folder` unpacks them, and the model is loaded as it was.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.models.checking import check_finite
from tutelage.models.gguf_architectures import Architecture, architecture_of, file_name, frequency_factors
from tutelage.models.gguf_words import add_tokenizer

FILES = "tutelage.files"
"""The key of the folder's small files: JSON from names to texts."""

KINDS = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "bf16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
"""How matrices may be held, by name. Norms, biases and learnt positions are float32 in every file."""


def write_gguf(model: Any, tokenizer: Any, file: Path, kind: str, *, name: str) -> None:
    """Write a causal language model of transformers and its tokenizer as `file`, whose matrices are of the `kind`.

    The file appears when it is complete. Raises TutelageError for a model or a tokenizer that llama.cpp computes
    otherwise, for weights that are not finite, and where the file cannot be written.
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
        writer.add_string(FILES, json.dumps(_small_files(model, tokenizer), ensure_ascii=False))
        for place, weight in _weights(model, architecture):
            _add_tensor(writer, place, weight, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(unfinished, file)
    except OSError as error:
        raise TutelageError(
            f"{file} cannot be written ({error.strerror}): give --out another place."
        ) from error
    finally:
        if unfinished.exists():
            unfinished.unlink()


def small_files(reader: GGUFReader) -> Mapping[str, str]:
    """The configuration and the tokenizer of a file that `write_gguf` made; empty for a file of another program."""
    files: Mapping[str, str] = json.loads(text_of(reader, FILES) or "{}")
    return files


def text_of(reader: GGUFReader, key: str) -> str:
    """The text of a key; empty where the file lacks it."""
    found = reader.get_field(key)
    return "" if found is None else str(found.contents())


def _small_files(model: Any, tokenizer: Any) -> dict[str, str]:
    """The configuration and the tokenizer as transformers writes them: the texts by the names of the files."""
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).iterdir())}


def _weights(model: Any, architecture: Architecture) -> Iterator[tuple[str, Tensor]]:
    """The weights with their names in the file."""
    settings = model.config
    names = gguf.get_tensor_name_map(architecture.key, settings.num_hidden_layers)
    factors = frequency_factors(settings) if hasattr(settings, "rope_parameters") else None
    if factors is not None:
        yield "rope_freqs.weight", factors
    for name, weight in model.named_parameters():  # tied weights once, under the name of the embedding
        yield file_name(name, names), architecture.lay_out(name, weight.detach().float().cpu(), settings)


def _add_tensor(writer: GGUFWriter, place: str, weight: Tensor, kind: str) -> None:
    raw, _ = KINDS[kind]
    values = np.ascontiguousarray(weight.numpy())
    if weight.dim() < 2 or place.startswith("position_embd"):
        raw = GGMLQuantizationType.F32
    elif raw == GGMLQuantizationType.Q8_0 and weight.shape[-1] % gguf.GGML_QUANT_SIZES[raw][0]:
        raw = GGMLQuantizationType.F16  # rows that no whole number of blocks fills
    writer.add_tensor(
        place, values if raw == GGMLQuantizationType.F32 else gguf.quantize(values, raw), raw_dtype=raw
    )
