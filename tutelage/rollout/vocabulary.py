"""Vocabulary of a model that runs elsewhere."""

from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig

from tutelage.data.chat_tokens import end_token_ids
from tutelage.models.backbone import base_of, load_tokenizer


@dataclass(frozen=True)
class ModelVocabulary:
    """A model's tokenizer and end tokens, without its weights."""

    tokenizer: Any
    end_ids: tuple[int, ...]


def load_vocabulary(path: str) -> ModelVocabulary:
    """Load the vocabulary of a model folder, an adapter or a hub name. Raises TutelageError if there is none."""
    tokenizer = load_tokenizer(path)
    try:
        settings = GenerationConfig.from_pretrained(base_of(path))
    except OSError:  # a model need not have one
        settings = None
    return ModelVocabulary(tokenizer, end_token_ids(tokenizer, settings))
