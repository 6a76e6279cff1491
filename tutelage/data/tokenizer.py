"""Tokenizers: safe encoding of user text, and incremental decoding of completions.

Tokenizers are duck-typed (transformers' interface); nothing here imports transformers.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted


class AddedToken(Protocol):
    """Entry of `added_tokens_decoder`."""

    content: str
    special: bool


class Tokenizer(Protocol):
    """Methods of a transformers tokenizer that are used here."""

    chat_template: object
    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...

    def get_vocab(self) -> Mapping[str, int]: ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...

    def encode(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str: ...

    def apply_chat_template(
        self, conversation: list[Any], *, tokenize: bool, enable_thinking: bool, **template: Any
    ) -> Any: ...


# Unicode noncharacters: reserved for use inside a program, in no text that is interchanged.
OPEN, CLOSE, END = "\ufdd0", "\ufdd1", "\ufdd2"


@dataclass(frozen=True)
class Facts:
    """`start`: the tokens before every text, () or the start token. `control`: the ids of all added tokens except
    white space. `special`: matches the spelling of every special token, and our own marks. `special_tokens`: the
    spelling of special tokens by id. `leads`: whether the tokenizer prepends a space to texts without one. `restores`:
    whether texts with the same tokens are the same in Unicode's composed form, since it restores rare characters."""

    start: tuple[int, ...]
    control: frozenset[int]
    special: re.Pattern[str]
    special_tokens: Mapping[int, str]
    leads: bool
    restores: bool


_RARE = "Qz7\u00df \u6f22\U0001f9ff \u0416 e\u0301 \u00bd \x07~^"


def facts(tokenizer: Tokenizer) -> Facts:
    """Facts about a tokenizer, cached until tokens are added to it."""
    return _facts(tokenizer, len(tokenizer), tokenizer.bos_token_id)


@lru_cache(maxsize=16)
def _facts(tokenizer: Tokenizer, size: int, bos: int | None) -> Facts:
    first = tokenizer.encode("", add_special_tokens=True)[:1]
    added = tokenizer.added_tokens_decoder
    special = {token.content for token in added.values() if token.special} | {OPEN, CLOSE, END}
    longest_first = sorted(special, key=len, reverse=True)
    tokens = encode_text(_RARE, tokenizer)
    rare = tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return Facts(
        start=tuple(first) if first and first[0] == bos else (),
        control=frozenset(id for id, token in added.items() if not token.content.isspace()),
        special=re.compile("|".join(map(re.escape, longest_first))),
        special_tokens={id: token.content for id, token in added.items() if token.special},
        leads=encode_text("a", tokenizer) == encode_text(" a", tokenizer),
        restores=_composed(rare) == _composed(_RARE),
    )


def decode_text(tokens: Sequence[int], tokenizer: Tokenizer, marks: Collection[str] = ()) -> str:
    """Text of tokens without special tokens, except those of `marks`."""
    special = facts(tokenizer).special_tokens if marks else {}
    kept = [token for token in tokens if special.get(token, "") in ("", *marks)]
    return tokenizer.decode(kept, skip_special_tokens=not marks, clean_up_tokenization_spaces=False)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text.strip())


def may_coincide(texts: Sequence[str], tokenizer: Tokenizer) -> bool:
    """Whether some of several different texts may have the same tokens."""
    return len(texts) > 1 and (not facts(tokenizer).restores or len(set(map(_composed, texts))) < len(texts))


def encode_text(text: str, tokenizer: Tokenizer) -> list[int]:
    """Tokens of plain text; spelled-out special tokens are text as well."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True) if text else []


def encode_markup(text: str, tokenizer: Tokenizer) -> list[int]:
    """Tokens of the output of a chat template, in which special tokens are special."""
    return tokenizer.encode(text, add_special_tokens=False) if text else []


def same_vocabulary(first: Tokenizer, second: Tokenizer) -> bool:
    """Whether ids mean the same tokens in both tokenizers; a separate pad token is ignored."""
    own, other = first.get_vocab(), second.get_vocab()
    shared = own.keys() & other.keys()
    return all(own[token] == other[token] for token in shared) and len(own.keys() ^ other.keys()) <= 1


UNFINISHED = "\ufffd"
"""Decoded text of the bytes of an incomplete character."""


def token_bytes(token: int, tokenizer: Any) -> bytes:
    """UTF-8 bytes of one token, which may be part of a character: those of all tokens of a text are the text's.

    A piece of a character is a byte token (<0xE2>) or letters of GPT-2's alphabet of bytes.
    """
    text: str = tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if UNFINISHED not in text:
        return text.encode()
    piece = tokenizer.convert_ids_to_tokens(token)
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return bytes.fromhex(piece[3:5])
    alphabet = _byte_alphabet()
    return bytes(alphabet[letter] for letter in piece) if alphabet.keys() >= set(piece) else text.encode()


@cache
def _byte_alphabet() -> dict[str, int]:
    """Bytes by letter in byte-level vocabularies (Radford et al. 2019): the printable characters of Latin-1 stand for
    themselves, and those from U+0100 on for the other bytes, in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


class TextStream:
    """Decodes tokens piece by piece, up to the first stop string.

    The pieces concatenate to the text of the whole completion: with `strips` and the `opening` of the chat template,
    that of `engines.sampling.text_of`. Special tokens are left out, except those of `marks`. White
    space at the end and a possible prefix of a stop string are held back until they are known to belong to the text.
    """

    def __init__(
        self,
        tokenizer: Any,
        stop: Sequence[str] = (),
        *,
        strips: bool = False,
        opening: str = "",
        marks: Collection[str] = (),
    ) -> None:
        self.tokenizer, self.stop, self.strips, self.opening = tokenizer, tuple(stop), strips, opening
        self.marks = marks
        self.tokens: list[int] = []
        self.found: str | None = None
        """Stop string that ended the text."""
        self._context = self._read = 0  # tokens before the last whole piece; tokens in the text
        self._text = ""
        self._given = 0  # characters of the visible text already returned

    def push(self, token: int) -> str:
        """Add a token that does not end the completion. Returns the text that has become final."""
        self.tokens.append(token)
        self._advance()
        return self._release(self._visible())

    def finish(self) -> str:
        """Return the rest of the text."""
        text = self._decoded(self.tokens)
        if self.found is not None:
            text = text.partition(self.found)[0]
        return self._release(self._stripped(text))

    def _advance(self) -> None:
        """Append the characters that the unread tokens complete. Decodes a window of tokens, not the whole
        completion: some tokenizers decode the first token of a text differently, so the window starts before the
        unread ones."""
        earlier = self._decoded(self.tokens[self._context : self._read])
        window = self._decoded(self.tokens[self._context :])
        if len(window) <= len(earlier) or window.endswith(UNFINISHED):
            return
        begin = len(self._text)
        self._text += window[len(earlier) :]
        self._context, self._read = self._read, len(self.tokens)
        self._find_stop(begin)

    def _find_stop(self, begin: int) -> None:
        """Search for the first stop string that ends in the text after `begin`."""
        longest = max(map(len, self.stop), default=0)
        places = [(self._text.find(stop, max(0, begin - longest)), stop) for stop in self.stop]
        self.found = min((place for place in places if place[0] >= 0), default=(0, None))[1]

    def _visible(self) -> str:
        """Text that no further token can remove."""
        if self.found is not None:
            return self._stripped(self._text.partition(self.found)[0])
        held = max((overlap(self._text, stop) for stop in self.stop), default=0)
        return self._stripped(self._text[: len(self._text) - held])

    def _stripped(self, text: str) -> str:
        text = self.opening + text
        return text.strip() if self.strips else text

    def _release(self, text: str) -> str:
        piece = text[self._given :]
        self._given = max(self._given, len(text))
        return piece

    def _decoded(self, tokens: Sequence[int]) -> str:
        return decode_text(tokens, self.tokenizer, self.marks)


def overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that is a suffix of `text`."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)


class SpelledTokens:
    """Special tokens that texts spell out: they are read as plain text, as all text of a user is.

    A text that begins or ends with one was probably rendered by a chat template that `tutelage.data.transcripts` does
    not know, or has the end token that `encode` adds.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.special = facts(tokenizer).special
        self.rows = self.marked = 0
        self.first: dict[str, int] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Look at the texts of the next row."""
        self.rows += 1
        spelled = [match for text in texts for match in self.special.finditer(text)]
        for match in spelled:
            self.first.setdefault(match[0], self.rows)
        self.marked += any(
            match.string.strip().startswith(match[0]) or match.string.strip().endswith(match[0]) for match in spelled
        )

    def describe(self) -> str:
        """A sentence about the tokens, empty without any. Raises TutelageError if most rows begin or end with one."""
        named = ", ".join(f"{token!r} (row {row})" for token, row in list(self.first.items())[:3])
        if self.marked * 2 > self.rows:
            raise TutelageError(
                f"{self.marked:,} of {counted(self.rows, 'row')} begin or end with a special token of the model, "
                f"spelled out: {named}. A chat template seems to have been applied to the text already, and would be "
                "applied twice: give the conversations as messages (role, content), or remove the tokens."
            )
        return f"Special tokens in the data are read as plain text: {named}." if self.first else ""
