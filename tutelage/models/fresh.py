"""New language models: a byte-level BPE trained on the text and a small Llama with random weights."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tutelage.base import config
from tutelage.models.model_files import save_files

END, PAD = "<|end|>", "<|pad|>"


def learn_tokenizer(texts: Iterable[str], vocabulary: int, context: int, marks: Sequence[str] = ()) -> Any:
    """Train a byte-level BPE of at most `vocabulary` tokens, which encodes any text.

    Digits are single tokens, and words include the preceding space. `<|end|>` ends every text and completion; `marks`
    are further special tokens, those of a chat template.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, PAD, *marks],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=context)


def llama_config(
    shape: config.Shape, vocabulary: int, *, end: int | None = None, pad: int | None = None
) -> LlamaConfig:
    """The configuration of a Llama of the given shape with tied embeddings; `end` and `pad` are token ids."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward or round(shape.hidden * 8 / 3 / 32) * 32,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        initializer_range=math.sqrt(2 / (5 * shape.hidden)),
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )


def new_llama(tokenizer: Any, shape: config.Shape, seed: int) -> LlamaForCausalLM:
    """A Llama of the given shape with tied embeddings; weights ~ N(0, 2/(5d)) by `seed` (Nguyen & Salazar 2019).

    The usual 0.02 suits much wider models: at d = 128, training is half as fast with it.
    """
    settings = llama_config(shape, len(tokenizer), end=tokenizer.eos_token_id, pad=tokenizer.pad_token_id)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(settings)


def save_fresh(
    texts: Sequence[str],
    shape: config.Shape,
    folder: Path,
    seed: int,
    *,
    template: str | None = None,
    marks: Sequence[str] = (),
) -> None:
    """Train a tokenizer, initialise a model, and write both as a model folder. `marks` are the special tokens of the
    chat template."""
    tokenizer = learn_tokenizer(texts, shape.vocabulary, shape.context, marks)
    tokenizer.chat_template = template
    save_files(new_llama(tokenizer, shape, seed), tokenizer, folder)
