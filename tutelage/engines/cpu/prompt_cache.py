"""Where decoding keeps keys and values: each prompt's once, each answer's beside it.

P prompts × G slots. A slot holds an answer that is being written, or is empty. Nothing that is stored moves while
tokens are added. An answer that has ended leaves its slot empty; once enough slots are, the rest moves together, so
that all the moving of a rollout costs about as much as filling the store once did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tutelage.engines.cpu.decode_attention import over_prompt_and_answer, within_prompts

MOVE_WHEN = 0.75  # what is stored moves together where at most this share of the slots remains
ROOM = 64  # tokens of an answer that there is room for at first; doubled when answers grow longer


@dataclass
class Stored:
    """Keys and values of one layer."""

    prompt: tuple[Tensor, Tensor]  # [P, K, Q, w], zeros behind a prompt's end
    answer: tuple[Tensor, Tensor]  # [P, K, G, room, w]


class SharedPrompts:
    """The store of all layers, and the functions that attend with it (see `attention_by`).

    Prompts have `lengths`, and get as many answers as `answers` says. Answers are lines 0, 1, … of a decoding step,
    prompt by prompt; those that leave are no longer counted.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        answers: Sequence[int],
        limit: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.limit, self.dtype, self.device = limit, dtype, device
        self.lengths = torch.tensor(lengths, device=device)
        self.width = max(answers)
        places = [p * self.width + g for p, count in enumerate(answers) for g in range(count)]
        self.place = torch.tensor(places, device=device)  # the slot of each line, ascending
        self.room = min(limit, ROOM)
        self.written = 0  # tokens that each answer has stored, with the one that is being read
        self.reading = (0, 0)  # the prompts that are being read, first and behind the last
        self.layers: dict[nn.Module, Stored] = {}
        self.version = 0  # changes whenever lines leave or what is stored moves
        self._look()

    def _look(self) -> None:
        """What follows from the lengths and the slots in use."""
        self.prompts, self.count = len(self.lengths), len(self.place)
        self.slots = self.prompts * self.width
        self.full = self.count == self.slots
        self.longest = int(self.lengths.max())
        self.hidden: Tensor | None = None
        if int(self.lengths.min()) < self.longest:
            beyond = torch.arange(self.longest, device=self.device) >= self.lengths[:, None, None]
            self.hidden = torch.zeros(beyond.shape, device=self.device).masked_fill(beyond, -torch.inf)

    # Attention --------------------------------------------------------------------------------------------------------

    def read(
        self,
        layer: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float | None = None,
        **more: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each of the prompts `reading`, one behind the other in one row [1, ·, N, w], and store them.

        For `attention_by`.
        """
        query, key, value = (x[0].to(self.dtype) for x in (query, key, value))
        if layer not in self.layers:
            self.layers[layer] = self._allocated(key, value)
        keys, values = self.layers[layer].prompt
        first, behind = self.reading
        outputs, ends, start = [], [], 0
        for length, alike in groupby(self.lengths[first:behind].tolist()):
            count = len(list(alike))
            part = slice(start, start + count * length)
            q, k, v = (x[:, part].unflatten(1, (count, length)).transpose(0, 1) for x in (query, key, value))
            keys[first : first + count, :, :length] = k
            values[first : first + count, :, :length] = v
            output, end = within_prompts(q, k, v, scaling)
            outputs.append(output.transpose(1, 2).flatten(0, 1))
            ends += [] if end is None else [end.transpose(1, 2).flatten(0, 1)]
            first, start = first + count, part.stop
        return torch.cat(outputs)[None], torch.cat(ends) if ends else None

    def attend(
        self, layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None
    ) -> Tensor:
        """Store one more token of each answer and attend to it, those before it and the prompt.

        [m, H, w], [m, K, w], [m, K, w'] → [m, H, w']. Lines beyond the answers are there for the sake of the linear
        layers; nothing comes out for them.
        """
        stored, (lines, heads) = self.layers[layer], query.shape[:2]
        keys, values = stored.answer
        keys.select(3, self.written - 1).copy_(self._in_slots(key).transpose(1, 2))
        values.select(3, self.written - 1).copy_(self._in_slots(value).transpose(1, 2))
        so_far = (keys.narrow(3, 0, self.written), values.narrow(3, 0, self.written))
        queries = self._in_slots(query).unflatten(2, (key.shape[1], -1)).transpose(1, 2)
        output = over_prompt_and_answer(queries, stored.prompt, so_far, self.hidden, scaling)
        output = output.transpose(1, 2).reshape(self.slots, heads, -1)
        if not self.full:
            output = output[self.place]
        if lines > self.count:
            output = pad(output, (0, 0, 0, 0, 0, lines - self.count))
        return output

    def _in_slots(self, x: Tensor) -> Tensor:
        """Lines [m, h, w] → [P, G, h, w], zeros in empty slots."""
        if x.shape[0] > self.count:
            x = x[: self.count]
        x, shape = x.to(self.dtype), (self.prompts, self.width, *x.shape[1:])
        if self.full:
            return x.view(shape)
        spread = x.new_zeros(self.slots, *x.shape[1:])
        return spread.index_copy_(0, self.place, x).view(shape)

    # Room -------------------------------------------------------------------------------------------------------------

    def _allocated(self, key: Tensor, value: Tensor) -> Stored:
        """Room for the prompts and the first tokens of the answers of one layer."""
        shapes = [(self.prompts, x.shape[0], x.shape[-1]) for x in (key, value)]
        prompt = [key.new_zeros(p, heads, self.longest, w) for p, heads, w in shapes]
        answer = [key.new_empty(p, heads, self.width, self.room, w) for p, heads, w in shapes]
        return Stored((_columns(prompt[0]), prompt[1]), (answer[0], answer[1]))

    def open(self) -> Tensor:
        """Make room for one more token of each answer; its position in each line. Int[n]"""
        if self.written == self.room:
            self.room = min(2 * self.room, self.limit)
            self._move(torch.arange(self.slots, device=self.device), self.width, None)
        self.written += 1
        return self.lengths[self.place // self.width] + self.written - 1

    def keep(self, lines: Tensor) -> None:
        """Let all but these lines leave. Int[n], ascending"""
        self.version += 1
        self.place, self.count, self.full = self.place[lines], len(lines), False
        prompt = self.place // self.width
        counts = prompt.bincount(minlength=self.prompts)
        kept, width = counts.nonzero().squeeze(1), int(counts.max())
        if len(kept) * width > MOVE_WHEN * self.slots:
            return
        rank = torch.arange(self.count, device=self.device) - (counts.cumsum(0) - counts)[prompt]
        place = ((counts > 0).cumsum(0) - 1)[prompt] * width + rank
        source = self.place.new_full(
            (len(kept) * width,), int(self.place[0])
        )  # anything finite where it is empty
        source[place] = self.place
        self._move(source, width, kept if len(kept) < self.prompts else None)
        self.place, self.width, self.lengths = place, width, self.lengths[kept]
        self._look()

    def _move(self, source: Tensor, width: int, prompts: Tensor | None) -> None:
        """Fill new slots, `width` to a prompt, from the old ones at `source`; keep only `prompts` where given."""
        old, slot = source // self.width, source % self.width
        self.version += 1
        longest = self.longest if prompts is None else int(self.lengths[prompts].max())

        def answers(store: Tensor) -> Tensor:
            filled = store[:, :, :, : self.written][old, :, slot].unflatten(0, (-1, width)).transpose(1, 2)
            moved = store.new_empty(*filled.shape[:3], self.room, store.shape[-1])
            moved[:, :, :, : self.written] = filled
            return moved

        for stored in self.layers.values():
            stored.answer = (answers(stored.answer[0]), answers(stored.answer[1]))
            if prompts is not None:
                keys, values = stored.prompt
                stored.prompt = (_columns(keys[prompts, :, :longest]), values[prompts, :, :longest])


def _columns(keys: Tensor) -> Tensor:
    """The same keys [P, K, Q, w], in memory as the columns that a product with float32 queries reads fastest."""
    return keys.mT.contiguous().mT if keys.dtype == torch.float32 else keys
