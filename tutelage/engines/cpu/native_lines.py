"""Lines on the compiled step: one cache of a prompt and one completion for each, with shared keys of equal prompts.

What a line reads after its prompt is its completion, whether it was sampled or not. So prompt and rest are the prefix
and the suffix of the training forward pass, and what lines compute is bit-identical to it (see `NativeDecoder`),
whatever is read beside them and in whatever pieces.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tutelage.engines.cpu.decoders import CpuDecoders, NativeDecoder, joint_logits
from tutelage.engines.cpu.forward_pass import attention_by
from tutelage.engines.cpu.native.attention_kernels import NativeKernels
from tutelage.engines.cpu.prompt_cache import PromptCache
from tutelage.engines.interface import PromptBatch
from tutelage.engines.lines import Lines
from tutelage.engines.packing import CommonTokens, Layout

ENDLESS = 1 << 40
"""A limit for completions of any length."""


class NativeLines(Lines[PromptCache, NativeDecoder]):
    """Lines of the CPU engine."""

    def __init__(self, decoders: CpuDecoders) -> None:
        super().__init__()
        self.decoders = decoders

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[PromptCache, Float[Tensor, " V"]]]:
        decoder = NativeDecoder(self.decoders, PromptBatch(tuple(prompts), (1,) * len(prompts)), 1)
        logits, cache = decoder.start(), decoder.kv_cache
        return [(cache.line(place, ENDLESS), own) for place, own in enumerate(logits)]

    def _begin(self, prompt: PromptCache) -> NativeDecoder:
        return NativeDecoder(self.decoders, PromptBatch(((0,),), (1,)), ENDLESS, prompt.line(0, ENDLESS)).compiled()

    def _continue(self, lines: Sequence[NativeDecoder], pieces: Sequence[Sequence[int]]) -> Float[Tensor, "n V"]:
        if all(len(piece) == 1 for piece in pieces):
            return joint_logits(lines, [torch.tensor(piece) for piece in pieces])
        first = lines[0]
        attention = PieceAttention([line.kv_cache for line in lines], list(map(len, pieces)))
        tokens = torch.tensor([token for piece in pieces for token in piece])
        states = first.read(tokens, attention.positions, attention.last, attention_by(first.model, attention))
        attention.advance()
        return first.head.logits(states)


class PieceAttention:
    """The attention function of a pass over the next `lengths` tokens of some completions, for `attention_by`. It
    stores their keys and values.

    A prompt and its completion are two sequences of a layout. Of their M tokens only the N new ones have queries, as if
    all others were common tokens that another sequence has computed (see `packing.CommonTokens`); their keys and values
    follow the N new ones.
    """

    def __init__(self, caches: Sequence[PromptCache], lengths: Sequence[int]) -> None:
        self.caches, self.ends = caches, list(accumulate(lengths))
        written = [cache.reserve(length) for cache, length in zip(caches, lengths, strict=True)]
        prompts = [int(cache.lengths[0]) for cache in caches]
        self.positions = torch.cat(
            [torch.arange(length) + p + w for p, w, length in zip(prompts, written, lengths, strict=True)]
        )
        self.last = torch.tensor(self.ends) - 1
        self.lengths = lengths
        token, place, old, at = list[Tensor](), list[Tensor](), self.ends[-1], 0
        for prompt, own, length, end in zip(prompts, written, lengths, self.ends, strict=True):
            token += [torch.arange(old, old + prompt + own), torch.arange(end - length, end)]
            place.append(torch.arange(length) + at + prompt + own)
            old, at = old + prompt + own, at + prompt + own + length
        counts = [count for p, w, n in zip(prompts, written, lengths, strict=True) for count in (p, w + n)]
        sequence = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        common = CommonTokens(torch.cat(token), torch.cat(place))
        self.kernels = NativeKernels(Layout((), (), sequence, sequence // 2 * 2, common, len(counts)))

    def __call__(
        self, layer: nn.Module, query: Float[Tensor, "1 H N w"], key: Float[Tensor, "1 K N w"],
        value: Float[Tensor, "1 K N w"], mask: Any, *, scaling: float | None = None, **more: Any,
    ) -> tuple[Float[Tensor, "1 N H w"], Float[Tensor, "N H"]]:  # fmt: skip
        """See `forward_pass.Attention`."""
        query, key, value = (x.to(self.caches[0].dtype).squeeze(0).transpose(0, 1) for x in (query, key, value))
        before = zip(*(part for cache in self.caches for part in cache.tokens(layer)), strict=True)
        keys, values = (torch.cat([x, *parts]) for x, parts in zip((key, value), before, strict=True))
        start = 0
        for cache, end in zip(self.caches, self.ends, strict=True):
            cache.put(layer, key[start:end], value[start:end])
            start = end
        out, lse = self.kernels.forward(query, keys, values, query.shape[-1] ** -0.5 if scaling is None else scaling)
        return out[None], lse

    def advance(self) -> None:
        """Count the tokens as written, after all layers have read them."""
        for cache, length in zip(self.caches, self.lengths, strict=True):
            cache.written += length
