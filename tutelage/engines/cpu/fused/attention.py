"""Attention with rotary positions:  y = x · cos + (−x₂, x₁) · sin  (Su et al. 2021, arXiv 2104.09864)."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tutelage.engines.cpu.attention_interface import (
    HARMLESS,
    attend,
    attention_under,
    gradients_are_differentiated,
    is_replaced,
)
from tutelage.engines.cpu.fused.norm import made_again
from tutelage.engines.cpu.fused.trial import features, wave
from tutelage.engines.cpu.native import passes


class LeanAttention:
    """Mixed into an attention module: projections, norms of heads if there are any, rotation, attention, projection.

    It is used where the attention itself was replaced (see `attention_by`); elsewhere the module's own way stays.
    """

    config: Any
    scaling: float
    head_dim: int
    q_proj: Callable[[Tensor], Tensor]
    k_proj: Callable[[Tensor], Tensor]
    v_proj: Callable[[Tensor], Tensor]
    o_proj: Callable[[Tensor], Tensor]

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **more: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if position_embeddings is None or past_key_values is not None or not self.is_ours():
            result: tuple[Tensor, Tensor | None] = super().forward(  # type: ignore[misc]
                hidden_states,
                position_embeddings=position_embeddings,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                **more,
            )
            return result
        out, ends = self.attended(hidden_states, position_embeddings, attention_mask, **more)
        return self.o_proj(out), ends

    def is_ours(self) -> bool:
        """Whether the attention was replaced, and torch need not differentiate twice."""
        return is_replaced(self.config) and not gradients_are_differentiated()

    def attended(
        self, x: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None = None, **more: Any
    ) -> tuple[Tensor, Tensor | None]:
        """What comes before the last projection. [B, T, d] → [B, T, H · w], and see `Attention`"""
        shape = (*x.shape[:-1], -1, self.head_dim)
        with made_again(x):
            query, key, value = (p(x).view(shape) for p in (self.q_proj, self.k_proj, self.v_proj))
        if norms := self.norms_of_heads():
            query, key = (norm(x) for norm, x in zip(norms, (query, key), strict=True))
        cos, sin = (x.unsqueeze(2) for x in angles)
        return self.attend(rotated(query, cos, sin), rotated(key, cos, sin), value, mask, **more)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **more: Any
    ) -> tuple[Tensor, Tensor | None]:
        """The attention alone. [B, T, H, w], [B, T, K, w], [B, T, K, w] → [B, T, H · w], and see `Attention`"""
        heads = (x.transpose(1, 2) for x in (query, key, value))
        out, ends = attend(cast(nn.Module, self), *heads, mask, scaling=self.scaling, **more)
        return out.flatten(2), ends

    def norms_of_heads(self) -> list[Any]:
        """Of queries and of keys, or none."""
        norms = (getattr(self, name, None) for name in ("q_norm", "k_norm"))
        return [norm for norm in norms if norm is not None]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one."""
        names = {name for name, _ in module.named_children()}
        parts = {"q_proj", "k_proj", "v_proj", "o_proj"}
        plain = parts in (names, names - {"q_norm", "k_norm"})
        return plain and all(hasattr(module, name) for name in ("scaling", "head_dim", "config"))

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it hands to the attention for three tokens, and what it makes of the answer."""
        weight = next(module.q_proj.parameters())
        angle = wave(1, 3, module.head_dim // 2, of=weight).repeat(1, 1, 2)
        seen: list[Tensor] = []

        def note(layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any) -> Any:
            seen.extend((query, key, value))
            asked = {name for name, value in more.items() if value is not None and name not in HARMLESS}
            if asked - {"scaling", "dropout"} or more["scaling"] != module.scaling or more.get("dropout"):
                raise ValueError  # it wants something of the attention that would not be told
            return query.transpose(1, 2).contiguous(), None

        with attention_under((module.config,), note):
            x = wave(1, 3, features(module.q_proj), of=weight)
            out, _ = module(x, position_embeddings=(angle.cos(), angle.sin()), attention_mask=None)
        return [*seen, out]


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Every pair (x[i], x[i + w/2]) turned by its angle. Float[..., w]; both halves of `cos` and `sin` are the same."""
    if x.dtype != cos.dtype:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin
    y: Tensor = _Rotated.apply(x, cos, sin) if torch.is_grad_enabled() else turned(x, cos, sin, 1.0)
    return y


def turned(x: Tensor, cos: Tensor, sin: Tensor, way: float) -> Tensor:
    if passes.serve_turn(x, cos):
        return passes.turn(x, cos, sin, way)
    y, sin = x * cos, sin.chunk(2, -1)[0]
    (first, second), (x_first, x_second) = y.chunk(2, -1), x.chunk(2, -1)
    first.addcmul_(x_second, sin, value=-way)
    second.addcmul_(x_first, sin, value=way)
    return y


class _Rotated(torch.autograd.Function):
    """The gradient is turned back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return turned(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return turned(grad, cos, sin, -1.0), None, None
