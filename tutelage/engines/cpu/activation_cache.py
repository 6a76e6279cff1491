"""Cache of the activations of prompts and completions, kept from sampling for the forward pass of the update.

The first minibatch of an update reads tokens with the weights that sampled them. For each token, a layer keeps its
queries, keys and values, its attention with the log-sum-exp, h, g, u and y (see `fused.layer_steps`), which its
backward pass needs too. That saves the minibatch its forward pass but for the output head, a third of its time. They
are written by the compiled decoding step (see `native`); where completions are decoded in another way, nothing is kept.

    cache = ActivationCache(model)
    cache.start(size)                       # then decode with `cache.recording(...)`
    states_before(model, rows, cache)       # takes the activations, and frees them

Activations are found by the tokens of prompt and completion, so rows may be selected and reordered before. They are
valid until a weight changes, and for one use: the activations of a row are taken once, and computed after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from tutelage.core.batch import Rows
from tutelage.engines.cpu.forward_pass import LayerActivations, LayerCache
from tutelage.engines.cpu.fused.layer import FusedLayer
from tutelage.engines.cpu.prompt_passes import PromptPass
from tutelage.engines.device_memory import available_memory
from tutelage.engines.interface import PromptBatch, RolloutSize
from tutelage.engines.network import inner, trunk
from tutelage.engines.packing import PackedRows

SAMPLE = 100
"""Numbers of each weight that are compared to detect a change."""
OF_TRAINING = 0.6
"""The most that may be kept, as a share of what training all weights holds: weights, gradients and two moments. So a
run with an adapter never holds more than one that trains all weights."""
OF_MEMORY = 0.25
"""The most that may be kept, as a share of the memory that is left."""

_RowKey = tuple[bytes, bytes]
_Index = dict[_RowKey, tuple["_Group", int]]  # the group of each row, and its number there


class ActivationCache:
    """The activations of one rollout at a time. `taken` counts the tokens whose activations were taken from it."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = inner(model)
        self.layers: list[FusedLayer] = list(trunk(model).layers)
        self.taken = 0
        self._index: _Index = {}
        self._first: frozenset[tuple[int, ...]] = frozenset()  # the prompts of which activations are kept
        self._fingerprint: tuple[list[int], Tensor] = [], torch.empty(0)

    def __len__(self) -> int:
        """The number of rows whose activations were kept."""
        return len(self._index)

    def start(self, size: RolloutSize, *, half: bool = False) -> bool:
        """Forget the last rollout. Returns whether there is memory for the activations of a rollout of that size.

        There has to be for the whole rollout, although only those of its first rows are kept: so their memory is in
        proportion to the forward passes that they save. `half`: products are in bfloat16.
        """
        self.forget()
        self.taken, self._first = 0, size.first
        self._fingerprint = self._present_fingerprint()
        tokens = sum(len(prompt) + size.n * (size.limit - 1) for prompt in size.prompts)
        parameters = list(self.model.parameters())
        held = 16 * sum(p.numel() for p in parameters)
        most = min(OF_TRAINING * held, OF_MEMORY * available_memory(parameters[0].device))
        return tokens * sum(_bytes_per_token(layer, half) for layer in self.layers) <= most

    def forget(self) -> None:
        """Free all activations."""
        self._index = {}

    def recording(self, batch: PromptBatch, limit: int) -> "Recording | None":
        """A recording for a decoder of these prompts; None if none of them is to be kept."""
        kept = [
            _Group(len(prompt), count, limit - 1) if prompt in self._first else None
            for prompt, count in zip(batch.prompts, batch.answers, strict=True)
        ]
        return Recording(batch, kept, self._index) if any(kept) else None

    def lookup(self, rows: Rows, packed: PackedRows) -> "_PackedActivations | None":
        """The activations of packed rows; None if any is missing. Where the weights have changed, all are freed."""
        if self._index and self._weights_changed():
            self.forget()
        found = [self._index.get(key) for key in _keys(rows)] if self._index else [None]
        places = [place for place in found if place is not None]
        if len(places) < len(found):
            return None
        groups, slots = zip(*places, strict=True)
        if any(layer not in group.activations for group in groups for layer in self.layers):
            return None
        self.taken += len(packed.tokens)
        return _PackedActivations(rows, packed, groups, slots)

    def _weights_changed(self) -> bool:
        versions, sample = self._present_fingerprint()
        return versions != self._fingerprint[0] or not torch.equal(sample, self._fingerprint[1])

    def _present_fingerprint(self) -> tuple[list[int], Tensor]:
        """The version counter of each weight and some of its numbers: fused optimisers do not count as a change."""
        weights = [weight.detach() for weight in self.model.parameters()]
        sample = [weight.flatten()[:: 1 + weight.numel() // SAMPLE] for weight in weights]
        return [weight._version for weight in weights], torch.cat(sample)


class _Group:
    """A prompt and its completions: for every layer the tokens of the prompt, then `stride` places for each
    completion."""

    def __init__(self, length: int, rows: int, stride: int) -> None:
        self.length, self.rows, self.stride = length, rows, stride
        self.places = length + rows * stride
        self.activations: dict[nn.Module, LayerActivations] = {}
        self._waiting: dict[nn.Module, int] = {}  # rows that were not taken yet

    def put_prompt(self, layer: nn.Module, activations: LayerActivations) -> None:
        """Allocate the block of a layer, one kind after the other, and store the activations of the prompt's tokens."""
        sizes = [self.places * x[0].numel() * x.itemsize for x in activations]
        block = activations.y.new_empty(sum(sizes), dtype=torch.uint8)
        parts = zip(block.split(sizes), activations, strict=True)
        room = LayerActivations(*(part.view(x.dtype).view(self.places, *x.shape[1:]) for part, x in parts))
        for whole, x in zip(room, activations, strict=True):
            whole[: self.length] = x
        self.activations[layer], self._waiting[layer] = room, self.rows

    def take(self, layer: nn.Module, index: Tensor | int, rows: int) -> LayerActivations:
        """The activations at `index`, or of the first tokens. The block is freed with the last rows that are taken."""
        self._waiting[layer] -= rows
        found = self.activations[layer] if self._waiting[layer] > 0 else self.activations.pop(layer)
        if isinstance(index, int):
            return found.map(lambda x: x[:index])
        return found.map(lambda x: x.index_select(0, index))


class Recording:
    """The activations of one decoder: of the prompts, pass by pass, then of one token of each completion at a time.

    The layers record the prompts of a pass in its cache (`of_pass`). The compiled step writes the activations of
    completions into their places itself, which it finds by `groups`, `lines` and `blocks`.
    """

    def __init__(self, batch: PromptBatch, kept: Sequence[_Group | None], index: _Index) -> None:
        self.groups = [group for group in kept if group is not None]
        self._kept, self._index = kept, index
        self._rows = [
            (group, slot) for group, n in zip(kept, batch.answers, strict=True) for slot in range(n)
        ]
        numbers = {group: number for number, group in enumerate(self.groups)}
        places = [(-1, 0) if group is None else (numbers[group], slot) for group, slot in self._rows]
        self._places = torch.tensor(places)  # the group and the slot of each line

    def of_pass(self, prompts: PromptPass) -> LayerCache:
        """The cache in which the layers record a pass over prompts."""
        return _PassRecording(prompts, self._kept[prompts.first : prompts.end])

    def blocks(self, layers: Sequence[nn.Module]) -> list[int] | None:
        """The address of the block of each layer and group; None if a layer did not record the prompts."""
        if any(layer not in group.activations for group in self.groups for layer in layers):
            return None
        return [group.activations[layer][0].data_ptr() for layer in layers for group in self.groups]

    def lines(self) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """For each line that goes on, the number of its group and the place of its first token there; −1 and any place
        where nothing is kept."""
        number, slot = self._places.T.contiguous()
        start, stride = torch.tensor([(group.length, group.stride) for group in self.groups])[number].T
        return number, start + slot * stride

    def forget(self) -> None:
        """Free the activations: the completions are decoded in another way."""
        for group in self.groups:
            group.activations.clear()

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """Drop all lines except `lines` (ascending)."""
        self._places = self._places[lines]

    def register(self, rows: Rows) -> None:
        """Enter the completions into the index of the cache: `rows` are all of them, prompt by prompt."""
        for key, (group, slot) in zip(_keys(rows), self._rows, strict=True):
            if group is not None:
                self._index[key] = group, slot


@dataclass(frozen=True)
class _PassRecording:
    """The `LayerCache` of a pass over prompts, whose activations go to the group of each prompt, if it has one."""

    prompts: PromptPass
    kept: Sequence[_Group | None]

    def lookup(self, layer: nn.Module) -> None:
        """See `LayerCache.lookup`: nothing is kept yet."""

    def record(self, layer: nn.Module, activations: LayerActivations) -> None:
        """See `LayerCache.record`."""
        parts = zip(*map(self.prompts.apart, activations), strict=True)
        for group, part in zip(self.kept, parts, strict=True):
            if group is not None:
                group.put_prompt(layer, LayerActivations(*part))


class _PackedActivations:
    """The `LayerCache` of packed rows whose activations are kept."""

    def __init__(
        self, rows: Rows, packed: PackedRows, groups: Sequence[_Group], slots: Sequence[int]
    ) -> None:
        width, device = rows.prompt.shape[1], rows.prompt.device
        column = torch.arange(width + rows.response.shape[1], device=device)
        own = [(group.length, slot * group.stride) for group, slot in zip(groups, slots, strict=True)]
        length, before = torch.tensor(own, device=device).T[..., None]
        index = (length - width + column + before * (column >= width)).flatten()[packed.cell]
        order = list(dict.fromkeys(groups))
        of_row = torch.tensor([order.index(group) for group in groups], device=device)
        numbers, counts = of_row[packed.cell // len(column)].unique_consecutive(return_counts=True)
        self.segments = [
            (order[number], _length_if_range(part), groups.count(order[number]))
            for number, part in zip(numbers.tolist(), index.split(counts.tolist()), strict=True)
        ]

    def lookup(self, layer: nn.Module) -> LayerActivations:
        """See `LayerCache.lookup`."""
        parts = [group.take(layer, index, rows) for group, index, rows in self.segments]
        return parts[0] if len(parts) == 1 else LayerActivations(*map(torch.cat, zip(*parts, strict=True)))

    def record(self, layer: nn.Module, activations: LayerActivations) -> None:
        """See `LayerCache.record`: all activations are kept already."""


def _length_if_range(index: Tensor) -> Tensor | int:
    """The length n of an index that is 0, 1, …, n − 1; any other index as it is."""
    return len(index) if torch.equal(index, torch.arange(len(index), device=index.device)) else index


def _keys(rows: Rows) -> list[_RowKey]:
    """The key of each row: the tokens of its prompt and of its completion."""
    columns = ((rows.prompt, rows.prompt_mask), (rows.response, rows.mask))
    tokens, masks = zip(*((x.cpu().numpy(), mask.cpu().numpy()) for x, mask in columns), strict=True)
    return [
        (prompt[in_prompt].tobytes(), response[in_response].tobytes())
        for prompt, in_prompt, response, in_response in zip(
            tokens[0], masks[0], tokens[1], masks[1], strict=True
        )
    ]


def _bytes_per_token(layer: Any, half: bool) -> int:
    """The bytes of the activations of one token (see `LayerActivations`)."""
    attention, gate = layer.self_attn, layer.mlp
    heads = (attention.q_proj, attention.k_proj, attention.v_proj)
    queries, width = heads[0].out_features, gate.down_proj.out_features
    of_products = sum(p.out_features for p in heads) + queries + 2 * gate.up_proj.out_features
    return int((2 if half else 4) * of_products + 4 * (queries // attention.head_dim + 2 * width))
