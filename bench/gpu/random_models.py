"""Policies with random weights made on the device, at real shapes, and what they read; no files are needed.

Every shape has a tiny twin of the same architecture, on which the parts are rehearsed on a CPU.
"""

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from tutelage.base import config
from tutelage.core.batch import Rows
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import Backbone, inner
from tutelage.models.adapters import add_lora
from tutelage.models.policy import Policy

END, PAD = "<|end|>", "<|pad|>"
SPECIAL = 2
"""The first ids are those of END and PAD."""
CONTEXT = 40_960


def _shape(hidden: int, layers: int, heads: int, kv_heads: int, feed_forward: int, width: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": feed_forward,
        "head_dim": width,
    }


VOCABULARY = 151_936
SHAPES: dict[str, tuple[Any, dict[str, int]]] = {
    "Qwen3-0.6B": (Qwen3Config, _shape(1_024, 28, 16, 8, 3_072, 128)),
    "Qwen3-4B": (Qwen3Config, _shape(2_560, 36, 32, 8, 9_728, 128)),
    "Qwen2.5-0.5B": (Qwen2Config, _shape(896, 24, 14, 2, 4_864, 64)),
}
TWIN = _shape(64, 2, 4, 2, 128, 16)
FAMILIES: dict[str, Any] = {
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "gemma": GemmaConfig,
}


def settings_of(name: str, tiny: bool) -> Any:
    """The configuration of a shape, or of its tiny twin."""
    kind, shape = SHAPES[name]
    return _configured(kind, TWIN if tiny else shape, 512 if tiny else VOCABULARY)


def family_settings(name: str, tiny: bool) -> Any:
    """The configuration of a small model of a family, whose distributions are far from uniform."""
    shape = _shape(32, 2, 4, 2, 64, 16) if tiny else _shape(256, 3, 4, 2, 512, 64)
    return _configured(FAMILIES[name], shape, 320 if tiny else 1_024, initializer_range=0.25 if tiny else 0.1)


def _configured(kind: Any, shape: dict[str, int], vocabulary: int, **more: Any) -> Any:
    constants = {
        "vocab_size": vocabulary,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "eos_token_id": 0,
        "pad_token_id": 1,
        "bos_token_id": None,
    }
    if kind is MistralConfig:
        constants["sliding_window"] = None
    return kind(**constants | shape | more)


def words(vocabulary: int) -> Any:
    """A tokenizer whose words are the numbers of their tokens."""
    ids = {END: 0, PAD: 1} | {str(number): number for number in range(SPECIAL, vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)


def random_model(settings: Any, device: str, dtype: torch.dtype, seed: int = 0) -> Any:
    """A transformers model with random weights, made on the device."""
    torch.manual_seed(seed)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(settings, dtype=dtype).eval()


def adapted(model: Any, rank: int) -> Any:
    """The model with a new LoRA adapter on all linear layers."""
    return add_lora(model, config.Lora(rank=rank), task="CAUSAL_LM", seed=0)


def policy(model: Any, engine: str, dtype: torch.dtype = torch.bfloat16, *, ends: bool = False) -> Policy:
    """A policy of a model in one precision.

    The weights stay in their dtype: bf16 to decode, float32 masters to train. Completions end at the limit alone
    unless `ends`, so that every subject decodes the same number of tokens.
    """
    device = next(model.parameters()).device
    tokenizer = words(inner(model).config.vocab_size)
    own = Policy(Backbone(model, tokenizer, device, dtype, engine))  # type: ignore[arg-type]
    if not ends:
        own.end_ids = ()
    return own


def random_ids(vocabulary: int, *size: int, device: str = "cpu", seed: int = 1) -> torch.Tensor:
    """Random tokens without special ones. Int[*size]"""
    numbers = torch.Generator().manual_seed(seed)
    return torch.randint(SPECIAL, vocabulary, size, generator=numbers).to(device)


def random_prompts(vocabulary: int, count: int, length: int, seed: int = 1) -> PromptTokens:
    """Distinct prompts of one length."""
    ids = random_ids(vocabulary, count, length, seed=seed).tolist()
    return PromptTokens(tuple(map(tuple, ids)), tuple(f"p{number}" for number in range(count)))


def random_rows(vocabulary: int, rows: int, prompt: int, response: int, device: str, *, of_each: int = 1) -> Rows:
    """Rows of one length, `of_each` to each prompt."""
    asked = random_ids(vocabulary, rows // of_each, prompt, device=device).repeat_interleave(of_each, 0)
    answered = random_ids(vocabulary, rows, response, device=device, seed=2)
    return Rows(
        prompt=asked,
        prompt_mask=torch.ones_like(asked, dtype=torch.bool),
        response=answered,
        mask=torch.ones_like(answered, dtype=torch.bool),
    )
