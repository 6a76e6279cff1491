"""Sizes of models from their configuration only, without loading weights."""

import os
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.network import feed_forward_width, inner, size_in, trunk
from tutelage.engines.plans.workload import Transformer
from tutelage.models.backbone import base_of
from tutelage.models.fresh import llama_config
from tutelage.models.gguf_reader import description_of
from tutelage.models.model_files import first_line


def outline(path: str) -> Transformer:
    """The sizes of the model in a folder, hub name, GGUF file or config.json; for an adapter, of its base.

    Raises TutelageError if there is no configuration of a causal language model.
    """
    path = base_of(path)
    source = description_of(path)
    try:
        settings = AutoConfig.from_pretrained(**source).get_text_config()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(settings)
    except Exception as error:  # transformers raises various types
        place = "has no configuration of a causal language model"
        if not os.path.exists(path):
            place = "is no folder or file here, and its configuration could not be read from the hub"
        raise TutelageError(
            f"{path!r} {place}: {first_line(error)}. A plan needs the config.json of a causal language model, a few "
            "kB, and its tokenizer to count tokens; a run needs the weights too. Give a model folder, a .gguf file, a "
            "config.json, or a name on the hub where that can be reached."
        ) from error
    return outline_of(model)


def outline_of_shape(shape: config.Shape) -> Transformer:
    """The sizes of the Llama that `models.fresh` creates for a shape."""
    with torch.device("meta"):
        return outline_of(AutoModelForCausalLM.from_config(llama_config(shape, shape.vocabulary)))


def outline_of(model: nn.Module) -> Transformer:
    """The sizes of a model, without adapter weights. A scalar model has no output head."""
    whole = inner(model)
    output = whole.get_output_embeddings()
    settings = whole.config.get_text_config()
    layers, hidden = size_in(settings, "num_hidden_layers"), size_in(settings, "hidden_size")
    heads = size_in(settings, "num_attention_heads")  # none in a recurrent model, which keeps no keys either
    width = size_in(settings, "head_dim") or hidden // max(1, heads)
    shared = size_in(settings, "num_key_value_heads") or heads
    active = size_in(settings, "num_experts_per_tok") or 1
    lists = [part for part in whole.modules() if isinstance(part, nn.ModuleList)]
    decoders = next((part for part in lists if len(part) == layers), max(lists, key=_weights))
    return Transformer(
        parameters=_weights(whole),
        matrices=int(_matrices(trunk(model), settings)),
        head=0 if output is None else int(output.weight.numel()),
        largest_layer=max(map(_weights, decoders)),
        layers=layers,
        hidden=hidden,
        feed_forward=active * (size_in(settings, "moe_intermediate_size") or feed_forward_width(settings)),
        attention=heads * width,
        key_values=2 * layers * shared * width,
        vocabulary=int(settings.vocab_size),
        adapter=sum(
            sum(part.weight.shape)
            for name, part in trunk(model).named_modules()
            if isinstance(part, nn.Linear | Conv1D) and "lora_" not in name
        ),
        family=str(settings.model_type),
    )


def _weights(part: nn.Module) -> int:
    """Number of weights of a module, without adapters."""
    return sum(p.numel() for name, p in part.named_parameters() if "lora_" not in name)


def _matrices(network: nn.Module, settings: Any) -> float:
    """Number of weights of linear layers; of experts, the share active for a token."""
    embeddings = {id(part.weight) for part in network.modules() if isinstance(part, nn.Embedding)}
    experts = size_in(settings, "num_local_experts", "num_experts", "n_routed_experts") or 1
    share = (size_in(settings, "num_experts_per_tok") or experts) / experts
    counted = [
        p for name, p in network.named_parameters() if p.dim() > 1 and id(p) not in embeddings and "lora_" not in name
    ]
    return sum(p.numel() * (share if p.dim() == 3 else 1.0) for p in counted)
