"""Where an answer ends: at an end token, or where its text contains a stop string.

A stop string may begin and end in the middle of tokens. The answer keeps its tokens up to the one that completed the
string, since that is what the model did; its text ends before the string.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tutelage.data.chat import decode_response
from tutelage.errors import TutelageError

MARGIN = 4  # tokens: a character has at most four bytes, and a window that begins inside one spoils no more than that


class Ends:
    """End tokens and stop strings, looked for as tokens are drawn."""

    def __init__(
        self, tokenizer: Any, end_ids: Sequence[int], stop: Sequence[str], device: torch.device
    ) -> None:
        self.tokenizer, self.stop = tokenizer, tuple(stop)
        self.end_ids = torch.tensor(end_ids, dtype=torch.long, device=device)
        self.silent = _silent(tokenizer) if stop else {}
        for text in stop:
            for special in self.silent.values():
                if special in text:
                    raise TutelageError(
                        f"The stop string {text!r} contains {special!r}, a special token of this tokenizer, which no "
                        "text contains. End tokens end an answer anyway; leave it out of --sampling.stop."
                    )
        # every token but a silent one writes a byte at least
        self.window = max((len(text.encode()) for text in stop), default=0) + MARGIN

    def reached(self, response: Tensor, rows: Tensor, length: int) -> Tensor:
        """Which of `rows` [n] end with the last of the first `length` tokens in `response` [B, R]. Bool[n]"""
        ended = (response[rows, length - 1, None] == self.end_ids).any(-1)
        if not self.stop:
            return ended
        response = response[rows, :length]
        windows = response[:, -self.window :].tolist()
        for row, window in enumerate(windows):
            if not self.silent.keys().isdisjoint(window):
                said = (token for token in response[row].tolist() if token not in self.silent)
                windows[row] = list(said)[-self.window :]
        texts = (_text(window, self.tokenizer) for window in windows)
        stopped = [any(stop in text for stop in self.stop) for text in texts]
        return ended | torch.tensor(stopped, device=ended.device)


def text_of(tokens: Sequence[int], tokenizer: Any, end_ids: Sequence[int], stop: Sequence[str]) -> str:
    """The text of a response up to its end token or its first stop string, without white space around it."""
    if not stop:
        return decode_response(tokens, tokenizer, end_ids)
    end = next((index for index, token in enumerate(tokens) if token in end_ids), len(tokens))
    # a stop string may begin or end with white space, so it is looked for before that is taken away
    text = _text(tokens[:end], tokenizer)
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=None)].strip()


def _text(tokens: Sequence[int], tokenizer: Any) -> str:
    text: str = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def _silent(tokenizer: Any) -> dict[int, str]:
    """The tokens that `_text` leaves out, and how they are written."""
    added = {index: token.content for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
