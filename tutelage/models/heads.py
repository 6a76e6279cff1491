"""Scalar heads on a transformer: the reward of a completion, or the value of each of its states.

A reward model is transformers' sequence classifier with one label, so that plain
`AutoModelForSequenceClassification.from_pretrained(folder)` gives the same scores (PEFT on top of it for LoRA).
"""

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Rows
from tutelage.core.rows import spread
from tutelage.engines.network import Backbone, checkpointed, inner, precision, trunk
from tutelage.models import backbone as loading
from tutelage.models.adapters import add_lora
from tutelage.models.engine_model import EngineModel
from tutelage.models.gguf_reader import model_folder
from tutelage.models.merging import merge
from tutelage.models.model_files import (
    check_adapter,
    check_finite,
    check_saved,
    check_vocabulary,
    first_line,
    is_classifier,
    loading_adapter,
)
from tutelage.models.reward_card import warn_of_template, write_card

FINGERPRINT = "fingerprint.json"
STEPS = "steps.json"
"""File of a process reward model, with the separator of its steps."""
CANNED_INPUTS, CANNED_LENGTH = 8, 12


class ScalarModel(EngineModel):
    """A transformer with a linear scalar head: `scores` applies it at the last token, `values` before each token.

    `separator` follows each step of text of a process reward model, whose scores are at the ends of steps; it is empty
    if its steps are the assistant's messages, and None for a model of whole completions.
    """

    separator: str | None = None

    def outside_parameters(self) -> list[nn.Parameter]:
        """Parameters of the scalar head."""
        return list(self.head.parameters())

    def head_in(self, model: nn.Module) -> None:
        """None, since the engine returns hidden states."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens in both the tokenizer and the embedding."""
        return min(len(self.tokenizer), int(inner(self.model).config.get_text_config().vocab_size))

    @property
    def head(self) -> Any:
        """The linear layer d → 1, inside any PEFT wrapper."""
        return inner(self.model).score

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """The hidden state at the last token of each row. Float[B, d]"""
        return self.engine.last_states(rows)

    def scores(self, rows: Rows) -> Float[Tensor, " B"]:
        """One score per completion, at its last token. Float[B]"""
        with precision(self.device, self.dtype):
            return self.head(self.last_states(rows)).squeeze(-1).float()

    def values(self, rows: Rows) -> Float[Tensor, "B R"]:
        """V(prompt, response[:t]) for every t, 0 at padding. Float[B, R]"""
        with precision(self.device, self.dtype):
            return spread(self.head(self.engine.states(rows)).squeeze(-1).float(), rows.mask)

    def save(self, folder: Path) -> None:
        """Write the model with its head, and its scores of a few fixed inputs as a fingerprint."""
        loading.save_model(self.model, self.tokenizer, folder)
        content = {"scores": self.fingerprint(), "dtype": str(self.dtype).removeprefix("torch.")}
        (folder / FINGERPRINT).write_text(json.dumps(content))
        if self.separator is not None:
            (folder / STEPS).write_text(json.dumps({"separator": self.separator}), encoding="utf-8")

    def save_whole(self, folder: Path) -> None:
        """`save`, with adapters merged into the weights, a chat template that ends at the scored token, and a README.md
        with usage instructions."""
        whole = self
        if isinstance(self.model, PeftModel):
            check_saved(self.model, folder)
            merged = merge(copy.deepcopy(self.model), self.tokenizer)
            whole = ScalarModel(replace(self.backbone, model=merged))
            whole.separator = self.separator
        whole.save(folder)
        write_card(folder, self.tokenizer, self.separator)

    @staticmethod
    def load(path: str) -> Any:
        """Load a full reward model from a folder with transformers."""
        model, missing = loading.load_exactly(AutoModelForSequenceClassification, path, "reward model")
        if missing:
            raise TutelageError(
                f"{path!r} is not a reward model: {', '.join(missing[:3])} would be random. "
                "Train one with `tutelage reward`."
            )
        if model.config.num_labels != 1:
            raise TutelageError(
                f"{path!r} has a head of {counted(model.config.num_labels, 'output')}; a reward model has one."
            )
        _head_of(model, path)
        return model

    @torch.no_grad()
    def fingerprint(self) -> list[float]:
        """Scores of eight fixed inputs, which detect a lost or re-initialised head."""
        tokens = _canned_tokens(CANNED_INPUTS, self.vocabulary).to(self.device)
        return [float(score) for score in self.scores(_as_rows(tokens, prompt=4))]


@phase("load")
def new_reward_model(
    settings: config.Model, lora: config.Lora, *, seed: int, checkpointing: bool = False
) -> ScalarModel:
    """A reward model initialised from the language model of `settings` with a new head.

    Head weights ~ N(0, 1/(d+1)), that is std 1/√(d+1) (Ziegler et al. 2019; Huang et al. 2024). `checkpointing`
    recomputes layers in the backward pass.
    """
    if lora.rank and loading.is_adapter(settings.path):
        raise TutelageError(
            f"{settings.path!r} is a LoRA adapter, and a second adapter on top of it could not be reloaded. "
            "Start from a whole model (a finished run has one in model/), or train all weights with --lora.rank 0."
        )
    whole = loading.load_backbone(settings, config.Lora(rank=0))
    model, tokenizer = whole.model, whole.tokenizer
    ensure_own_pad(model, tokenizer)
    scalar_config = type(model.config).from_dict(model.config.to_dict() | {"num_labels": 1})
    scalar_config.pad_token_id = tokenizer.pad_token_id
    try:
        scalar = AutoModelForSequenceClassification.from_config(scalar_config, dtype=torch.float32)
    except ValueError as error:
        raise TutelageError(
            f"transformers has no sequence classifier for {type(model).__name__}, so it cannot carry a reward head."
        ) from error
    trunk(scalar).load_state_dict(trunk(model).state_dict())
    head = _head_of(scalar, settings.path)
    width = head.weight.shape[1]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.copy_(torch.randn(1, width, generator=generator) / math.sqrt(width + 1))
    if lora.rank:
        scalar.name_or_path = model_folder(settings.path)
        scalar = add_lora(scalar, lora, task="SEQ_CLS", seed=seed, save=["score"])
    loading.switch_off_dropout(scalar)
    loaded = replace(whole, model=scalar.to(whole.device), tokenizer=tokenizer)
    return _checked(ScalarModel(checkpointed(loaded) if checkpointing else loaded))


def is_reward_model(path: str) -> bool:
    """Whether the folder's configuration declares a classifier, as that of a saved reward model does."""
    folder = model_folder(path)
    loading.check_folder(folder)
    return is_classifier(folder)


@phase("load")
def load_reward_model(settings: config.Model) -> ScalarModel:
    """Load a saved reward model. Raises TutelageError if its head is missing, has another width, or its scores of the
    fixed inputs differ from those at saving time."""
    path = model_folder(settings.path)
    device = loading.pick_device(settings.device)
    if loading.is_adapter(path):
        model = _load_scalar_adapter(path)
    else:
        loading.check_folder(path)
        model = ScalarModel.load(path)
    loading.switch_off_dropout(model)
    dtype = loading.pick_dtype(settings, device, model)
    tokenizer = loading.load_tokenizer(path)
    check_vocabulary(model, tokenizer, path)
    model = loading.to_device(model, device)
    loaded = _checked(ScalarModel(Backbone(model, tokenizer, device, dtype, settings.engine)))
    loaded.separator = _separator_in(Path(path) / STEPS)
    _check_fingerprint(loaded, Path(path))
    return loaded


def _separator_in(file: Path) -> str | None:
    """The separator of steps in the file of a process reward model; None without the file."""
    if not file.is_file():
        return None
    try:
        separator = json.loads(file.read_text(encoding="utf-8"))["separator"]
    except (ValueError, KeyError, TypeError):
        separator = None
    if not isinstance(separator, str):
        raise TutelageError(f"{file} is not the description of steps that `tutelage reward --steps` writes.")
    return separator


def _load_scalar_adapter(path: str) -> Any:
    settings = check_adapter(path, "SEQ_CLS", "reward model: train one with `tutelage reward`")
    base_path = settings["base_model_name_or_path"]
    loading.check_folder(base_path)
    base = AutoModelForSequenceClassification.from_pretrained(base_path, num_labels=1, dtype=torch.float32)
    _head_of(base, base_path)
    tokenizer = loading.load_tokenizer(path)
    make_room(base, tokenizer)
    with loading_adapter(path, base_path):
        model = PeftModel.from_pretrained(base, path)
    check_finite(model, f"{path!r} cannot be used")
    return merge(model, tokenizer)


def _check_fingerprint(model: ScalarModel, folder: Path) -> None:
    file = folder / FINGERPRINT
    if not file.is_file():  # a reward model from another program
        warn_of_template(model.tokenizer, str(folder))
        return
    content = json.loads(file.read_text())
    if content.keys() != {"scores", "dtype"}:
        raise TutelageError(
            f"{file} is not in the format of this version of Tutelage: use the version that wrote it, or train the "
            "reward model again."
        )
    saved, now = torch.tensor(content["scores"]), torch.tensor(model.fingerprint())
    half = "bfloat16" in (str(model.dtype).removeprefix("torch."), content["dtype"])
    if not _is_close(saved, now, half=half):
        raise TutelageError(
            f"{str(folder)!r} does not score its canned inputs as it did when it was saved "
            f"(largest difference {float((saved - now).abs().max()):.3g}): its weights "
            "or its head were changed or lost."
        )


def _is_close(one: Float[Tensor, " B"], other: Float[Tensor, " B"], *, half: bool) -> bool:
    """Whether scores are equal up to the order of computation, or up to rounding to bfloat16 (several percent)."""
    tolerance = 0.1 if half else 1e-3
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance)


def _canned_tokens(count: int, vocabulary: int) -> Int[Tensor, "count length"]:
    """Fixed tokens from the whole vocabulary except its last. Special tokens are rare among them, since on rows of
    special tokens bfloat16 scores may be off by most of their size."""
    numbers = torch.arange(count * CANNED_LENGTH).view(count, CANNED_LENGTH)
    return (numbers * 7919 + 13) % (vocabulary - 1)


def _as_rows(tokens: Int[Tensor, "count length"], *, prompt: int) -> Rows:
    """Rows without padding whose first `prompt` tokens are the prompt."""
    mask = torch.ones_like(tokens, dtype=torch.bool)
    return Rows(
        prompt=tokens[:, :prompt], prompt_mask=mask[:, :prompt], response=tokens[:, prompt:], mask=mask[:, prompt:]
    )


@torch.no_grad()
def _checked(model: ScalarModel) -> ScalarModel:
    """Check that our score of a row beside a longer one equals transformers' of the row alone, so that the saved folder
    gives the same scores everywhere. Raises TutelageError."""
    tokens = _canned_tokens(1, model.vocabulary).to(model.device)
    tokens += tokens == model.tokenizer.pad_token_id
    rows = _as_rows(tokens.repeat(2, 1), prompt=2)
    rows.mask[0, CANNED_LENGTH // 2 - 2 :] = False
    short = tokens[:, : CANNED_LENGTH // 2]
    try:
        with precision(model.device, model.dtype):
            theirs = model.model(input_ids=short, attention_mask=torch.ones_like(short)).logits.float().squeeze(-1)
        is_same = _is_close(model.scores(rows)[:1], theirs, half=model.dtype == torch.bfloat16)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # architectures raise various types
        raise _unsupported(model.model, f"cannot be computed ({first_line(error)})") from error
    if not is_same:
        raise _unsupported(model.model, "does not read its score at the last token of a causal language model")
    return model


def _head_of(model: Any, path: str) -> nn.Linear:
    """The linear layer d → 1 of a classifier. Raises TutelageError if it has another head."""
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Linear):
        raise _unsupported(model, "has no linear layer `score` at its last token", path)
    return head


def _unsupported(model: nn.Module, reason: str, path: str = "") -> TutelageError:
    place = f"{path!r} is a " if path else ""
    verb = ", which " if path else " "
    return TutelageError(
        f"{place}{type(inner(model)).__name__}{verb}{reason}, so it cannot be a reward model here. Use one on a "
        "decoder (Llama, Qwen, Gemma ...), or a function of yours as the reward."
    )


def ensure_own_pad(model: Any, tokenizer: Any) -> None:
    """Give the tokenizer a pad token distinct from the end token.

    transformers' classifiers score the last token that is not the pad token; if pad and end are equal, that is one
    token early. The embedding grows by a row only if it has no spare one.
    """
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id != tokenizer.eos_token_id:
        return
    tokenizer.add_special_tokens({"pad_token": "<|pad|>"})
    make_room(model, tokenizer)


def make_room(model: Any, tokenizer: Any) -> None:
    """Extend the embedding to a row for every token (new rows are 0), and set the model's pad token to the
    tokenizer's."""
    before = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > before:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        with torch.no_grad():
            model.get_input_embeddings().weight[before:] = 0.0
    model.config.pad_token_id = tokenizer.pad_token_id


@torch.no_grad()
def centre(model: ScalarModel, states: Float[Tensor, "N d"], *, ridge: float = 1e-3) -> tuple[float, float]:
    """Shift scores to mean 0 over rows with these last states, by changing only the head.

    The classifiers of most architectures have no bias. With h the last states of the rows, μ their mean and Σ
    their covariance, the change of the head that moves the mean score by −m and disturbs score differences least is

        δ = −m Σ⁻¹μ / (μᵀΣ⁻¹μ),      the minimiser of δᵀΣδ subject to δᵀμ = −m.

    Returns (the mean score before, the standard deviation of the disturbance relative to that of the scores).
    """
    weight = model.head.weight
    states = states.to(weight.device, torch.float64)
    scores = states @ weight[0].double()
    mean, mu = float(scores.mean()), states.mean(0)
    centred = states - mu
    sigma = centred.T @ centred / len(states)
    sigma.diagonal().add_(ridge * sigma.diagonal().mean().clamp(min=1e-12))
    direction = torch.linalg.solve(sigma, mu)
    delta = -mean * direction / (mu @ direction)
    weight.add_(delta[None].to(weight.dtype))
    return mean, float((centred @ delta).std(correction=0) / scores.std(correction=0).clamp(min=1e-12))
