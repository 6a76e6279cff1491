"""Model folders: saving with shared permissions, and checks for errors that would otherwise be silent or late."""

import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted


def save_files(model: Any, tokenizer: Any, folder: Path | str, **more: Any) -> None:
    """Write `model` (with `more` for its `save_pretrained`) and `tokenizer` into a folder.

    safetensors makes weights readable by their owner only, whatever the umask; they get the permissions of the
    configuration file, so that other accounts can load the model. Raises OSError.
    """
    model.save_pretrained(str(folder), **more)
    tokenizer.save_pretrained(str(folder))
    folder = Path(folder)
    for configuration in (*folder.glob("config.json"), *folder.glob("adapter_config.json")):
        for weights in folder.glob("*.safetensors"):
            weights.chmod(configuration.stat().st_mode)


log = logging.getLogger(__name__)

CLASSIFIER = "ForSequenceClassification"


def is_classifier(path: str) -> bool:
    """Whether the config.json of a model folder or hub name declares a classifier, as that of a saved reward model
    does."""
    try:
        names = AutoConfig.from_pretrained(path).architectures or []
    except Exception:  # errors in the configuration are reported when the model is loaded
        return False
    return any(name.endswith(CLASSIFIER) for name in names)


def check_unused_weights(model: nn.Module, path: str, what: str, unused: Iterable[str]) -> None:
    """Check for unused weights: raise an error for layers beyond the configuration, log a warning for all others.

    Raises TutelageError for weights that match the model's except for their layer number.
    """
    names = sorted(unused)
    own = {without_numbers(name) for name in model.state_dict()}
    of_layers = [name for name in names if without_numbers(name) in own]
    if of_layers:
        raise TutelageError(
            f"{path!r} is not the {what} that its config.json describes: {len(of_layers)} of its weights belong to "
            f"layers beyond its number of layers ({listed(of_layers)}) and would be ignored. Correct the number of "
            "layers in config.json."
        )
    if names:
        log.warning(
            f"{path!r} holds {counted(len(names), 'weight')} for which a {type(model).__name__} has no place: "
            f"{listed(names)}. They are not used."
        )


def check_finite(model: nn.Module, action: str) -> None:
    """Raise TutelageError if a weight is not a finite number; `action` begins the message."""
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or not weight.numel() or weight.is_meta:
            continue
        low, high = torch.aminmax(weight.detach())  # both are nan if any element is
        if not (low.isfinite() & high.isfinite()):
            raise TutelageError(
                f"{action}: weights of {name} are not finite numbers. Where training did it, a lower learning rate is "
                "the usual cure; the checkpoints before it are good."
            )


def check_saved(model: nn.Module, folder: Path) -> None:
    """Raise TutelageError for non-finite weights before saving."""
    check_finite(model, f"The model was not saved to {folder}")


def check_adapter(path: str | Path, task: str, what: str) -> dict[str, Any]:
    """The adapter_config.json of an adapter for `task`, "CAUSAL_LM" or "SEQ_CLS", or without a task.

    Raises TutelageError for another task; `what` describes the expected kind of model.
    """
    settings: dict[str, Any] = json.loads((Path(path) / "adapter_config.json").read_text(encoding="utf-8"))
    if settings.get("task_type") not in (task, None):
        raise TutelageError(
            f"{str(path)!r} is an adapter for another kind of model ({settings['task_type']}), not for a {what}."
        )
    return settings


@contextmanager
def loading_adapter(path: str, base: str) -> Iterator[None]:
    """Context in which PEFT loads the adapter at `path` for `base` without warnings. Raises TutelageError if they do
    not match."""
    try:
        with without_warnings():
            yield
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise TutelageError(f"The adapter {path!r} does not fit {base!r}, its base: {lines[-1].strip()}") from error


@contextmanager
def without_warnings() -> Iterator[None]:
    """Context that suppresses warnings of PEFT and transformers about future changes and about adapters on tied
    weights, which `merging` handles."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`")
        yield


def check_vocabulary(model: Any, tokenizer: Any, path: str) -> None:
    """Raise TutelageError for a tokenizer with tokens beyond the embedding of the model.

    Special tokens beyond the embedding are allowed if they are never produced: neither by the chat template nor as
    start, end or padding of a text (such as the image token of Gemma 3's text models).
    """
    rows = int(model.get_input_embeddings().weight.shape[0])
    if len(tokenizer) <= rows:
        return
    added = tokenizer.added_tokens_decoder
    template = str(getattr(tokenizer, "chat_template", None) or "")
    used = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    beyond = sorted((place, token) for token, place in tokenizer.get_vocab().items() if place >= rows)
    excess = [
        token
        for place, token in beyond
        if place not in added or not added[place].special or place in used or token in template
    ]
    if excess:
        raise TutelageError(
            f"The tokenizer of {path!r} does not belong to its model: {len(excess)} of its tokens "
            f"({listed(excess)}) lie beyond the {counted(rows, 'row')} of the embedding. Use the tokenizer that the "
            "model was trained with, or resize the embedding (model.resize_token_embeddings) and save it again."
        )


def refuse_missing(path: str, model: nn.Module, names: list[str]) -> None:
    """Raise TutelageError for a checkpoint that lacks weights of its model."""
    if names:
        raise TutelageError(
            f"{path!r} lacks {counted(len(names), 'weight')} of a {type(model).__name__} ({listed(names)}), which "
            "would be random. Is it a reward model or a model of another shape?"
        )


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:300].rstrip(".")


def without_numbers(name: str) -> str:
    """The name of a weight with # for the number of its layer."""
    return re.sub(r"\.\d+(?=\.)", ".#", name)


def listed(names: list[str]) -> str:
    """The first three names."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
