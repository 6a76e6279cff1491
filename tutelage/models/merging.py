"""Merging of adapters into the weights of a model, and comparison of models by their outputs.

LoRA computes x (W + s B A)ᵀ; merging replaces W by W + s B A. If W is tied, as between embedding and head, the sum is
valid only for the adapted layer, which is untied first. Merged and saved models are compared with the trained model on
a few tokens.
"""

import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from tutelage.base.errors import TutelageError
from tutelage.engines.network import context_of, inner

TEXT = "What is rain? Water that falls from the clouds."
TEXT_TOKENS, SPECIAL_TOKENS, SPREAD_TOKENS = 16, 8, 8
"""Maximum tokens of a comparison: those of a text and special tokens, probably seen in training, and others from the
whole vocabulary."""


@dataclass(frozen=True)
class Output:
    """Output of a model on a row of `tokens`: next-token log-probabilities at every position, or the score of a reward
    model."""

    tokens: tuple[int, ...]
    values: Float[Tensor, "places V"] | Float[Tensor, "1 1"]
    epsilon: float
    """Machine epsilon of the dtype of the weights."""


def merge(model: PeftModel, tokenizer: Any) -> Any:
    """Merge the active adapters of `model` into its weights. Returns the transformers model; `model` is consumed.

    Adapted layers with tied weights are untied; if embedding and head are, `tie_word_embeddings` becomes false in the
    configuration. Weights of several dtypes, such as a bf16 model with a float32 adapter, become the widest of them.
    Raises TutelageError if the outputs of the merged model differ.
    """
    _widen(model)
    trained = output_of(model, tokenizer)
    _untie(model)
    whole: Any = model.merge_and_unload()
    refuse_difference(trained, output_of(whole, tokenizer), tokenizer, "The model with its adapter merged")
    return whole


@torch.no_grad()
def output_of(model: nn.Module, tokenizer: Any) -> Output:
    """The output of a model on a few tokens, by its own forward pass in the dtype of its weights, or of a copy if they
    have several. On the CPU."""
    if len({weight.dtype for weight in model.parameters()}) > 1:
        model = copy.deepcopy(model)
        _widen(model)
    tokens = _tokens(model, tokenizer)
    row = torch.tensor([tokens], device=next(model.parameters()).device)
    logits = model(input_ids=row, attention_mask=torch.ones_like(row), use_cache=False).logits.float().cpu()
    values = logits if logits.dim() == 2 else logits[0].log_softmax(-1)
    return Output(tokens, values, torch.finfo(next(model.parameters()).dtype).eps)


def _widen(model: nn.Module) -> None:
    """Give all weights the widest of their dtypes."""
    widest = max((weight.dtype for weight in model.parameters()), key=lambda dtype: dtype.itemsize)
    for weight in model.parameters():
        weight.data = weight.data.to(widest)


def refuse_difference(trained: Output, other: Output, tokenizer: Any, what: str) -> None:
    """Raise TutelageError if `other`, the output of `what`, differs from that of the trained model beyond rounding."""
    if trained.values.shape != other.values.shape:
        raise TutelageError(
            f"{what} is not the one that was trained: its output has the shape {tuple(other.values.shape)} instead of "
            f"{tuple(trained.values.shape)}."
        )
    apart = (trained.values - other.values).abs().nan_to_num(torch.inf)
    apart[trained.values == other.values] = 0.0  # ∞ − ∞ would be nan
    largest, allowed = float(apart.max()), _tolerance(trained, other)
    if largest <= allowed:
        return
    place, token = divmod(int(apart.argmax()), apart.shape[1])
    if len(apart) == 1:
        where = f"its score of a completion is {largest:.3g} off"
    else:
        before, after = (repr(tokenizer.decode([one])) for one in (trained.tokens[place], token))
        where = f"log π({after}) behind {before} is {largest:.3g} nats off"
    raise TutelageError(
        f"{what} is not the one that was trained: {where}, where {allowed:.1g} is allowed for rounding."
    )


def _tolerance(one: Output, other: Output) -> float:
    """Tolerance for rounding: √ε times the largest output."""
    finite = one.values[one.values.isfinite()]
    size = float(finite.abs().max()) if finite.numel() else 1.0
    return float(max(one.epsilon, other.epsilon) ** 0.5 * max(1.0, size))


def _tokens(model: nn.Module, tokenizer: Any) -> tuple[int, ...]:
    """The tokens of a comparison, without the pad token, which a classifier ignores."""
    vocabulary = min(len(tokenizer), int(inner(model).config.get_text_config().vocab_size))
    text, special = tokenizer.encode(TEXT)[:TEXT_TOKENS], tokenizer.all_special_ids[:SPECIAL_TOKENS]
    spread = (number * vocabulary // SPREAD_TOKENS for number in range(SPREAD_TOKENS))
    tokens = [*text, *special, *spread][: context_of(model)]
    return tuple(token for token in tokens if token < vocabulary and token != tokenizer.pad_token_id)


def tied_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Adapted layers with tied weights, without their adapters, by name."""
    whole = inner(model)
    owners = Counter(id(weight) for part in whole.modules() for weight in part.parameters(recurse=False))
    adapted = (
        (name, layer.get_base_layer()) for name, layer in whole.named_modules() if isinstance(layer, BaseTunerLayer)
    )
    return {
        name: base for name, base in adapted if any(owners[id(weight)] > 1 for weight in base.parameters(recurse=False))
    }


def _untie(model: PeftModel) -> None:
    """Untie the weights of adapted layers, and update the configuration if head and embedding are untied."""
    tied = tied_layers(model)
    for base in tied.values():
        for name, weight in list(base.named_parameters(recurse=False)):
            setattr(base, name, nn.Parameter(weight.detach().clone(), weight.requires_grad))
    whole = inner(model)
    head = whole.get_output_embeddings() if tied else None
    if head is not None and head.weight is not whole.get_input_embeddings().weight:
        for settings in (whole.config, whole.config.get_text_config()):
            settings.tie_word_embeddings = False
