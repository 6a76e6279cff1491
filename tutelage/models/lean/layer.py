"""A layer in two steps around its attention, each with its gradient written out.

    n = norm(x)                q, k, v = rotated(W_q n), rotated(W_k n), W_v n
    h = x + W_o a, n = norm(h)         g, u = W_g n, W_u n        y = h + W_d (silu(g) · u)

A step keeps what cannot be made again cheaply: x; a, h, g and u. Products are added to one another while they are made,
and a layer is three nodes of the graph instead of some fifty. Where the states of some tokens alone are asked for, the
last layer is spared the second step for the others, which serve as keys and values only. Where somebody knows already
what a layer computes of its tokens (see `Exchange`), only r is left to do for the backward pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, silu

from tutelage.models.attention_interface import attention_under
from tutelage.models.lean.attention import LeanAttention, turned
from tutelage.models.lean.gate import LeanGate, lowered_swiglu_gradients
from tutelage.models.lean.norm import LeanNorm, epsilon_of, reciprocal_rms, rms_norm, rms_norm_gradients
from tutelage.models.lean.trial import features, is_one_matrix, is_unheard, wave

_asked: ContextVar[tuple[object, Tensor | None]] = ContextVar("asked", default=(None, None))


class Computed(NamedTuple):
    """What a layer computes of N tokens. Each [N, …]"""

    query: Tensor  # [N, H, w], turned
    key: Tensor  # [N, K, w], turned
    value: Tensor  # [N, K, w]
    attended: Tensor  # [N, H, w]
    ends: Tensor  # [N, H], the log-sum-exp of the scores
    h: Tensor  # [N, d]
    gate: Tensor  # [N, m]
    up: Tensor  # [N, m]
    y: Tensor  # [N, d]

    def apply(self, change: Any) -> Self:
        """Each of them changed alike."""
        return type(self)(*map(change, self))


class Exchange(Protocol):
    """Somebody who keeps what layers compute, or knows it already."""

    def given(self, layer: Any) -> Computed | None:
        """What `layer` computes of the tokens that it reads now, as far as it is known."""
        ...

    def note(self, layer: Any, computed: Computed) -> None:
        """What `layer` computed, where no gradient is wanted and the attention tells its log-sum-exp."""
        ...


_exchange: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


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
        attention, gate, exchange = self.self_attn, self.mlp, _exchange.get()
        given = None if exchange is None else exchange.given(self)
        before, behind, *of_heads = _norms_of(self)
        cos, sin = (angle[0].unsqueeze(1) for angle in angles)
        x = x.squeeze(0)
        heads = _IntoHeads.apply(
            *(x, given, attention.head_dim, tuple(map(epsilon_of, (before, *of_heads))), cos, sin),
            *(before.weight, *_matrices(attention.q_proj, attention.k_proj, attention.v_proj)),
            *(norm.weight for norm in of_heads),
        )
        known = None if given is None else (given.attended, given.ends)
        out, ends = attention.attend(*(part[None] for part in heads), known=known)
        out = out.squeeze(0)
        products = _matrices(attention.o_proj, gate.gate_proj, gate.up_proj, gate.down_proj)
        if exchange is not None and given is None and ends is not None and not torch.is_grad_enabled():
            h, _, *rest = _behind_attention(x, out, epsilon_of(behind), behind.weight, products)
            computed = Computed._make((*heads, out.view_as(heads[0]), ends, h, *rest))
            exchange.note(self, computed)
            return _picked(computed.y[None], index)
        result: Tensor = _BehindAttention.apply(
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


@contextmanager
def exchanging(exchange: Exchange) -> Iterator[None]:
    """Inside, layers in two steps take what `exchange` knows, and tell it what they compute."""
    token = _exchange.set(exchange)
    try:
        yield
    finally:
        _exchange.reset(token)


def _picked(x: Tensor, index: Tensor | None) -> Tensor:
    return x if index is None else x.index_select(1, index)


def _norms_of(layer: Any) -> list[Any]:
    """Before the attention, before the gate, and those of queries and keys where there are some."""
    return [layer.input_layernorm, layer.post_attention_layernorm, *layer.self_attn.norms_of_heads()]


def _matrices(*products: Any) -> list[Tensor | None]:
    return [x for product in products for x in (product.weight, product.bias)]


class _IntoHeads(torch.autograd.Function):
    """x [N, d] → q [N, H, w], k [N, K, w], v [N, K, w]. `epsilons`: of the norm, and of those of the heads."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        given: Computed | None,
        width: int,
        epsilons: tuple[float, ...],
        cos: Tensor,
        sin: Tensor,
        norm: Tensor,
        *weights: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        products, of_heads = weights[:6], weights[6:]
        ctx.has_norms = bool(of_heads)
        if given is not None:
            ctx.save_for_backward(x, reciprocal_rms(x, epsilons[0]), cos, sin, norm, *weights)
            return given.query, given.key, given.value
        n, r = rms_norm(x, norm, epsilons[0])
        query, key, value = (
            linear(n, w, b).view(len(n), -1, width)
            for w, b in zip(products[::2], products[1::2], strict=True)
        )
        kept: list[Tensor] = []
        if of_heads:
            raw = (query, key)
            (query, query_r), (key, key_r) = map(rms_norm, raw, of_heads, epsilons[1:])
            kept = [*raw, query_r, key_r]
        ctx.save_for_backward(x, r, cos, sin, norm, *weights, *kept)
        return turned(query, cos, sin, 1.0), turned(key, cos, sin, 1.0), value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_query: Tensor, to_key: Tensor, to_value: Tensor) -> tuple[Tensor | None, ...]:
        x, r, cos, sin, norm, *rest = ctx.saved_tensors
        products, rest = rest[:6], rest[6:]
        to_heads = [turned(grad, cos, sin, -1.0) for grad in (to_query, to_key)]
        to_norms: list[Tensor] = []
        if ctx.has_norms:
            of_heads, raw, scales = rest[:2], rest[2:4], rest[4:]
            back = [
                rms_norm_gradients(grad, y * s, w, s)
                for grad, y, w, s in zip(to_heads, raw, of_heads, scales, strict=True)
            ]
            to_heads, to_norms = ([grads[i] for grads in back] for i in (0, 1))
        normed = x * r
        n = normed * norm
        wants = _pairs(ctx.needs_input_grad[7:13])
        grads = [grad.flatten(1) for grad in (*to_heads, to_value)]
        to_products = [x for grad, own in zip(grads, wants, strict=True) for x in _to_matrix(grad, n, own)]
        queries, keys, values = products[::2]
        to_n = (grads[0] @ queries).addmm_(grads[1], keys).addmm_(grads[2], values)
        to_x, to_norm = rms_norm_gradients(to_n, normed, norm, r, room=n)
        return to_x, None, None, None, None, None, to_norm, *to_products, *to_norms


class _BehindAttention(torch.autograd.Function):
    """x [N, d], a [N, H · w] → y [N, d], or of the tokens at `index` alone."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        a: Tensor,
        index: Tensor | None,
        given: Computed | None,
        epsilon: float,
        norm: Tensor,
        *weights: Any,
    ) -> Tensor:
        ctx.count = len(x)
        if index is not None:
            x, a = x.index_select(0, index), a.index_select(0, index)
        if given is None:
            h, r, gate, up, y = _behind_attention(x, a, epsilon, norm, weights)
        else:
            known = (given.h, given.gate, given.up, given.y)
            h, gate, up, y = known if index is None else (part.index_select(0, index) for part in known)
            r = reciprocal_rms(h, epsilon)
        ctx.save_for_backward(a, index, h, r, gate, up, norm, *weights[::2])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, index, h, r, gate, up, norm, mix, to_gate, to_up, down = ctx.saved_tensors
        wants = _pairs(ctx.needs_input_grad[6:])
        along_gate, along_up, *to_down = lowered_swiglu_gradients(grad, gate, up, down, wants[3])
        normed = h * r
        n = normed * norm
        to_gate_and_up = [*_to_matrix(along_gate, n, wants[1]), *_to_matrix(along_up, n, wants[2])]
        to_n = (along_gate @ to_gate).addmm_(along_up, to_up)
        to_x, to_norm = rms_norm_gradients(to_n, normed, norm, r, room=n)
        to_x.add_(grad)
        to_mix = _to_matrix(to_x, a, wants[0])
        to_a = to_x @ mix
        if index is not None:
            to_x, to_a = (
                part.new_zeros(ctx.count, part.shape[1]).index_copy_(0, index, part) for part in (to_x, to_a)
            )
        return to_x, to_a, None, None, None, to_norm, *to_mix, *to_gate_and_up, *to_down


def _behind_attention(
    x: Tensor, a: Tensor, epsilon: float, norm: Tensor, weights: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """(h, r, g, u, y)"""
    (mix, mix_bias), (to_gate, gate_bias), (to_up, up_bias), (down, down_bias) = _pairs(weights)
    h = linear(a, mix, mix_bias).add_(x)
    n, r = rms_norm(h, norm, epsilon)
    gate, up = linear(n, to_gate, gate_bias), linear(n, to_up, up_bias)
    return h, r, gate, up, linear(silu(gate).mul_(up), down, down_bias).add_(h)


def _pairs(weights: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(weights[::2], weights[1::2], strict=True))


def _to_matrix(grad: Tensor, read: Tensor, wants: tuple[bool, bool]) -> list[Tensor | None]:
    """The gradients of W and b where y = x Wᵀ + b, from that of y and x, as far as they are wanted."""
    return [grad.T @ read if wants[0] else None, grad.sum(0) if wants[1] else None]
