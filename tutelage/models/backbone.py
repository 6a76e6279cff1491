"""Loading and saving causal language models, with or without LoRA.

A folder may contain a full model or a LoRA adapter that refers to its base. Files are saved as transformers and PEFT
save them, so every folder loads with plain `from_pretrained`.
"""

import json
import logging
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.data.chat_tokens import end_token_ids
from tutelage.engines.choose import choose_dtype
from tutelage.engines.devices import available_memory, memory_of_other_programs, missing_gpu
from tutelage.engines.network import Backbone, about_context, checkpointed, context_of, inner, size_in
from tutelage.engines.plans.hardware import GIB
from tutelage.models.adapters import add_lora
from tutelage.models.gguf_reader import model_folder
from tutelage.models.merging import merge
from tutelage.models.model_files import (
    check_adapter,
    check_finite,
    check_saved,
    check_unused_weights,
    check_vocabulary,
    first_line,
    is_classifier,
    loading_adapter,
    refuse_missing,
    save_files,
)

FOREIGN = 0.2
"""Share of a GPU's memory held by other programs above which a warning is given."""
_log = logging.getLogger(__name__)
transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()  # relevant warnings are checked and raised below


def pick_device(name: str) -> torch.device:
    """The device called `name`; `auto` is a GPU if available."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TutelageError(f"There is no device called {name!r}; use auto, cpu, cuda or cuda:N.") from error
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise TutelageError(f"Device {name!r} was requested, but {missing_gpu()}. Use --model.device cpu.")
    if (count := torch.cuda.device_count()) <= (device.index or 0):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        of_these = "" if visible is None else f", with CUDA_VISIBLE_DEVICES set to {visible!r}"
        raise TutelageError(
            f"Device {name!r} was requested, but torch finds {counted(count, 'GPU')}, numbered from 0{of_these}."
        )
    return device


def pick_dtype(settings: config.Model, device: torch.device, model: nn.Module) -> torch.dtype:
    """The dtype in which `model` computes on its device. Logs the choice of `auto`.

    Raises TutelageError if bf16 is set on a GPU without it.
    """
    hidden = size_in(inner(model).config.get_text_config(), "hidden_size")
    dtype = choose_dtype(settings.dtype, device, settings.engine, hidden)
    if dtype == torch.bfloat16 and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
        raise TutelageError(
            f"{torch.cuda.get_device_name(device)} does not multiply bf16, which requires compute capability 8.0: "
            "use --model.dtype float32 or auto."
        )
    if settings.dtype == "auto" and dtype == torch.bfloat16:
        _tell_of_bf16(settings.path)
    return dtype


@cache
def _tell_of_bf16(path: str) -> None:
    """Log once per model that bf16 was chosen."""
    _log.info("%s uses bf16, chosen for this machine (--model.dtype).", path)


def is_adapter(path: str | Path) -> bool:
    """Whether the folder contains a LoRA adapter instead of a full model."""
    return os.path.isfile(Path(path) / "adapter_config.json")  # false for a name that is too long


def load_tokenizer(path: str, **source: str) -> Any:
    """The tokenizer of a model folder or hub name, or of `source` (see `gguf_reader.description_of`)."""
    try:
        return AutoTokenizer.from_pretrained(**source or {"pretrained_model_name_or_path": path})
    except Exception as error:  # transformers raises various types
        raise TutelageError(f"No tokenizer could be loaded from {path!r}: {first_line(error)}.") from error


def base_of(path: str) -> str:
    """Path of the base model of an adapter, or of the model itself."""
    if not is_adapter(path):
        return path
    base: str = json.loads((Path(path) / "adapter_config.json").read_text())["base_model_name_or_path"]
    return base


@phase("load")
def load_backbone(
    settings: config.Model, lora: config.Lora | None = None, *, seed: int = 0, checkpointing: bool = False
) -> Backbone:
    """Load the model of `settings`, ready for training.

    An adapter folder is merged into its base for full training (rank 0) and continued for LoRA training, which requires
    the same rank; a new adapter is initialised from `seed`. If `lora` is None, the model is loaded for inference.
    `checkpointing` recomputes layers in the backward pass (see `engines.network`).
    """
    device = pick_device(settings.device)
    folder = model_folder(settings.path)
    if not is_adapter(folder):
        check_folder(folder)
    tokenizer = load_tokenizer(folder)
    model: Any
    if is_adapter(folder):
        model = _load_adapter(folder, tokenizer, lora)
    else:
        model = load_whole(folder)
        if lora is not None and lora.rank:
            model = add_lora(model, lora, task="CAUSAL_LM", seed=seed)
    check_vocabulary(inner(model), tokenizer, settings.path)
    switch_off_dropout(model)
    dtype = pick_dtype(settings, device, model)
    # Buffers keep their dtype: rotary frequencies in bfloat16 would put angles off by up to a radian after
    # a few hundred tokens.
    for weight in model.parameters():
        weight.data = weight.data.to(torch.float32 if lora is not None else dtype)
    loaded = Backbone(to_device(model, device), tokenizer, device, dtype, settings.engine)
    context = context_of(model)
    if context != getattr(inner(model).config.get_text_config(), "max_position_embeddings", context):
        _log.info("Rows are limited: %s.", about_context(model).format(counted(context or 0, "token")))
    return checkpointed(loaded) if checkpointing else loaded


def to_device(model: Any, device: torch.device) -> Any:
    """Move a model to a device. Warns if other programs hold much of a GPU; raises TutelageError if it has no room."""
    if device.type != "cuda":
        return model.to(device)
    if device.index is not None:
        torch.cuda.set_device(device)  # graphs and kernels run on the current one
    _warn_of_other_programs(device)
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        size = sum(weight.numel() * weight.element_size() for weight in model.parameters()) / GIB
        raise TutelageError(
            f"The weights of the model take {size:.1f} GiB, and {device} has {available_memory(device) / GIB:.1f} GiB "
            "free. End other programs on the GPU (nvidia-smi lists them), or use a smaller model or --model.device cpu."
        ) from error


@cache
def _warn_of_other_programs(device: torch.device) -> None:
    """Warn once, before the first model is loaded, if other programs hold more than `FOREIGN` of a GPU."""
    held, total = memory_of_other_programs(device), torch.cuda.get_device_properties(device).total_memory
    if held > FOREIGN * total:
        _log.warning(
            "Other programs hold %.1f of the %.1f GiB of %s: micro-batches are sized by what is free now.",
            held / GIB,
            total / GIB,
            device,
        )


def load_whole(path: str) -> PreTrainedModel:
    """The causal language model of a folder or hub name, in float32. Raises TutelageError if weights are missing."""
    check_folder(path)
    if is_classifier(path):
        raise TutelageError(
            f"{path!r} is a reward model (a sequence classifier), which cannot generate text: use a causal "
            "language model, such as the base of the reward model."
        )
    model, missing = load_exactly(AutoModelForCausalLM, path, "causal language model")
    refuse_missing(path, model, missing)
    if getattr(model.config, "rescale_every", 0):  # RWKV would halve weights at its first forward pass, and save them
        model.config.rescale_every = 0
    return model


@phase("load")
@torch.no_grad()
def load_weights(model: nn.Module, path: str) -> None:
    """Replace the weights of a model by those of a folder: a full model, or an adapter, which is merged.

    Adapters of `model` itself do not change. Raises TutelageError, without changes, if the names or shapes of weights
    differ.
    """
    source = _load_adapter(path, load_tokenizer(path)) if is_adapter(path) else load_whole(path)
    weights = dict(source.named_parameters())
    own = {
        name.replace(".base_layer.", "."): parameter
        for name, parameter in inner(model).named_parameters()
        if ".lora_" not in name
    }
    refusal = f"{path!r} holds a model of another shape: the weight"
    for name in sorted(own.keys() ^ weights.keys()):
        where = "is missing in" if name in own else "is only in"
        raise TutelageError(f"{refusal} {name} {where} this folder.")
    for name, parameter in own.items():
        there, here = tuple(weights[name].shape), tuple(parameter.shape)
        if there != here:
            raise TutelageError(f"{refusal} {name} has the shape {there} instead of {here}.")
    for name, parameter in own.items():
        parameter.copy_(weights[name])


def load_exactly(kind: Any, path: str, what: str) -> tuple[Any, list[str]]:
    """Load the model of a folder as `kind`. Returns the model and the names of missing weights, which are random.

    Raises TutelageError if it cannot be loaded, or if a weight is not finite or does not match the shapes and number of
    layers in config.json.
    """
    try:
        model, report = kind.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except Exception as error:  # transformers raises various types
        raise TutelageError(f"{path!r} could not be loaded as a {what}: {first_line(error)}.") from error
    for name, there, expected in sorted(report["mismatched_keys"]):
        raise TutelageError(
            f"{path!r} is not the {what} that its config.json describes: {name} has the shape {tuple(there)} instead "
            f"of {tuple(expected)}."
        )
    check_unused_weights(model, path, what, report["unexpected_keys"])
    check_finite(model, f"{path!r} cannot be used")
    return model, sorted(report["missing_keys"])


def check_folder(path: str) -> None:
    """Raise TutelageError for a local folder that is not a model, stating what is missing."""
    folder = Path(path)
    if not os.path.exists(folder):
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise TutelageError(f"There is no model folder {path!r}.")
        return  # may be a hub name
    if not (folder / "config.json").is_file():
        raise TutelageError(f"{path!r} is not a model folder: it has no config.json.")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise TutelageError(f"{path!r} has a config.json but no weights (*.safetensors).")


def _load_adapter(path: str, tokenizer: Any, lora: config.Lora | None = None) -> PreTrainedModel | PeftModel:
    settings = check_adapter(path, "CAUSAL_LM", "language model")
    name = settings["base_model_name_or_path"]
    base = load_whole(name)
    with loading_adapter(path, name):
        model = PeftModel.from_pretrained(base, path, is_trainable=lora is not None and lora.rank > 0)
    check_finite(model, f"{path!r} cannot be used")
    if lora is None or not lora.rank:
        return merge(model, tokenizer).requires_grad_(True)
    if settings.get("r") != lora.rank:
        raise TutelageError(
            f"{path!r} is a LoRA adapter of rank {settings.get('r')}, but --lora.rank is {lora.rank}. "
            f"Give --lora.rank {settings.get('r')} to train it further, or 0 to merge it and train all weights."
        )
    return model


def adapter_dropout(model: nn.Module, on: bool) -> None:
    """Enable or disable dropout before LoRA adapters. The base model is never in training mode."""
    for name, module in model.named_modules():
        if "lora_dropout" in name:
            module.train(on)


def switch_off_dropout(model: nn.Module) -> None:
    """Set every dropout of the base model to 0, since otherwise the first ratio of a PPO step would not be 1."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and "lora_dropout" not in name:
            module.p = 0.0
    rates = ("dropout", "attention_dropout", "activation_dropout")
    for key in (*rates, "attn_pdrop", "resid_pdrop", "embd_pdrop"):
        if isinstance(getattr(inner(model).config, key, None), float):
            setattr(inner(model).config, key, 0.0)
    for module in model.modules():
        for key in rates:
            if isinstance(getattr(module, key, None), float):
                setattr(module, key, 0.0)


def save_model(model: PreTrainedModel | PeftModel, tokenizer: Any, folder: Path) -> None:
    """Write weights, configuration and tokenizer as transformers or PEFT do. Raises TutelageError for non-finite
    weights. Of several adapters, only the trained one is written.

    Embeddings that PEFT would save beside an adapter, because they are adapted or larger than the base's, are omitted.
    An extra row belongs to the pad token and is 0, so loading recreates it.
    """
    check_saved(model, folder)
    more: dict[str, Any] = {}
    if isinstance(model, PeftModel):
        more = {"save_embedding_layers": False, "selected_adapters": ["default"]}
    save_files(model, tokenizer, folder, **more)


@dataclass(frozen=True)
class ModelVocabulary:
    """A model's tokenizer and end tokens, without its weights."""

    tokenizer: Any
    end_ids: tuple[int, ...]


def load_vocabulary(path: str) -> ModelVocabulary:
    """Load the vocabulary of a model folder, an adapter or a hub name. Raises TutelageError if there is none."""
    tokenizer = load_tokenizer(path)
    try:
        settings = GenerationConfig.from_pretrained(base_of(path))
    except OSError:  # a model need not have one
        settings = None
    return ModelVocabulary(tokenizer, end_token_ids(tokenizer, settings))
