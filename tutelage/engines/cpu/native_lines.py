"""Lines on the compiled step: one cache of a prompt and one completion for each, with shared keys of equal prompts.

What a line reads after its prompt is its completion, whether it was sampled or not. So prompt and rest are the prefix
and the suffix of the training forward pass, and what lines compute is bit-identical to it (see `NativeDecoder`),
whatever is read beside them and in whatever pieces.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tutelage.engines.cpu.decoders import CpuDecoders, NativeDecoder, joint_logits
from tutelage.engines.cpu.forward_pass import attention_by
from tutelage.engines.cpu.native.compiled_step import line_structs, piece_attention
from tutelage.engines.cpu.prompt_cache import PromptCache
from tutelage.engines.interface import PromptBatch
from tutelage.engines.lines import Lines

ENDLESS = 1 << 40
"""A limit for completions of any length."""


class NativeLines(Lines[PromptCache, NativeDecoder]):
    """Lines of the CPU engine."""

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
