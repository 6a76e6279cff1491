"""Tiny random models as folders, one for each family, made in milliseconds: what the tests of training stand on.

The families differ where it matters: learnt and rotary positions, tied and separate heads, grouped keys, sliding
windows, soft caps, embeddings of another width. So do their tokenizers: with and without a pad token, with a pad token
that is the end token, with a start token, with a chat template.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

END, PAD, START = "<|end|>", "<|pad|>", "<|start|>"
CONTEXT = 96

TEXT = [
    "The sun is a star. Stars are hot and far away.",
    "User: What is rain? Assistant: Water that falls from the clouds.",
    "Why is the sky blue? Because the air scatters blue light more than red light.",
    "Plants turn light, water and air into sugar. Explain gravity to a child.",
]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(*, pad: str | None = PAD, start: bool = False, chat: bool = False) -> Any:
    """Byte-level BPE with a few merges; any text can be written. PAD is in it only where it is the pad token."""
    special = [END, *([PAD] if pad == PAD else []), START, "<|im_start|>", "<|im_end|>"]
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXT, trainer)
    if start:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{START} $A", special_tokens=[(START, inner.token_to_id(START))]
        )
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>" if chat else END,
        bos_token=START if start else None,
        pad_token=pad,
    )
    if chat:
        made.chat_template = CHATML
    return made


@dataclass(frozen=True)
class Family:
    """A transformers configuration and the tokenizer that goes with it."""

    config: Any
    shape: dict[str, Any]
    words: dict[str, Any]


WIDE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
ROTARY = WIDE | {"intermediate_size": 32, "max_position_embeddings": CONTEXT, "head_dim": 4}

FAMILIES = {
    "opt": Family(
        OPTConfig,
        WIDE
        | {
            "ffn_dim": 32,
            "max_position_embeddings": CONTEXT,
            "word_embed_proj_dim": 8,
            "dropout": 0.1,
            "init_std": 0.25,
        },
        {"start": True},
    ),
    "gpt2": Family(GPT2Config, {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}, {"pad": None}),
    "llama": Family(LlamaConfig, ROTARY | {"num_key_value_heads": 4, "tie_word_embeddings": False}, {"pad": END}),
    "qwen3": Family(Qwen3Config, ROTARY | {"num_key_value_heads": 2, "tie_word_embeddings": True}, {"chat": True}),
    "gemma2": Family(
        Gemma2Config,
        ROTARY
        | {
            "num_key_value_heads": 2,
            "sliding_window": 8,
            "final_logit_softcapping": 3.0,
            "attn_logit_softcapping": 5.0,
            "query_pre_attn_scalar": 4,
        },
        {"start": True},
    ),
    "gemma3": Family(
        Gemma3TextConfig,
        ROTARY
        | {
            "num_key_value_heads": 1,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 4,
        },
        {"start": True},
    ),
}

EVERY = tuple(FAMILIES)
"""All families, for parametrize."""

GROUPED = ROTARY | {"num_key_value_heads": 2}
FAMILIES |= {
    "mistral": Family(MistralConfig, GROUPED | {"sliding_window": None, "tie_word_embeddings": False}, {"pad": END}),
    "qwen2": Family(Qwen2Config, GROUPED | {"tie_word_embeddings": True}, {"chat": True}),
    "gemma": Family(GemmaConfig, GROUPED | {"num_key_value_heads": 1}, {"start": True}),
    "granite": Family(
        GraniteConfig,
        GROUPED
        | {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.4,
            "logits_scaling": 2.0,
            "tie_word_embeddings": True,
        },
        {"pad": END},
    ),
}
"""With relatives of the llama and of Gemma, which differ for the engine for a GPU."""

MIXED = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}
"""Sizes of layers that the CPU engine computes in two steps with products in bfloat16."""


def save(family: str, folder: Path, *, seed: int = 0, words: dict[str, Any] | None = None, **shape: Any) -> str:
    """Write a random model of the family, with weights large enough for its distributions to be far from uniform."""
    made = FAMILIES[family]
    speech = tokenizer(**made.words | (words or {}))
    told = {
        "vocab_size": len(speech),
        "bos_token_id": speech.bos_token_id,
        "eos_token_id": speech.eos_token_id,
        "pad_token_id": speech.pad_token_id,
        "initializer_range": 0.25,
    }
    settings = made.config(**told | made.shape | shape)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(settings, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which hides mistakes with them
                parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    speech.save_pretrained(folder)
    return str(folder)


def gradients(policy: Any, rows: Any) -> list[torch.Tensor]:
    """Log-probabilities, and the gradient of a sum of them with uneven weights, of every parameter."""
    for parameter in policy.parameters():
        parameter.grad = None
    logp = policy.scores(rows).logp
    (logp * rows.mask * (logp.detach() + 1.0)).sum().backward()
    return [logp.detach(), *(parameter.grad for parameter in policy.parameters())]


def roughen(model: Any) -> None:
    """Make the weights of a fresh model uneven: its norms and biases are all alike, and its adapters change nothing."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
