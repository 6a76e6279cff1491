"""Cache of activations recorded during sampling and reused in the forward pass of the update.

The first minibatch of an update runs on the weights that sampled its tokens. For each token, a layer stores queries,
keys and values, the attention output with its log-sum-exp, h, g, u and y (see `fused.layer_steps`), all of which the
backward pass needs. The minibatch then skips its forward pass except for the output head, a third of its time. Only the
compiled decoding step (see `native`) records activations.

    cache = ActivationCache(model)
    cache.start(size)                       # then decode with `cache.recording(...)`
    states_before(model, rows, cache)       # consumes the activations

Activations are looked up by the tokens of prompt and completion, so rows may be selected and reordered. They are valid
until a weight changes and are consumed by their first use; later passes recompute them.
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
from tutelage.engines.devices import available_memory
from tutelage.engines.interface import PromptBatch, RolloutSize
from tutelage.engines.network import inner, trunk
from tutelage.engines.packing import PackedRows, PromptPass

SAMPLE = 100
"""Elements of each weight that are compared to detect a change."""
OF_TRAINING = 0.6
"""Memory limit, as a share of the memory of full training (weights, gradients and two moments), so that a LoRA run
never needs more than full training."""
OF_MEMORY = 0.25
"""Memory limit, as a share of available memory."""

_RowKey = tuple[bytes, bytes]
_Index = dict[_RowKey, tuple["_Group", int]]  # group of each row, and its index in the group


class ActivationCache:
    """Activations of one rollout at a time. `taken` counts the tokens whose activations were reused."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = inner(model)
        self.layers: list[FusedLayer] = list(trunk(model).layers)
        self.taken = 0
        self._index: _Index = {}
        self._first: frozenset[tuple[int, ...]] = frozenset()  # prompts whose activations are recorded
        self._fingerprint: tuple[list[int], Tensor] = [], torch.empty(0)

    def __len__(self) -> int:
        """Number of rows with recorded activations."""
        return len(self._index)

    def start(self, size: RolloutSize, *, half: bool = False) -> bool:
        """Discard the previous rollout. Returns whether the activations of a rollout of that size fit into memory.

        The whole rollout must fit although only its first rows are recorded, which keeps memory proportional to the
        forward passes saved. `half`: products are in bfloat16.
        """
        self.forget()
        self.taken, self._first = 0, size.first
        self._fingerprint = self._present_fingerprint()
        tokens = sum(len(prompt) + size.n * (size.limit - 1) for prompt in size.prompts)
        parameters = list(self.model.parameters())
        training_memory = 16 * sum(p.numel() for p in parameters)
        most = min(OF_TRAINING * training_memory, OF_MEMORY * available_memory(parameters[0].device))
        return tokens * sum(_bytes_per_token(layer, half) for layer in self.layers) <= most

    def forget(self) -> None:
        """Free all activations."""
        self._index = {}

    def recording(self, batch: PromptBatch, limit: int) -> "Recording | None":
        """A recording for a decoder of these prompts; None if none of them is to be recorded."""
        groups = [
            _Group(len(prompt), count, limit - 1) if prompt in self._first else None
            for prompt, count in zip(batch.prompts, batch.answers, strict=True)
        ]
        return Recording(batch, groups, self._index) if any(groups) else None

    def lookup(self, rows: Rows, packed: PackedRows) -> "_PackedActivations | None":
        """The activations of packed rows; None if any are missing. Frees all activations if the weights have
        changed."""
        if self._index:
            versions, sample = self._present_fingerprint()
            if versions != self._fingerprint[0] or not torch.equal(sample, self._fingerprint[1]):
                self.forget()
        entries = [self._index.get(key) for key in _keys(rows)] if self._index else [None]
        places = [place for place in entries if place is not None]
        if len(places) < len(entries):
            return None
        groups, slots = zip(*places, strict=True)
        if any(layer not in group.activations for group in groups for layer in self.layers):
            return None
        self.taken += len(packed.tokens)
        return _PackedActivations(rows, packed, groups, slots)

    def _present_fingerprint(self) -> tuple[list[int], Tensor]:
        """Version counter and some elements of each weight, since fused optimisers do not increment the counter."""
        weights = [weight.detach() for weight in self.model.parameters()]
        sample = [weight.flatten()[:: 1 + weight.numel() // SAMPLE] for weight in weights]
        return [weight._version for weight in weights], torch.cat(sample)


class _Group:
    """A prompt and its completions: per layer, the tokens of the prompt, then `stride` slots for each completion."""

    def __init__(self, length: int, rows: int, stride: int) -> None:
        self.length, self.rows, self.stride = length, rows, stride
        self.places = length + rows * stride
        self.activations: dict[nn.Module, LayerActivations] = {}
        self._waiting: dict[nn.Module, int] = {}  # rows not consumed yet

    def put_prompt(self, layer: nn.Module, activations: LayerActivations) -> None:
        """Allocate the block of a layer, one kind after another, and store the activations of the prompt."""
        sizes = [self.places * x[0].numel() * x.itemsize for x in activations]
        block = activations.y.new_empty(sum(sizes), dtype=torch.uint8)
        parts = zip(block.split(sizes), activations, strict=True)
        room = LayerActivations(*(part.view(x.dtype).view(self.places, *x.shape[1:]) for part, x in parts))
        for whole, x in zip(room, activations, strict=True):
            whole[: self.length] = x
        self.activations[layer], self._waiting[layer] = room, self.rows

    def take(self, layer: nn.Module, index: Tensor | int, rows: int) -> LayerActivations:
        """The activations at `index`, or of the first tokens. The block is freed once all rows are consumed."""
        self._waiting[layer] -= rows
        block = self.activations[layer] if self._waiting[layer] > 0 else self.activations.pop(layer)
        if isinstance(index, int):
            return block.map(lambda x: x[:index])
        return block.map(lambda x: x.index_select(0, index))


class Recording:
    """Activations of one decoder: those of the prompts, pass by pass, then one token per completion at a time.

    The layers record the prompts of a pass in its cache (`of_pass`). The compiled step writes the activations of
    completions directly, at addresses given by `groups`, `lines` and `blocks`.
    """

    def __init__(self, batch: PromptBatch, kept: Sequence[_Group | None], index: _Index) -> None:
        self.groups = [group for group in kept if group is not None]
        self._kept, self._index = kept, index
        self._rows = [(group, slot) for group, n in zip(kept, batch.answers, strict=True) for slot in range(n)]
        numbers = {group: number for number, group in enumerate(self.groups)}
        places = [(-1, 0) if group is None else (numbers[group], slot) for group, slot in self._rows]
        self._places = torch.tensor(places)  # group and slot of each line

    def of_pass(self, prompts: PromptPass) -> LayerCache:
        """Cache into which the layers record a pass over prompts."""
        return _PassRecording(prompts, self._kept[prompts.first : prompts.end])

    def blocks(self, layers: Sequence[nn.Module]) -> list[int] | None:
        """Address of the block of each layer and group; None if a layer did not record the prompts."""
        if any(layer not in group.activations for group in self.groups for layer in layers):
            return None
        return [group.activations[layer][0].data_ptr() for layer in layers for group in self.groups]

    def lines(self) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """For each active line, the index of its group and the slot of its first token; the index is −1 if nothing is
        recorded."""
        number, slot = self._places.T.contiguous()
        start, stride = torch.tensor([(group.length, group.stride) for group in self.groups])[number].T
        return number, start + slot * stride

    def forget(self) -> None:
        """Free the activations, if the completions are not decoded by the compiled step."""
        for group in self.groups:
            group.activations.clear()

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """Drop all lines except `lines` (ascending)."""
        self._places = self._places[lines]

    def register(self, rows: Rows) -> None:
        """Add all completions, `rows` (prompt by prompt), to the index of the cache."""
        for key, (group, slot) in zip(_keys(rows), self._rows, strict=True):
            if group is not None:
                self._index[key] = group, slot


@dataclass(frozen=True)
class _PassRecording:
    """The `LayerCache` of a pass over prompts; stores the activations in the group of each prompt, if any."""

    prompts: PromptPass
    kept: Sequence[_Group | None]

    def lookup(self, layer: nn.Module) -> None:
        """See `LayerCache.lookup`; always None."""

    def record(self, layer: nn.Module, activations: LayerActivations) -> None:
        """See `LayerCache.record`."""
        parts = zip(*map(self.prompts.apart, activations), strict=True)
        for group, part in zip(self.kept, parts, strict=True):
            if group is not None:
                group.put_prompt(layer, LayerActivations(*part))


class _PackedActivations:
    """The `LayerCache` of packed rows with cached activations."""

    def __init__(self, rows: Rows, packed: PackedRows, groups: Sequence[_Group], slots: Sequence[int]) -> None:
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
        """See `LayerCache.record`; does nothing."""


def _length_if_range(index: Tensor) -> Tensor | int:
    """n if the index is 0, 1, …, n − 1; otherwise the index unchanged."""
    return len(index) if torch.equal(index, torch.arange(len(index), device=index.device)) else index


def _keys(rows: Rows) -> list[_RowKey]:
    """Cache key of each row: the tokens of its prompt and completion."""
    columns = ((rows.prompt, rows.prompt_mask), (rows.response, rows.mask))
    tokens, masks = zip(*((x.cpu().numpy(), mask.cpu().numpy()) for x, mask in columns), strict=True)
    return [
        (prompt[in_prompt].tobytes(), response[in_response].tobytes())
        for prompt, in_prompt, response, in_response in zip(tokens[0], masks[0], tokens[1], masks[1], strict=True)
    ]


def _bytes_per_token(layer: Any, half: bool) -> int:
    """Bytes of the activations of one token (see `LayerActivations`)."""
    attention, gate = layer.self_attn, layer.mlp
    heads = (attention.q_proj, attention.k_proj, attention.v_proj)
    queries, width = heads[0].out_features, gate.down_proj.out_features
    of_products = sum(p.out_features for p in heads) + queries + 2 * gate.up_proj.out_features
    return int((2 if half else 4) * of_products + 4 * (queries // attention.head_dim + 2 * width))
