"""Checks of a tokenizer before it is used on users' text.

Tokenizers are duck-typed (transformers' interface); nothing here imports transformers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol


class AddedToken(Protocol):
    """An entry of `added_tokens_decoder`."""

    content: str
    special: bool


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    chat_template: object
    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...

    def encode(
        self, text: str, *, add_special_tokens: bool, split_special_tokens: bool = ...
    ) -> list[int]: ...

    def decode(
        self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str: ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        enable_thinking: bool,
    ) -> str: ...


# Unicode noncharacters: reserved for use inside a program, in no text that is interchanged.
OPEN, CLOSE, END = "\ufdd0", "\ufdd1", "\ufdd2"


@dataclass(frozen=True)
class Facts:
    """`start`: what stands before every text, () or the start token. `control`: the ids of all added tokens but those
    of white space. `special`: matches the spelling of every special token, and our own marks. `leads`: the tokenizer
    itself puts a space before a text that has none."""

    start: tuple[int, ...]
    control: frozenset[int]
    special: re.Pattern[str]
    leads: bool


def facts(tokenizer: Tokenizer) -> Facts:
    """The facts, worked out once per tokenizer and again when tokens have been added to it."""
    return _facts(tokenizer, len(tokenizer), tokenizer.bos_token_id)


@lru_cache(maxsize=16)
def _facts(tokenizer: Tokenizer, size: int, bos: int | None) -> Facts:
    first = tokenizer.encode("", add_special_tokens=True)[:1]
    added = tokenizer.added_tokens_decoder
    special = {token.content for token in added.values() if token.special} | {OPEN, CLOSE, END}
    longest_first = sorted(special, key=len, reverse=True)
    return Facts(
        start=tuple(first) if first and first[0] == bos else (),
        control=frozenset(id for id, token in added.items() if not token.content.isspace()),
        special=re.compile("|".join(map(re.escape, longest_first))),
        leads=encode_text("a", tokenizer) == encode_text(" a", tokenizer),
    )


def encode_text(text: str, tokenizer: Tokenizer) -> list[int]:
    """The tokens of plain text: what looks like a special token in it is text as well."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True) if text else []


def encode_markup(text: str, tokenizer: Tokenizer) -> list[int]:
    """The tokens of what a chat template writes: its special tokens are special."""
    return tokenizer.encode(text, add_special_tokens=False) if text else []


class HasVocabulary(Protocol):
    """A tokenizer's tokens with their ids."""

    def get_vocab(self) -> Mapping[str, int]: ...


def same_vocabulary(first: HasVocabulary, second: HasVocabulary) -> bool:
    """Whether ids of one tokenizer mean the same to the other; a pad token of its own does not count."""
    own, other = first.get_vocab(), second.get_vocab()
    shared = own.keys() & other.keys()
    return all(own[token] == other[token] for token in shared) and len(own.keys() ^ other.keys()) <= 1
