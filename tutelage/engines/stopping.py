"""The end of an answer: an end token, or a stop string in its text.

A stop string may begin and end within tokens. The tokens of the answer go up to the one that completed the string,
since the model has sampled them; its text ends before the string.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.data.chat_tokens import decode_response

MARGIN = 4
"""Tokens before a window: a character has at most four bytes, which is what a window that begins within one spoils."""


class StopCondition:
    """Detects end tokens and stop strings as tokens are sampled.

    Raises TutelageError where a stop string contains a special token, which no text contains.
    """

    def __init__(
        self, tokenizer: Any, end_ids: Sequence[int], stop: Sequence[str], device: torch.device
    ) -> None:
        self.tokenizer, self.stop = tokenizer, tuple(stop)
        self.end_ids = torch.tensor(end_ids, dtype=torch.long, device=device)
        self.special = _special_tokens(tokenizer) if stop else {}
        for text in stop:
            for special in self.special.values():
                if special in text:
                    raise TutelageError(
                        f"The stop string {text!r} contains {special!r}, a special token of this tokenizer, which no "
                        "text contains. End tokens end an answer anyway; leave it out of --sampling.stop."
                    )
        # every token but a special one adds a byte at least
        self.window = max((len(text.encode()) for text in stop), default=0) + MARGIN

    def reached(
        self, response: Int[Tensor, "B R"], rows: Int[Tensor, " n"], length: int
    ) -> Bool[Tensor, " n"]:
        """Whether each of `rows` ends with the last of the first `length` tokens of its response."""
        ended = (response[rows, length - 1, None] == self.end_ids).any(-1)
        if not self.stop:
            return ended
        response = response[rows, :length]
        windows = response[:, -self.window :].tolist()
        for row, window in enumerate(windows):
            if not self.special.keys().isdisjoint(window):
                written = (token for token in response[row].tolist() if token not in self.special)
                windows[row] = list(written)[-self.window :]
        texts = (plain_text(window, self.tokenizer) for window in windows)
        stopped = [any(stop in text for stop in self.stop) for text in texts]
        return ended | torch.tensor(stopped, device=ended.device)


def text_of(tokens: Sequence[int], tokenizer: Any, end_ids: Sequence[int], stop: Sequence[str]) -> str:
    """The text of a response up to its end token or its first stop string, without white space around it."""
    if not stop:
        return decode_response(tokens, tokenizer, end_ids)
    end = next((index for index, token in enumerate(tokens) if token in end_ids), len(tokens))
    # a stop string may begin or end with white space, so white space is stripped after the search
    text = plain_text(tokens[:end], tokenizer)
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=None)].strip()


def plain_text(tokens: Sequence[int], tokenizer: Any) -> str:
    """The text of tokens, without special ones, in which stop strings are searched."""
    text: str = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def _special_tokens(tokenizer: Any) -> dict[int, str]:
    """The ids of the tokens that `plain_text` leaves out, and their names."""
    added = {index: token.content for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
