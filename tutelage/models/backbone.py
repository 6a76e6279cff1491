"""Loading and saving causal language models, with or without LoRA.

A folder may hold a whole model or a LoRA adapter that names its base. What we save is what transformers and PEFT
save, so that every folder of ours loads with plain `from_pretrained`.
"""

import json
import logging
from functools import cache
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.engines.choose import choose_dtype
from tutelage.engines.network import Backbone, checkpointed, inner
from tutelage.models.gguf_reader import model_folder
from tutelage.models.merging import merge, tied_layers
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
    without_warnings,
)

_log = logging.getLogger(__name__)
transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()  # what matters of its warnings is checked and raised below


def pick_device(name: str) -> torch.device:
    """The device called `name`; `auto` takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TutelageError(f"There is no device called {name!r}; use auto, cpu, cuda or cuda:N.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TutelageError(f"Device {name!r} was asked for, but torch finds no GPU. Use --model.device cpu.")
    return device


def pick_dtype(settings: config.Model, device: torch.device, model: nn.Module) -> torch.dtype:
    """The precision in which `model` computes on its device. A remark says what `auto` took."""
    hidden = int(inner(model).config.get_text_config().hidden_size)
    dtype = choose_dtype(settings.dtype, device, settings.engine, hidden)
    if settings.dtype == "auto" and dtype == torch.bfloat16:
        _tell_of_bf16(settings.path)
    return dtype


@cache
def _tell_of_bf16(path: str) -> None:
    """Say once for each model that bf16 was chosen."""
    _log.info("%s computes in bf16, chosen for this machine (--model.dtype).", path)


def is_adapter(path: str | Path) -> bool:
    """Whether the folder holds a LoRA adapter instead of a whole model."""
    return (Path(path) / "adapter_config.json").is_file()


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a model folder or hub name."""
    try:
        return AutoTokenizer.from_pretrained(path)
    except Exception as error:  # transformers raises many kinds for the same fault
        raise TutelageError(f"No tokenizer could be loaded from {path!r}: {first_line(error)}.") from error


def base_of(path: str) -> str:
    """The whole model behind an adapter, or the model itself."""
    if not is_adapter(path):
        return path
    base: str = json.loads((Path(path) / "adapter_config.json").read_text())["base_model_name_or_path"]
    return base


@phase("load")
def load_backbone(
    settings: config.Model, lora: config.Lora | None = None, *, seed: int = 0, checkpointing: bool = False
) -> Backbone:
    """The model of `settings`, ready to train.

    An adapter folder is merged into its base for full training (rank 0) and continued for LoRA training, which
    needs the same rank; the weights of a new adapter are drawn by `seed`. With `lora` None the model is loaded for
    inference. `checkpointing` computes layers again in the backward pass (see `engines.network`).
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
    # Buffers stay as they are: with the frequencies of rotary positions rounded to bfloat16, the angle of a token would
    # be off by up to a radian after some hundred others.
    for weight in model.parameters():
        weight.data = weight.data.to(torch.float32 if lora is not None else dtype)
    loaded = Backbone(model.to(device), tokenizer, device, dtype, settings.engine)
    return checkpointed(loaded) if checkpointing else loaded


def load_whole(path: str) -> PreTrainedModel:
    """The causal language model of a folder or hub name, in float32. Raises TutelageError if it lacks weights."""
    check_folder(path)
    if is_classifier(path):
        raise TutelageError(
            f"{path!r} is a reward model (a sequence classifier), which cannot write: give a causal language model, "
            "such as the one that the reward model was trained from."
        )
    model, missing = load_exactly(AutoModelForCausalLM, path, "causal language model")
    refuse_missing(path, model, missing)
    return model


@phase("load")
@torch.no_grad()
def load_weights(model: nn.Module, path: str) -> None:
    """Replace the weights of a model by those of a folder: a whole model, or an adapter, which is merged.

    Adapters of `model` itself stay as they are. Raises TutelageError, and changes nothing, where the folder has other
    weights than the model.
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
    """(the model of a folder as `kind`, the names of weights that were not there and are random now).

    Raises TutelageError when it cannot be loaded, when a weight has another shape than config.json says, belongs to a
    layer that config.json does not count, or is not finite.
    """
    try:
        model, report = kind.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except Exception as error:  # transformers raises many kinds for the same fault
        raise TutelageError(f"{path!r} could not be loaded as a {what}: {first_line(error)}.") from error
    for name, there, wanted in sorted(report["mismatched_keys"]):
        raise TutelageError(
            f"{path!r} is not the {what} that its config.json describes: {name} has the shape {tuple(there)} instead "
            f"of {tuple(wanted)}."
        )
    check_unused_weights(model, path, what, report["unexpected_keys"])
    check_finite(model, f"{path!r} cannot be used")
    return model, sorted(report["missing_keys"])


def check_folder(path: str) -> None:
    """Refuse a local folder that cannot be a model, with a word on what it lacks."""
    folder = Path(path)
    if not folder.exists():
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


def add_lora(
    model: PreTrainedModel, lora: config.Lora, *, task: str, seed: int, save: list[str] | None = None
) -> PeftModel:
    """A LoRA adapter (Hu et al. 2021, arXiv 2106.09685) on every linear layer but the head, or on `targets`.

    Its weights are drawn by `seed`. `save` names modules that are trained and saved whole, such as a reward head.
    """
    _refuse_rank(model, lora.rank)
    targets: str | list[str] = "all-linear" if lora.targets == "auto" else lora.targets.split(",")
    settings = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft divides by the rank; any number will do
        lora_dropout=lora.dropout,
        target_modules=targets,
        modules_to_save=save,
        task_type=task,
    )
    try:
        with torch.random.fork_rng(devices=[]), without_warnings():
            torch.manual_seed(seed)
            adapted = get_peft_model(model, settings).eval()
    except ValueError as error:
        names = sorted(
            {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Linear)}
        )
        raise TutelageError(
            f"--lora.targets {lora.targets!r} matches no layer of this model. "
            f"Its linear layers are: {', '.join(names)}."
        ) from error
    if tied := tied_layers(adapted):
        _log.info(
            "%s has an adapter (--lora.targets), and its weight is also that of another layer: the saved model has a "
            "matrix for each (tie_word_embeddings is false).",
            " and ".join(tied),
        )
    return adapted


def _refuse_rank(model: nn.Module, rank: int) -> None:
    """Refuse a rank beyond that of every linear layer: B A of rank r cannot exceed the rank of W."""
    widest = max(
        (min(weight.shape) for weight in model.parameters() if weight.dim() == 2),
        default=rank,
    )
    if rank > widest:
        raise TutelageError(
            f"--lora.rank is {rank}, but no linear layer of this model has a rank above {widest}: 8 to 64 are usual, "
            "and 0 trains the weights themselves."
        )


def adapter_dropout(model: nn.Module, on: bool) -> None:
    """Switch the dropout before LoRA adapters on or off. The base model is never in training mode."""
    for name, module in model.named_modules():
        if "lora_dropout" in name:
            module.train(on)


def switch_off_dropout(model: nn.Module) -> None:
    """Set every dropout of the base model to 0: with it, the first ratio of a PPO step would not be 1."""
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
    """Write weights, configuration and tokenizer as transformers (or PEFT) would; weights that are not finite are
    refused. Of a model with several adapters the trained one is written.

    Beside an adapter PEFT would write an embedding that is adapted, or has a row more than the base's. That row belongs
    to the pad token and is 0, so loading makes it anew.
    """
    check_saved(model, folder)
    more: dict[str, Any] = {}
    if isinstance(model, PeftModel):
        more = {"save_embedding_layers": False, "selected_adapters": ["default"]}
    save_files(model, tokenizer, folder, **more)


def context_length(path: str) -> int | None:
    """The context length of a model, if its configuration states it."""
    settings = AutoConfig.from_pretrained(base_of(path)).get_text_config()
    return getattr(settings, "max_position_embeddings", None)
