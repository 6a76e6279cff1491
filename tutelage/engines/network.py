"""Access to the parts of a transformers model: trunk, layers, linear layers, output head, precision, activation
checkpointing."""

import inspect
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self, cast

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
TRUNK_PARTS = {"embed_tokens", "layers", "norm", "rotary_emb"}
"""Modules of a trunk of layers with rotary positions."""


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


class UnsupportedModel(Exception):
    """A model, or a state of it, that an engine cannot compute from its tensors. The message says why."""


class LinearTensors(NamedTuple):
    """The tensors of y = W x + b + s B A x (LoRA: Hu et al. 2021, arXiv 2106.09685)."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None = None
    lora_a: Float[Tensor, "r in"] | None = None
    lora_b: Float[Tensor, "out r"] | None = None
    scale: float = 0.0

    @classmethod
    def of(cls, layer: Any) -> Self:
        """The tensors of a linear layer without hooks, with at most one active adapter, beside W. Raises
        UnsupportedModel for any other module."""
        is_adapted = isinstance(layer, LoraLinear) and is_unmodified(layer) and not layer.merged
        base = layer.get_base_layer() if is_adapted else layer
        if not is_one_matrix(base):
            raise UnsupportedModel(f"it has a {type(base).__name__} for a linear layer")
        names = active_adapters(layer) if is_adapted else []
        if not names:
            return cls(base.weight, base.bias)
        name = names[0]
        a, b = cast(nn.Linear, layer.lora_A[name]), cast(nn.Linear, layer.lora_B[name])
        if drops(layer.lora_dropout[name]):
            raise UnsupportedModel("its adapter has dropout")
        is_plain = is_one_matrix(a) and is_one_matrix(b) and not layer.lora_bias[name]
        if len(names) > 1 or not is_plain or name in layer.lora_variant:
            raise UnsupportedModel("its adapter is more than W + s B A")
        return cls(base.weight, base.bias, a.weight, b.weight, float(layer.scaling[name]))


def is_one_matrix(layer: nn.Module) -> bool:
    """Whether `layer` computes exactly x Wᵀ + b."""
    return type(layer) is nn.Linear and is_unmodified(layer)


def is_unmodified(layer: nn.Module) -> bool:
    """Whether `layer` has no hooks and the `forward` of its class."""
    replaced = "forward" in vars(layer)
    return not (replaced or has_forward_hooks(layer) or layer._backward_hooks or layer._backward_pre_hooks)


def has_forward_hooks(layer: nn.Module) -> bool:
    """Whether `layer` has forward hooks or forward pre-hooks."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def epsilon_of(norm: Any) -> Any:
    """ε of a norm, under either name used in transformers; None if there is none."""
    return getattr(norm, "variance_epsilon", getattr(norm, "eps", None))


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
