"""Prompts as token ids, ready for a generator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tutelage.data.chat import encode
from tutelage.data.records import Prompt
from tutelage.engines.interface import PromptTokens


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt with its conversation as token ids, up to where the answer begins."""

    prompt: Prompt
    tokens: tuple[int, ...]


def encode_prompts(prompts: Sequence[Prompt], tokenizer: Any) -> list[EncodedPrompt]:
    """Prompts as the tokenizer's chat template (or the plain form) writes them."""
    return [EncodedPrompt(p, tuple(encode(p.messages, None, tokenizer)[0])) for p in prompts]


def prompt_tokens(prompts: Sequence[EncodedPrompt]) -> PromptTokens:
    """The arguments of a generator for some prompts: their token ids, and their ids as names of random streams."""
    return PromptTokens(tuple(p.tokens for p in prompts), tuple(p.prompt.id for p in prompts))
