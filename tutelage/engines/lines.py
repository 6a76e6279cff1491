"""Lines: contexts that are read piece by piece, each at its own pace, with keys and values kept in between.

A line begins with its prompt and goes on with any pieces, such as a sampled token or the result of a tool. So one call
is a decoding step for some lines and reads new tokens for others (continuous batching: Yu et al. 2022, Orca). Lines
with equal prompts share their keys and values.

Lines belong to the decoding context of an engine, in which weights do not change: no line outlives its weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Prompt = TypeVar("Prompt")
"""Keys and values of a prompt."""
Line = TypeVar("Line")
"""Those of a line, with the prompt's."""
NOTHING: Mapping[int, int] = {}
ENDLESS = 1 << 40
"""Tokens of a line without a limit: more than any has."""
READ_AT_ONCE = 4096
"""Tokens of a forward pass: enough to keep a CPU busy, few enough for its memory."""


@dataclass
class SharedPrompt(Generic[Prompt]):
    """A prompt that lines share, with the logits after it."""

    state: Prompt
    logits: Float[Tensor, " V"]
    lines: int = 0


class Lines(ABC, Generic[Prompt, Line]):
    """Lines by number. `computed` counts the tokens read, `rejected` those of them that were cut, and `tokens` those
    held, shared ones once."""

    packs = False
    """Whether a pass reads pieces of several lengths without padding."""

    def __init__(self) -> None:
        self.computed = self.rejected = self.tokens = 0
        self._prompts: dict[tuple[int, ...], SharedPrompt[Prompt]] = {}
        self._held: dict[int, tuple[tuple[int, ...], Line]] = {}
        self._lengths: dict[int, int] = {}  # tokens of each line after its prompt

    def __contains__(self, line: int) -> bool:
        return line in self._held

    @torch.no_grad()
    def extend(self, pieces: Mapping[int, Sequence[int]], counts: Mapping[int, int] = NOTHING) -> Float[Tensor, "N V"]:
        """Read one or more tokens of some lines, by number. The first piece of a line is its prompt. Returns the logits
        after the last token of each, or after as many of its last tokens as `counts` has for it, in the order of the
        pieces."""
        begun = {line: tuple(piece) for line, piece in pieces.items() if line not in self._held}
        unread = list(dict.fromkeys(prompt for prompt in begun.values() if prompt not in self._prompts))
        if unread:
            self._count(sum(map(len, unread)))
            for prompt, (state, logits) in zip(unread, self._read(unread), strict=True):
                self._prompts[prompt] = SharedPrompt(state, logits)
        rows: dict[int, Tensor] = {}
        for line, prompt in begun.items():
            shared = self._prompts[prompt]
            shared.lines += 1
            rows[line] = shared.logits[None]
            self._held[line], self._lengths[line] = (prompt, self._begin(shared.state)), 0
        for part in _passes({line: piece for line, piece in pieces.items() if line not in begun}, packs=self.packs):
            after = [counts.get(line, 1) for line in part]
            logits = self._continue([self._held[line][1] for line in part], list(part.values()), after)
            for line, piece in part.items():
                self._lengths[line] += len(piece)
                self._count(len(piece))
            if list(part) == list(pieces):
                return logits
            rows |= zip(part, logits.split(after), strict=True)
        return torch.cat([rows[line] for line in pieces])

    def cut(self, line: int, count: int) -> None:
        """Forget the last tokens of a line, none of them of its prompt."""
        if count:
            self._lengths[line] -= count
            self.tokens -= count
            self.rejected += count
            self._cut(self._held[line][1], count)

    def drop(self, line: int) -> None:
        """Forget a line, and its prompt with the last of its lines."""
        prompt, state = self._held.pop(line)
        self.tokens -= self._lengths.pop(line)
        self._release(state)
        shared = self._prompts[prompt]
        shared.lines -= 1
        if not shared.lines:
            self.tokens -= len(prompt)
            self._release_prompt(self._prompts.pop(prompt).state)

    def _count(self, tokens: int) -> None:
        self.computed += tokens
        self.tokens += tokens

    @abstractmethod
    def _read(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[Prompt, Float[Tensor, " V"]]]:
        """Read distinct prompts. Returns the logits after each."""

    @abstractmethod
    def _begin(self, prompt: Prompt) -> Line:
        """A line after a prompt."""

    @abstractmethod
    def _continue(
        self, lines: Sequence[Line], pieces: Sequence[Sequence[int]], counts: Sequence[int]
    ) -> Float[Tensor, "N V"]:
        """Read further tokens of lines, in one pass. Returns the logits after the last tokens of each, so many."""

    @abstractmethod
    def _cut(self, line: Line, count: int) -> None:
        """Forget the last tokens of a line."""

    def _release(self, line: Line) -> None:
        """Free a line. It may do nothing if its memory is its own."""

    def _release_prompt(self, prompt: Prompt) -> None:
        """Free a prompt, as `_release`."""


def _passes(pieces: Mapping[int, Sequence[int]], *, packs: bool) -> Iterator[dict[int, Sequence[int]]]:
    """Pieces of a single token in one part; longer ones in parts of about `READ_AT_ONCE` tokens, padded to the longest
    of a part, or with `packs` not padded and beside single ones."""
    single = {line: piece for line, piece in pieces.items() if len(piece) == 1}
    if packs and len(single) < len(pieces):
        single = {}
    if single:
        yield single
    rest = [(line, piece) for line, piece in pieces.items() if line not in single]
    part: dict[int, Sequence[int]] = {}
    tokens = 0
    for line, piece in rest if packs else sorted(rest, key=lambda item: len(item[1])):
        tokens = tokens + len(piece) if packs else len(piece) * (len(part) + 1)
        if part and tokens > READ_AT_ONCE:
            yield part
            part, tokens = {}, len(piece)
        part[line] = piece
    if part:
        yield part
