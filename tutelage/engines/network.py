"""Access to the parts of a transformers model: trunk, layers, output head, precision, activation checkpointing."""

import inspect
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_tokens import end_token_ids
from tutelage.engines.logprobs import Head

CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")
"""Names of the argument in transformers that carries keys, values and states from token to token; the first since 5.24,
the last two of recurrent models."""


@dataclass(frozen=True)
class Backbone:
    """A loaded transformer; `model` is a PEFT model if there is an adapter."""

    model: PreTrainedModel | PeftModel
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype  # of the arithmetic; master weights are float32 when training
    engine: config.EngineName = "auto"
    checkpointing: bool = False
    """Whether the backward pass recomputes each layer."""


def inner(model: nn.Module) -> Any:
    """The transformers model inside a PEFT wrapper, or the model itself."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def trunk(model: nn.Module) -> Any:
    """The transformer without its head: token ids → hidden states. Adapters remain active."""
    return inner(model).base_model


def layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a transformer, in order. Raises TutelageError if its architecture does not declare them."""
    marked: list[nn.Module] = [each for each in trunk(model).modules() if isinstance(each, GradientCheckpointingLayer)]
    if not marked:
        raise TutelageError(
            f"{type(inner(model)).__name__} does not declare its layers, which activation checkpointing requires: "
            "omit --activation-checkpointing."
        )
    return marked


def active_adapters(layer: LoraLinear) -> list[str]:
    """Names of the active adapters of a layer; empty if adapters are disabled."""
    return [] if layer.disable_adapters else [name for name in layer.active_adapters if name in layer.lora_A]


def drops(dropout: nn.Module) -> bool:
    """Whether a module before an adapter drops inputs now."""
    return not isinstance(dropout, nn.Identity) and dropout.training and getattr(dropout, "p", 1.0) > 0


def size_in(settings: Any, *names: str) -> int:
    """The first of the sizes `names` that a text configuration states, the largest if it differs by layer; 0 without
    any, as for the attention heads of a recurrent model."""
    for name in names:
        try:
            size = getattr(settings, name, None)
        except Exception:  # transformers' own for a size that differs by layer
            continue
        if size:
            return int(max(size) if isinstance(size, list | tuple) else size)
    return 0


def feed_forward_width(settings: Any) -> int:
    """The intermediate size of a feed-forward block from the text configuration of a model; 4 · hidden by default."""
    return size_in(settings, "intermediate_size", "ffn_dim", "n_inner") or 4 * size_in(settings, "hidden_size")


def context_of(model: nn.Module) -> int | None:
    """The context length of a model, if its configuration states it (see `context_in`)."""
    return context_in(inner(model).config)


def context_in(configuration: Any) -> int | None:
    """The number of positions over which a model is one function of its tokens, if its configuration states it.

    The frequencies of longrope (Phi-3) change for all tokens of a batch that has a longer row than the original
    context, so it ends there.
    """
    settings = configuration.get_text_config()
    length: int | None = getattr(settings, "max_position_embeddings", None)
    rope = getattr(settings, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        return rope.get("original_max_position_embeddings") or length
    return length


def about_context(model: nn.Module) -> str:
    """What has the context of a model, for messages, with {} for its length: "the model has {}", and why it is shorter
    than the configuration states."""
    settings = inner(model).config.get_text_config()
    longest, context = getattr(settings, "max_position_embeddings", None), context_of(model)
    if context is None or longest is None or context >= longest:
        return "the model has {}"
    return (
        "the model has {} "
        f"(not {longest}: beyond original_max_position_embeddings, {context}, longrope has other frequencies for all "
        "tokens of a batch, so a completion would not be scored as it was sampled)"
    )


def attention_window(model: nn.Module) -> float:
    """The shortest attention window in the configuration of a model, in tokens; ∞ without one."""
    settings = inner(model).config.get_text_config()
    kinds = getattr(settings, "layer_types", None)
    if (kinds and set(kinds) == {"full_attention"}) or getattr(settings, "use_sliding_window", None) is False:
        return math.inf
    named = (getattr(settings, key, None) for key in ("sliding_window", "attention_chunk_size"))
    return min((float(x) for x in named if x), default=math.inf)


def cache_name(module: nn.Module) -> str:
    """The name of the cache argument in the forward pass of `module` (see `CACHE_NAMES`)."""
    names = inspect.signature(module.forward).parameters
    return next((name for name in CACHE_NAMES if name in names), "past_key_values")


def takes_positions(module: nn.Module) -> bool:
    """Whether the forward pass of `module` takes the positions of tokens."""
    return "position_ids" in inspect.signature(module.forward).parameters


def end_ids_of(backbone: Backbone) -> tuple[int, ...]:
    """End tokens of a completion, from the tokenizer and the model's generation configuration."""
    settings = getattr(inner(backbone.model), "generation_config", None)
    return tuple(end_token_ids(backbone.tokenizer, settings))


def precision(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """The context of a forward pass: bfloat16 arithmetic over float32 weights, or nothing."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def run_trunk(model: nn.Module, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
    """Last hidden states of the transformer without its head, on rows without padding before a token.

    Neither mask nor positions are passed: some architectures count positions otherwise, or have a state that padding
    changes, and a causal one computes nothing from the tokens after.
    """
    states: Tensor = trunk(model)(input_ids=tokens, use_cache=False).last_hidden_state
    return states


def head_of(model: nn.Module) -> Head:
    """The output head, with the scale and soft cap of the configuration."""
    whole = inner(model)
    layer, settings = whole.get_output_embeddings(), whole.config.get_text_config()
    scale = 1.0
    if getattr(settings, "logit_scale", None) is not None:  # Cohere multiplies
        scale = float(settings.logit_scale)
    if getattr(settings, "logits_scaling", None) is not None:  # Granite divides
        scale = 1.0 / float(settings.logits_scaling)
    softcap = getattr(settings, "final_logit_softcapping", None)
    if type(layer) is not nn.Linear:
        return Head(module=layer, scale=scale, softcap=softcap)
    return Head(layer.weight, layer.bias, scale, softcap)


def checkpointed(backbone: Backbone) -> Backbone:
    """The backbone with activation checkpointing, on the reference engine or that for a GPU: a layer saves only its
    inputs and is recomputed in the backward pass.

    Memory per token falls from all activations to one hidden state per layer, at the cost of a second forward pass
    (Chen et al. 2016, arXiv 1604.06174). Gradients are unchanged.

    Raises TutelageError if another engine is set or the architecture does not declare its layers.
    """
    if backbone.engine == "cpu":
        raise TutelageError("--activation-checkpointing requires the plain engine: omit --model.engine cpu.")
    for layer in layers(backbone.model):
        layer.forward = partial(_recomputed, layer.forward)
    engine = backbone.engine if backbone.engine == "gpu" or backbone.device.type == "cuda" else "plain"
    return replace(backbone, engine=engine, checkpointing=True)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The checkpointed forward pass of a layer; plain without gradients."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
