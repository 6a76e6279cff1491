"""Sampling of completions in a fixed number of slots, each step of which is one captured graph.

A slot holds one row of the rollout: it begins by reading the last token of its prompt, samples one token a step, and
takes the next row once its row has ended. Keys and values of a prompt exist once for all slots that continue it (see
`slot_attention`). A step reads and writes device tensors of fixed shapes only, so that it is captured once and
replayed; the CPU looks at the slots every `STEPS` steps. The uniform number of a row and a token comes from a table: a
row depends neither on other slots nor on when it began, and its rounding depends on the number of slots alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.base import config
from tutelage.engines.gpu.decoding_copy import TensorModel
from tutelage.engines.gpu.slot_attention import DecodeAttention, SlotIndices, SlotTensors
from tutelage.engines.gpu.span_attention import Spans
from tutelage.engines.gpu.transformer import embedded, forward
from tutelage.engines.logprobs import PLAIN_KERNELS
from tutelage.engines.plans.token_budget import GROUP
from tutelage.engines.sampling import StopCondition
from tutelage.engines.token_sampling import draw

STEPS = 8
"""Steps between two looks at the slots."""
READ_AT_ONCE = 32_768
"""Prompt tokens of a forward pass."""


def softmax_parts(
    logits: Float[Tensor, "n V"], temperature: float = 1.0, *, keeps: bool = True
) -> tuple[Float[Tensor, "n V"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    """See `engines.logprobs.softmax_parts`; in operations that are compiled into few kernels."""
    logits = logits / temperature
    maximum = logits.amax(-1)
    shares = (logits - maximum[:, None]).exp()
    total = shares.sum(-1)
    return shares / total[:, None], maximum, total.log()


KERNELS = replace(PLAIN_KERNELS, softmax_parts=softmax_parts)


@cache
def compiled_draw() -> Any:
    """`draw`, compiled once per process."""
    return torch.compile(draw)


@dataclass(frozen=True)
class SlotSizes:
    """Sizes of the tensors of a step."""

    slots: int
    limit: int
    """Maximum tokens of a completion."""
    prompt_tokens: int
    """Tokens of all prompts."""
    longest: int
    """Tokens of the longest prompt."""
    rows: int

    def hold(self, other: "SlotSizes") -> bool:
        """Whether tensors of these sizes serve another rollout without a longer prompt table than twice its own."""
        same = (self.slots, self.limit) == (other.slots, other.limit)
        fits = self.prompt_tokens >= other.prompt_tokens and self.rows >= other.rows
        return same and fits and other.longest <= self.longest <= 2 * other.longest


class Slots:
    """The tensors of a step, and the step. One more row than the rollout's receives what unused slots write."""

    def __init__(self, model: TensorModel, sizes: SlotSizes, sampling: config.Sampling, end_ids: Sequence[int]) -> None:
        self.model, self.sizes, self.sampling = model, sizes, sampling
        form, device = model.form, model.network.embedding.device
        self.device = device
        heads, kv_heads = form.heads, form.kv_heads
        layers, count = len(model.network.layers), sizes.slots

        def keys(*shape: int) -> Tensor:
            return torch.zeros(layers, *shape, kv_heads, form.width, device=device, dtype=form.dtype)

        def numbers(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(*shape, device=device, dtype=dtype)

        self.prompt_key, self.prompt_value = keys(sizes.prompt_tokens), keys(sizes.prompt_tokens)
        self.own_key, self.own_value = keys(count, sizes.limit), keys(count, sizes.limit)
        int32 = torch.int32
        self.indices = SlotIndices(
            numbers(count, dtype=int32),
            numbers(count, dtype=int32),
            numbers(count, GROUP, dtype=int32) - 1,
            numbers(count, dtype=int32) - 1,
            numbers(count, dtype=int32),
        )
        self.attention = DecodeAttention(
            count, heads, kv_heads, form.width, sizes.longest, sizes.limit, device, form.dtype
        )
        self.cos, self.sin = model.rotary(torch.arange(sizes.longest + sizes.limit, device=device))
        self.ends = tuple(end_ids)
        self.end_ids = torch.tensor(self.ends, dtype=torch.long, device=device)
        self.token, self.position, self.row = numbers(count), numbers(count), numbers(count) + sizes.rows
        self.active = numbers(count, dtype=torch.bool)
        places = (sizes.rows + 1, sizes.limit)
        self.uniforms = torch.zeros(places, device=device, dtype=torch.float64)
        self.response = numbers(*places)
        self.logp = torch.zeros(places, device=device)
        self.length = numbers(sizes.rows + 1)
        self.terminated = numbers(sizes.rows + 1, dtype=torch.bool)
        self.draw = compiled_draw() if device.type == "cuda" else draw
        self.run = self._captured() if device.type == "cuda" else self.step

    def serve(self, sizes: SlotSizes, sampling: config.Sampling, end_ids: Sequence[int]) -> bool:
        """Whether these slots serve another rollout."""
        return self.sizes.hold(sizes) and self.sampling == sampling and self.ends == tuple(end_ids)

    @torch.no_grad()
    def step(self) -> None:
        """Sample one token in each active slot."""
        form, network, steps = self.model.form, self.model.network, self.model.steps
        length = self.indices.length
        length += self.active
        x = embedded(form, network, self.token)
        cos, sin = self.cos[self.position], self.sin[self.position]
        for number, layer in enumerate(network.layers):
            stored = (self.prompt_key[number], self.prompt_value[number], self.own_key[number], self.own_value[number])
            tensors = SlotTensors(*steps.inputs(form, layer, x, cos, sin), *stored)
            x = steps.output(form, layer, x, self.attention(tensors, self.indices, form.scaling))
        logits = self.model.logits(form.norm(x, network.norm))
        place = (length.long() - 1).clamp(min=0)
        row = torch.where(self.active, self.row, self.sizes.rows)
        token, logp = self.draw(logits, self.sampling, self.uniforms[row, place], KERNELS, fixed_shape=True)
        self.response[row, place] = token
        self.logp[row, place] = logp
        self.length[row] = place + 1
        ended = (token[:, None] == self.end_ids).any(-1)
        self.terminated[row] = ended
        self.token.copy_(token)
        self.position += self.active
        self.active &= ~ended & (place + 1 < self.sizes.limit)

    def _captured(self) -> Callable[[], None]:
        """The step as a replay of its graph. Compiles what is compiled on first use; no slot is active meanwhile."""
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    @torch.no_grad()
    def read(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Read prompts, whose keys and values replace those of earlier ones. Returns where each begins."""
        starts: list[int] = []
        parts: list[list[int]] = [[]]
        at = 0
        for number, prompt in enumerate(prompts):
            starts.append(at)
            at += len(prompt)
            if parts[-1] and at - starts[parts[-1][0]] > READ_AT_ONCE:
                parts.append([])
            parts[-1].append(number)
        for part in parts:
            self._read([prompts[number] for number in part], starts[part[0]])
        return starts

    def _read(self, prompts: Sequence[Sequence[int]], start: int) -> None:
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        number = torch.arange(len(prompts)).repeat_interleave(lengths)
        position = torch.cat([torch.arange(length) for length in lengths.tolist()]).to(self.device)
        tokens = torch.tensor([token for prompt in prompts for token in prompt], device=self.device)
        spans = Spans.padded(*(number.to(self.device),) * 2)
        form, span = self.model.form, slice(start, start + len(tokens))
        attend = spans.attention(form.scaling, form.width)

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self.prompt_key[layer, span] = key[: len(tokens)]
            self.prompt_value[layer, span] = value[: len(tokens)]
            return attend(layer, query, key, value)

        cos, sin = self.model.rotary(spans.pad(position))
        forward(form, self.model.network, spans.pad(tokens), cos, sin, attention, self.model.steps)


@dataclass(frozen=True)
class SlotRow:
    """A row of a rollout to be sampled: its number, and the number of its prompt among the prompts that were read."""

    number: int
    prompt: int


class SlotQueue:
    """Assignment of rows to slots, on the CPU."""

    def __init__(self, slots: Slots, prompts: Sequence[Sequence[int]], starts: Sequence[int]) -> None:
        self.slots, self.prompts, self.starts = slots, prompts, starts
        self.held: list[SlotRow | None] = [None] * slots.sizes.slots
        self.looked = [0] * slots.sizes.slots  # tokens of each held row that were searched for stop strings

    def fill(self, rows: list[SlotRow]) -> None:
        """Give rows from the front of `rows` to unused slots."""
        changed = []
        for slot, held in enumerate(self.held):
            if held is None and rows:
                self.held[slot], self.looked[slot] = rows.pop(0), 0
                changed.append(slot)
        if changed:
            self._write(changed)

    def release(self, active: Sequence[bool]) -> int:
        """Free the slots whose rows have ended. Returns their number."""
        ended = [slot for slot, held in enumerate(self.held) if held is not None and not active[slot]]
        for slot in ended:
            self.held[slot] = None
        return len(ended)

    def cut(self, condition: StopCondition, pad: int) -> None:
        """End the rows in whose new tokens a stop string was completed, at the token that completed it."""
        slots = self.slots
        response, length = slots.response.cpu(), slots.length.tolist()
        for slot, held in enumerate(self.held):
            if held is None:
                continue
            row = torch.tensor([held.number])
            count = length[held.number]
            steps = range(self.looked[slot] + 1, count + 1)
            self.looked[slot] = count
            end = next((step for step in steps if condition.reached(response, row, step)), None)
            if end is not None:
                slots.response[held.number, end:] = pad
                slots.logp[held.number, end:] = 0.0
                slots.length[held.number] = end
                slots.terminated[held.number] = True
                slots.active[slot] = False

    def _write(self, changed: Sequence[int]) -> None:
        slots, device = self.slots, self.slots.device
        rows = [row for slot in changed if (row := self.held[slot]) is not None]
        prompts = [self.prompts[row.prompt] for row in rows]
        at = torch.tensor(changed, device=device)
        slots.token[at] = torch.tensor([prompt[-1] for prompt in prompts], device=device)
        slots.position[at] = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
        slots.row[at] = torch.tensor([row.number for row in rows], device=device)
        slots.indices.length[at] = 0
        slots.active[at] = True
        self._write_groups()

    def _write_groups(self) -> None:
        """Groups of up to `GROUP` slots with the same prompt. The prompt's last token is each slot's own."""
        members: dict[int, list[int]] = {}
        for slot, held in enumerate(self.held):
            if held is not None:
                members.setdefault(held.prompt, []).append(slot)
        groups = [
            (prompt, own[first : first + GROUP])
            for prompt, own in members.items()
            for first in range(0, len(own), GROUP)
        ]
        unused = self.slots.sizes.slots - len(groups)
        starts = [self.starts[prompt] for prompt, _ in groups] + [0] * unused
        lengths = [len(self.prompts[prompt]) - 1 for prompt, _ in groups] + [0] * unused
        table = [own + [-1] * (GROUP - len(own)) for _, own in groups] + [[-1] * GROUP] * unused
        group_of = {slot: group for group, (_, own) in enumerate(groups) for slot in own}
        group = [group_of.get(slot, -1) for slot in range(self.slots.sizes.slots)]
        indices = self.slots.indices
        for tensor, values in zip(indices[:4], (starts, lengths, table, group), strict=True):
            tensor.copy_(torch.tensor(values, dtype=torch.int32))
