"""What layers compute of prompts and answers while answers are sampled, kept for the update's forward pass.

An update with the weights that sampled reads the very tokens that were read before. Of each token a layer then keeps
its queries, keys and values, its attention with the log-sum-exp, h, g, u and y (see `two_steps`), which is what its
backward pass wants as well. That spares an update its forward pass but for the head, a third of its time. It is the
native step that leaves it (see `native`); where answers are decoded in another way, nothing is kept.

    cache = ActivationCache(model)
    cache.start(prompts, answers, limit)        # and decode with `cache.recording(...)`
    states_before(model, rollout, cache)        # takes what is kept, and frees it

What is kept is found by the tokens of prompt and response, so rows may be picked and put in another order before. It
serves as long as no weight has changed, and once: each row is handed out a single time, and computed after that.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.core.batch import Rows
from tutelage.engines.cpu.attention_interface import supports
from tutelage.engines.cpu.fused.exchange import Computed
from tutelage.engines.cpu.fused.layer import LeanLayer
from tutelage.engines.cpu.fused.step import has_lean_step
from tutelage.engines.memory import available_memory
from tutelage.engines.network import inner, trunk
from tutelage.engines.packing import Packed

SAMPLE = 100
"""Numbers of each weight that are looked at to see whether it was changed."""
OF_TRAINING = 0.6
"""What may be kept, as a share of what training holds anyway: weights, gradients and two moments."""
OF_MEMORY = 0.25
"""The same, as a share of the memory that is left."""

_Key = tuple[bytes, bytes]
_Known = dict[_Key, tuple["_Group", int]]  # of each row, its group and its number there


class ActivationCache:
    """Those of one rollout at a time. `taken` counts the tokens that were handed out since it was sampled."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = inner(model)
        self.layers: list[LeanLayer] = list(trunk(model).layers)
        self.taken = 0
        self._known: _Known = {}
        self._then: tuple[list[int], Tensor] = [], torch.empty(0)

    def __len__(self) -> int:
        """How many rows are known."""
        return len(self._known)

    @staticmethod
    def can_serve(model: nn.Module) -> bool:
        """Whether every layer of `model` takes two steps, and a native step can decode with prompts that are shared.

        Not with norms of queries and keys, whose inputs would have to be kept too, nor with adapters, which decoding
        folds into the weights.
        """
        if not has_lean_step(model) or not supports(model, 1):
            return False
        layers = list(trunk(model).layers)
        state = next(layers[0].parameters()).new_empty(1, 1, layers[0].self_attn.q_proj.weight.shape[1])
        return all(layer.is_two_steps(state) and not layer.self_attn.norms_of_heads() for layer in layers)

    def start(self, prompts: Sequence[Sequence[int]], answers: int, limit: int) -> bool:
        """Forget the rollout before. Whether there is room for the next: `answers` of `limit` tokens to each prompt."""
        self.forget()
        self.taken = 0
        self._then = self._now()
        tokens = sum(len(prompt) + answers * (limit - 1) for prompt in prompts)
        parameters = list(self.model.parameters())
        held = 16 * sum(p.numel() for p in parameters if p.requires_grad)
        room = min(OF_TRAINING * held, OF_MEMORY * available_memory(parameters[0].device))
        return 4 * tokens * sum(map(_numbers, self.layers)) <= room

    def forget(self) -> None:
        """Free what is kept."""
        self._known = {}

    def recording(self, lengths: Sequence[int], answers: Sequence[int], limit: int) -> "Recording":
        """What keeps what a decoder computes, for prompts of these lengths with so many answers each."""
        groups = [_Group(length, count, limit - 1) for length, count in zip(lengths, answers, strict=True)]
        return Recording(groups, self._known)

    def line(self, rows: Rows, packed: Packed) -> "_Line | None":
        """What is known of a line of rows; None where anything is missing, or the weights are others by now."""
        found = [self._known.get(key) for key in _keys(rows)] if self._known else [None]
        places = [place for place in found if place is not None]
        if len(places) < len(found) or self._weights_are_others():
            return None
        groups, slots = zip(*places, strict=True)
        if any(layer not in group.computed for group in groups for layer in self.layers):
            return None
        self.taken += len(packed.tokens)
        return _Line(rows, packed, groups, slots)

    def _weights_are_others(self) -> bool:
        versions, sample = self._now()
        return versions != self._then[0] or not torch.equal(sample, self._then[1])

    def _now(self) -> tuple[list[int], Tensor]:
        """What tells weights from others: how often each was changed, and since fused optimisers do not count as a
        change, numbers out of each."""
        weights = [weight.detach() for weight in self.model.parameters()]
        sample = [weight.flatten()[:: 1 + weight.numel() // SAMPLE] for weight in weights]
        return [weight._version for weight in weights], torch.cat(sample)


class _Group:
    """A prompt and its answers: of every layer the prompt's tokens, then `stride` places for those of each answer."""

    def __init__(self, length: int, rows: int, stride: int) -> None:
        self.length, self.rows, self.stride = length, rows, stride
        self.places = length + rows * stride
        self.computed: dict[nn.Module, Computed] = {}
        self._waiting: dict[nn.Module, int] = {}  # rows that were not handed out yet

    def put_prompt(self, layer: nn.Module, computed: Computed) -> None:
        """Make room, kind behind kind, and put in what was computed of the prompt's tokens."""
        sizes = [self.places * x[0].numel() for x in computed]
        block = computed.y.new_empty(sum(sizes))
        parts = zip(block.split(sizes), computed, strict=True)
        room = Computed(*(part.view(self.places, *x.shape[1:]) for part, x in parts))
        for whole, x in zip(room, computed, strict=True):
            whole[: self.length] = x
        self.computed[layer], self._waiting[layer] = room, self.rows

    def take(self, layer: nn.Module, index: Tensor | int, rows: int) -> Computed:
        """What is at `index`, or of the first tokens; the last rows to be handed out take the memory with them."""
        self._waiting[layer] -= rows
        computed = self.computed[layer] if self._waiting[layer] > 0 else self.computed.pop(layer)
        if isinstance(index, int):
            return computed.apply(lambda x: x[:index])
        return computed.apply(lambda x: x.index_select(0, index))


class Recording:
    """What one decoder reads: prompts one behind the other, then a token of each answer at a time.

    Prompts are told layer by layer (see `Exchange`). What is computed of answers is written in its place by the step
    itself, which finds it by `groups`, `lines` and `blocks`.
    """

    def __init__(self, groups: Sequence[_Group], known: _Known) -> None:
        self.groups, self._known = groups, known
        self.reading = (0, len(groups))  # the prompts that are being read, first and behind the last
        numbers = range(len(groups))
        self._places = torch.tensor([(n, slot) for n in numbers for slot in range(groups[n].rows)])

    def given(self, layer: nn.Module) -> None:
        """Nothing is known yet."""

    def note(self, layer: nn.Module, computed: Computed) -> None:
        """Take in what `layer` computed of the prompts at `reading`."""
        first, behind = self.reading
        lengths = [group.length for group in self.groups[first:behind]]
        parts = zip(*(x.split(lengths) for x in computed), strict=True)
        for group, part in zip(self.groups[first:behind], parts, strict=True):
            group.put_prompt(layer, Computed(*part))

    def blocks(self, layers: Sequence[nn.Module]) -> list[int] | None:
        """Where each layer's block of each group begins, or None where prompts were not told of every layer."""
        if any(layer not in group.computed for group in self.groups for layer in layers):
            return None
        return [group.computed[layer][0].data_ptr() for layer in layers for group in self.groups]

    def lines(self) -> tuple[Tensor, Tensor]:
        """Of each answer that still goes on, the number of its group and the place of its first token there. Int[n]"""
        number, slot = self._places.T.contiguous()
        start, stride = torch.tensor([(group.length, group.stride) for group in self.groups])[number].T
        return number, start + slot * stride

    def forget(self) -> None:
        """Free what is kept: the answers are read in another way."""
        for group in self.groups:
            group.computed.clear()

    def keep(self, lines: Tensor) -> None:
        """Let all but these lines leave. Int[n], ascending"""
        self._places = self._places[lines]

    def name(self, rows: Rows) -> None:
        """Say what the answers turned out to be: `rows` are all of them, prompt by prompt."""
        places = [(group, slot) for group in self.groups for slot in range(group.rows)]
        self._known |= zip(_keys(rows), places, strict=True)


class _Line:
    """What is known of the tokens of a line (see `packing`), layer by layer."""

    def __init__(self, rows: Rows, packed: Packed, groups: Sequence[_Group], slots: Sequence[int]) -> None:
        width, device = rows.prompt.shape[1], rows.prompt.device
        column = torch.arange(width + rows.response.shape[1], device=device)
        own = [(group.length, slot * group.stride) for group, slot in zip(groups, slots, strict=True)]
        length, before = torch.tensor(own, device=device).T[..., None]
        index = (length - width + column + before * (column >= width)).flatten()[packed.cell]
        order = list(dict.fromkeys(groups))
        of_row = torch.tensor([order.index(group) for group in groups], device=device)
        numbers, counts = of_row[packed.cell // len(column)].unique_consecutive(return_counts=True)
        self.segments = [
            (order[number], _plain(part), groups.count(order[number]))
            for number, part in zip(numbers.tolist(), index.split(counts.tolist()), strict=True)
        ]

    def given(self, layer: nn.Module) -> Computed:
        """What `layer` computes of the line."""
        parts = [group.take(layer, index, rows) for group, index, rows in self.segments]
        return parts[0] if len(parts) == 1 else Computed(*map(torch.cat, zip(*parts, strict=True)))

    def note(self, layer: nn.Module, computed: Computed) -> None:
        """Nothing that is not known."""


def _plain(index: Tensor) -> Tensor | int:
    """The index, or how many numbers it has where they are 0, 1, 2, …"""
    return len(index) if torch.equal(index, torch.arange(len(index), device=index.device)) else index


def _keys(rows: Rows) -> list[_Key]:
    """What tells a row from others: the tokens of its prompt and of its response."""
    columns = ((rows.prompt, rows.prompt_mask), (rows.response, rows.mask))
    tokens, masks = zip(*((x.cpu().numpy(), mask.cpu().numpy()) for x, mask in columns), strict=True)
    return [
        (prompt[there].tobytes(), response[said].tobytes())
        for prompt, there, response, said in zip(tokens[0], masks[0], tokens[1], masks[1], strict=True)
    ]


def _numbers(layer: Any) -> int:
    """How many a layer computes of each token."""
    attention, gate = layer.self_attn, layer.mlp
    heads = (attention.q_proj, attention.k_proj, attention.v_proj)
    queries, width = heads[0].out_features, gate.down_proj.out_features
    return int(
        sum(p.out_features for p in heads)
        + queries
        + queries // attention.head_dim
        + 2 * width
        + 2 * gate.up_proj.out_features
    )
