"""A layer in two steps around its attention (see `two_steps`).

It is three nodes of the graph instead of some fifty. Where the states of some tokens alone are asked for, the last
layer is spared the second step for the others, which serve as keys and values only. Where somebody knows already what a
layer computes of its tokens (see `exchange`), it takes that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.engines.cpu.attention_interface import attention_under
from tutelage.engines.cpu.fused.attention import LeanAttention
from tutelage.engines.cpu.fused.exchange import Computed, current_exchange
from tutelage.engines.cpu.fused.gate import LeanGate
from tutelage.engines.cpu.fused.norm import LeanNorm, epsilon_of
from tutelage.engines.cpu.fused.trial import features, is_one_matrix, is_unheard, wave
from tutelage.engines.cpu.fused.two_steps import BehindAttention, IntoHeads, behind_attention

_asked: ContextVar[tuple[object, Tensor | None]] = ContextVar("asked", default=(None, None))


class LeanLayer:
    """Mixed into a layer of two norms, attention with rotary positions and a gated feed-forward, both added to x."""

    input_layernorm: Any
    self_attn: Any
    post_attention_layernorm: Any
    mlp: Any

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        past_key_values: Any = None,
        **more: Any,
    ) -> Tensor:
        layer, index = _asked.get()
        index = index if layer is self else None
        ours = self.self_attn.is_ours() and is_unheard(self.self_attn)
        if position_embeddings is None or past_key_values is not None or not ours:
            x: Tensor = super().forward(  # type: ignore[misc]
                hidden_states,
                attention_mask=attention_mask,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                **more,
            )
            return _picked(x, index)
        if self.is_two_steps(hidden_states):
            return self._in_two_steps(hidden_states, position_embeddings, index)
        normed = self.input_layernorm(hidden_states)
        out, _ = self.self_attn.attended(normed, position_embeddings, attention_mask, **more)
        x = _picked(hidden_states, index) + self.self_attn.o_proj(_picked(out, index))
        return x + self.mlp(self.post_attention_layernorm(x))

    def is_two_steps(self, x: Tensor) -> bool:
        """Whether its parts are called by nobody else, and are plain products and norms of one type."""
        attention, gate = self.self_attn, self.mlp
        products = (
            *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
            *(gate.gate_proj, gate.up_proj, gate.down_proj),
        )
        norms = _norms_of(self)
        return (
            len(x) == 1
            and x.dtype.itemsize >= 4
            and not torch.is_autocast_enabled(x.device.type)
            and all(part.weight.dtype == x.dtype for part in (*products, *norms))
            and all(is_one_matrix(product) for product in products)
            and all(is_unheard(part) for part in (gate, *norms))
        )

    def _in_two_steps(self, x: Tensor, angles: tuple[Tensor, Tensor], index: Tensor | None) -> Tensor:
        attention, gate, exchange = self.self_attn, self.mlp, current_exchange()
        given = None if exchange is None else exchange.given(self)
        before, behind, *of_heads = _norms_of(self)
        cos, sin = (angle[0].unsqueeze(1) for angle in angles)
        x = x.squeeze(0)
        heads = IntoHeads.apply(
            *(x, given, attention.head_dim, tuple(map(epsilon_of, (before, *of_heads))), cos, sin),
            *(before.weight, *_matrices(attention.q_proj, attention.k_proj, attention.v_proj)),
            *(norm.weight for norm in of_heads),
        )
        known = None if given is None else (given.attended, given.ends)
        out, ends = attention.attend(*(part[None] for part in heads), known=known)
        out = out.squeeze(0)
        products = _matrices(attention.o_proj, gate.gate_proj, gate.up_proj, gate.down_proj)
        if exchange is not None and given is None and ends is not None and not torch.is_grad_enabled():
            h, _, *rest = behind_attention(x, out, epsilon_of(behind), behind.weight, products)
            computed = Computed._make((*heads, out.view_as(heads[0]), ends, h, *rest))
            exchange.note(self, computed)
            return _picked(computed.y[None], index)
        result: Tensor = BehindAttention.apply(
            *(x, out, index, given, epsilon_of(behind), behind.weight), *products
        )
        return result[None]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one: its parts have to be lean before."""
        parts = dict(module.named_children())
        return parts.keys() == KINDS.keys() and all(
            isinstance(part, KINDS[name]) for name, part in parts.items()
        )

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it makes of three tokens, with an attention that keeps each to itself."""
        attention = module.self_attn
        of = module.input_layernorm.weight
        angle = wave(1, 3, attention.head_dim // 2, of=of).repeat(1, 1, 2)

        def alone(layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any) -> Any:
            repeats = query.shape[1] // key.shape[1]
            key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
            return (query * key).sigmoid().mul(value).transpose(1, 2).contiguous(), None

        with attention_under((attention.config,), alone):
            x = wave(1, 3, features(attention.q_proj), of=of)
            return [module(x, position_embeddings=(angle.cos(), angle.sin()), attention_mask=None)]


KINDS = {
    "input_layernorm": LeanNorm,
    "self_attn": LeanAttention,
    "post_attention_layernorm": LeanNorm,
    "mlp": LeanGate,
}


@contextmanager
def states_at(layer: LeanLayer, index: Tensor) -> Iterator[None]:
    """Inside, `layer` gives the states of the tokens at `index` Int[n] alone, of a line [1, N, d] → [1, n, d].

    All of `index` differ. For the last layer: who reads the states of a layer before would miss the others.
    """
    token = _asked.set((layer, index))
    try:
        yield
    finally:
        _asked.reset(token)


def _picked(x: Tensor, index: Tensor | None) -> Tensor:
    return x if index is None else x.index_select(1, index)


def _norms_of(layer: Any) -> list[Any]:
    """Before the attention, before the gate, and those of queries and keys where there are some."""
    return [layer.input_layernorm, layer.post_attention_layernorm, *layer.self_attn.norms_of_heads()]


def _matrices(*products: Any) -> list[Tensor | None]:
    return [x for product in products for x in (product.weight, product.bias)]
