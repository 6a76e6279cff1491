"""Decoders of the CPU engine. Each reads every prompt once.

`SharedDecoder` keeps one copy of each prompt's keys and values (`prompt_cache`); it requires replaceable attention.
`NativeDecoder` adds a compiled step. `CachedDecoder`, the decoder of the reference engine, passes a cache to the model,
for architectures with other kinds of attention or caches.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from tutelage.core.batch import Rollout
from tutelage.engines.cached_decoders import CachedDecoder, CachedDecoders, last_states, next_logits
from tutelage.engines.cpu.activation_cache import ActivationCache
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.decoding_weights import DecodingWeights
from tutelage.engines.cpu.forward_pass import attention_by, forward_pass, of_one_token
from tutelage.engines.cpu.fused.torch_step import FusedStep
from tutelage.engines.cpu.native.compiled_step import (
    NativeStep,
    NativeWeights,
    joint_states,
    line_structs,
    native_head,
    piece_attention,
)
from tutelage.engines.cpu.prompt_cache import PromptCache
from tutelage.engines.interface import Decoder, PromptBatch
from tutelage.engines.lines import ENDLESS, READ_AT_ONCE, Lines
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.packing import PromptPass, prompt_passes


def decoder_class(capabilities: Capabilities, head: Head, tokens: int) -> "type[Decoder]":
    """The fastest decoder class that the model and the machine support for rows of up to `tokens` tokens."""
    if not (capabilities.attends(tokens) and capabilities.shares_caches):
        return CachedDecoder
    return NativeDecoder if head.is_known and capabilities.has_compiled_step() else SharedDecoder


@dataclass(frozen=True)
class CpuDecoders:
    """Decoder factory of the CPU engine on `weights`. Activations are recorded in `cache`, if any."""

    backbone: Backbone
    capabilities: Capabilities
    weights: DecodingWeights
    cached_decoders: Callable[[Head], CachedDecoders]
    """Decoders of the reference engine with a head, for what the others do not support."""
    cache: ActivationCache | None = None

    @property
    def mixes_lengths(self) -> bool:
        """See `Decoders.mixes_lengths`."""
        capabilities = self.capabilities
        return (capabilities.attends(1) and capabilities.shares_caches) or self.cached_decoders(
            self.weights.own_head
        ).mixes_lengths

    def decoder(self, batch: PromptBatch, limit: int) -> Decoder:
        """See `Decoders.decoder`. Without a compiled step if the weights do not fit into memory twice."""
        weights = self.weights
        selected = decoder_class(self.capabilities, weights.own_head, batch.longest + limit)
        if selected is CachedDecoder:
            return self.cached().decoder(batch, limit)
        kind = SharedDecoder if selected is SharedDecoder or not weights.fits else NativeDecoder
        return kind(self, batch, limit)

    def cached(self) -> CachedDecoders:
        """Decoders of the reference engine, after their trial, on the decoding layout if it agrees."""
        cached = self.cached_decoders(self.weights.own_head)
        if not self.capabilities.lays_out:
            return cached
        self.weights.for_any()
        return replace(cached, head=self.weights.head)

    def step(self, decoders: Sequence[Decoder], tokens: Sequence[Int[Tensor, " _"]]) -> list[Float[Tensor, "_ _"]]:
        """See `Decoders.step`. Joins compiled steps."""
        joined = [decoder for decoder in decoders if isinstance(decoder, NativeDecoder) and decoder.can_join]
        if len(joined) < len(decoders):
            return [decoder.step(own) for decoder, own in zip(decoders, tokens, strict=True)]
        return list(joint_logits(joined, torch.cat(list(tokens))).split([len(own) for own in tokens]))

    def restore(self) -> None:
        """See `Decoders.restore`."""
        self.weights.restore()


class SharedDecoder:
    """A decoder that reads prompts without padding, and computes one softmax over the prompt and the completion."""

    packed = False
    """Whether keys and values have the layout of the compiled step (see `PromptCache`)."""

    def __init__(self, decoders: CpuDecoders, batch: PromptBatch, limit: int) -> None:
        self.backbone, self.capabilities = decoders.backbone, decoders.capabilities
        self.weights, self.batch = decoders.weights, batch
        self.model, self.device, dtype = self.backbone.model, self.backbone.device, self.backbone.dtype
        self.fused: FusedStep | None = None
        self.version = -1  # of the weights used by `fused`
        plain = dtype == torch.float32 and self.weights.own_head.is_known
        self.has_fused_step = plain and self.capabilities.has_fused_step()
        lengths = [len(prompt) for prompt in batch.prompts]
        self.kv_cache = PromptCache(lengths, batch.answers, limit, dtype=dtype, device=self.device, packed=self.packed)

    def start(self) -> Float[Tensor, "n V"]:
        """See `Decoder.start`. A pass has up to `READ_AT_ONCE` tokens and reads common prefixes of its prompts once."""
        self._prepare()
        logits = []
        for prompts in prompt_passes(self.batch.prompts, READ_AT_ONCE, self.device):
            attending = attention_by(self.model, self.kv_cache.reader(prompts))
            packed = prompts.packed
            with self.capabilities.selecting(packed.last) as places, attending, self._reading(prompts):
                states = self._states(packed.tokens[None], packed.positions[None])
            logits.append(self._first_logits(states[0, places]))
        answers = torch.tensor(self.batch.answers, device=self.device)
        return torch.cat(logits).repeat_interleave(answers, 0)

    def step(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """See `Decoder.step`."""
        return self._read(tokens, self.kv_cache.open())

    def _read(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The logits after tokens at positions, with lines padded to the number of the current layout."""
        count = len(tokens)
        idle = (0, self.weights.for_answers(count) - count)
        tokens, positions = pad(tokens, idle), pad(positions, idle)
        if self.has_fused_step and self.version != self.weights.version:
            self.fused, self.version = FusedStep(self.model, self.weights.joint), self.weights.version
        if self.fused is not None:
            states = self.fused(tokens, positions, self.kv_cache.attend)
        else:
            with attention_by(self.model, of_one_token(self.kv_cache.attend)):
                states = self._states(tokens[:, None], positions[:, None])[:, 0]
        return next_logits(self.backbone, self.weights.head, states)[:count]

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """See `Decoder.keep`."""
        self.kv_cache.keep(lines)

    def close(self, rows: Rollout) -> None:
        """See `Decoder.close`."""

    def _prepare(self) -> None:
        """Lay the weights out for reading the prompts."""
        self.weights.for_prompts()

    def _first_logits(self, states: Tensor) -> Tensor:
        """The logits after the prompts, from the prompts' last states."""
        return next_logits(self.backbone, self.weights.head, states)

    def _reading(self, prompts: PromptPass) -> AbstractContextManager[None]:
        """The context in which a pass over prompts runs."""
        return nullcontext()

    def _states(self, tokens: Tensor, positions: Tensor) -> Tensor:
        device = self.device
        inputs = {"input_ids": tokens.to(device), "position_ids": positions.to(device), "use_cache": False}
        return last_states(self.backbone, self.weights.own_head, inputs)


class NativeDecoder(SharedDecoder):
    """A decoder with a compiled step, for CPUs and weights that fit into memory twice.

    Raises TutelageError if the step cannot be compiled.

    Prompts are read by the training forward pass. The step is bit-identical to that pass if
    `FusedLayer.decodes_as_it_scores`, otherwise equal up to rounding.
    """

    packed = True

    def __init__(
        self, decoders: CpuDecoders, batch: PromptBatch, limit: int, kv_cache: PromptCache | None = None
    ) -> None:
        super().__init__(decoders, batch, limit)
        self.kv_cache = kv_cache or self.kv_cache
        self.native: NativeStep | None = None
        self.head, cache = self.weights.own_head, decoders.cache
        self.recording = None if cache is None else cache.recording(batch, limit)

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """See `Decoder.keep`."""
        super().keep(lines)
        if self.recording is not None:
            self.recording.keep(lines)

    def close(self, rows: Rollout) -> None:
        """See `Decoder.close`. Adds the recorded activations to the cache, keyed by the tokens of the rows."""
        if self.recording is not None:
            self.recording.register(rows)

    def _read(self, tokens: Tensor, positions: Tensor) -> Tensor:
        step = self._compiled()
        if self.capabilities.try_compiled_step(step, tokens, positions):
            return self.head.logits(step(tokens, positions))
        if self.recording is not None:
            self.recording.forget()
        return super()._read(tokens, positions)

    @property
    def can_join(self) -> bool:
        """Whether the next step can be joined with those of other decoders: the compiled step is in use and no
        activations are recorded."""
        used = self.native is not None and self.recording is None
        return used and self.capabilities.compiled_step_agrees

    def _first_logits(self, states: Tensor) -> Tensor:
        self._compiled()
        return self.head.logits(states)

    def _prepare(self) -> None:
        """Read the prompts with the layers' original weights, since `FusedLayer` supports no other layout."""
        self.weights.restore()

    def _reading(self, prompts: PromptPass | None) -> AbstractContextManager[None]:
        """See `SharedDecoder._reading`. In bfloat16 the layers use the panels of the step."""
        panels = self._laid_out().panels if self.backbone.dtype == torch.bfloat16 else {}
        recording = None if self.recording is None or prompts is None else self.recording.of_pass(prompts)
        return forward_pass(panels=panels, activations=recording)

    def compiled(self) -> "NativeDecoder":
        """This decoder with its compiled step, for keys and values that are in its cache already."""
        self._compiled()
        return self

    def read(
        self,
        tokens: Int[Tensor, " N"],
        positions: Int[Tensor, " N"],
        index: Int[Tensor, " n"],
        attending: AbstractContextManager[None],
    ) -> Float[Tensor, "n d"]:
        """The last hidden states, at `index`, of a forward pass over further tokens with another attention."""
        self._prepare()
        with self.capabilities.selecting(index) as places, attending, self._reading(None):
            return self._states(tokens[None], positions[None])[0, places]

    def _laid_out(self) -> NativeWeights:
        """The weights of the compiled step, laid out on first use."""
        self.weights.native = self.weights.native or NativeWeights(self.model, self.backbone.dtype)
        native: NativeWeights = self.weights.native
        return native

    def _compiled(self) -> NativeStep:
        """The compiled step with its head, created on first use."""
        if self.native is None:
            self.weights.restore()
            self.native = NativeStep(self.model, self._laid_out(), self.kv_cache, self.recording)
            self.head = native_head(self.weights.own_head, self._laid_out())
        return self.native


def joint_logits(decoders: Sequence[NativeDecoder], tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
    """`NativeDecoder.step` for several decoders, reading the weights once. Their logits, one decoder after another."""
    positions = [decoder.kv_cache.open() for decoder in decoders]
    steps = [decoder.native for decoder in decoders if decoder.native is not None]
    states = joint_states(steps, tokens, torch.cat(positions))
    return decoders[0].head.logits(states)


class NativeLines(Lines[PromptCache, NativeDecoder]):
    """Lines on the compiled step: one cache of a prompt and one completion for each, with shared keys of equal prompts.

    What a line reads after its prompt is its completion, whether it was sampled or not. So prompt and rest are the
    prefix and the suffix of the training forward pass, and what lines compute is bit-identical to it (see
    `NativeDecoder`), whatever is read beside them and in whatever pieces.
    """

    packs = True

    def __init__(self, decoders: CpuDecoders) -> None:
        super().__init__()
        self.decoders = decoders

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[PromptCache, Float[Tensor, " V"]]]:
        decoder = NativeDecoder(self.decoders, PromptBatch(tuple(prompts), (1,) * len(prompts)), 1)
        logits, cache = decoder.start(), decoder.kv_cache
        return [(cache.line(place, ENDLESS), own) for place, own in enumerate(logits)]

    def _begin(self, prompt: PromptCache) -> NativeDecoder:
        return NativeDecoder(self.decoders, PromptBatch(((0,),), (1,)), ENDLESS, prompt.line(0, ENDLESS)).compiled()

    def _continue(
        self, lines: Sequence[NativeDecoder], pieces: Sequence[Sequence[int]], counts: Sequence[int]
    ) -> Float[Tensor, "N V"]:
        if all(len(piece) == 1 for piece in pieces):
            return joint_logits(lines, torch.tensor([token for (token,) in pieces]))
        first, attention = lines[0], PieceAttention(lines, list(map(len, pieces)))
        tokens = torch.tensor([token for piece in pieces for token in piece])
        last = torch.cat([torch.arange(end - count, end) for end, count in zip(attention.ends, counts, strict=True)])
        states = first.read(tokens, attention.positions, last, attention_by(first.model, attention))
        attention.advance()
        return first.head.logits(states)

    def _cut(self, line: NativeDecoder, count: int) -> None:
        line.kv_cache.written -= count


class PieceAttention:
    """The attention function of a pass over the next `lengths` tokens of some lines, for `attention_by`.

    It stores their keys and values.
    """

    def __init__(self, lines: Sequence[NativeDecoder], lengths: Sequence[int]) -> None:
        self.caches, self.lengths = [line.kv_cache for line in lines], lengths
        self.positions = torch.cat(
            [
                torch.arange(length) + cache.starts + cache.reserve(length)
                for cache, length in zip(self.caches, lengths, strict=True)
            ]
        )
        self.ends = torch.tensor(lengths).cumsum(0)
        steps = [line.native for line in lines if line.native is not None]
        self.structs = line_structs(steps)
        self.index = {layer.self_attn: index for index, layer in enumerate(steps[0].layers)}

    def __call__(
        self, layer: nn.Module, query: Float[Tensor, "1 H N w"], key: Float[Tensor, "1 K N w"],
        value: Float[Tensor, "1 K N w"], mask: Any, **more: Any,
    ) -> tuple[Float[Tensor, "1 N H w"], None]:  # fmt: skip
        """See `forward_pass.Attention`."""
        dtype = self.caches[0].dtype
        tensors = (x.to(dtype).squeeze(0).transpose(0, 1) for x in (query, key, value))
        return piece_attention(self.structs, self.index[layer], self.ends, *tensors)[None], None

    def advance(self) -> None:
        """Count the tokens as written, after all layers have read them."""
        for cache, length in zip(self.caches, self.lengths, strict=True):
            cache.written += length
