"""Attention with rotary positions:  y = x · cos + (−x₂, x₁) · sin  (Su et al. 2021, arXiv 2104.09864)."""

from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tutelage.engines.cpu.forward_pass import (
    HARMLESS,
    attend,
    attention_under,
    gradients_are_differentiated,
    is_replaced,
    reads_cache,
)
from tutelage.engines.cpu.fused.form import features, wave
from tutelage.engines.cpu.fused.norm import recomputed
from tutelage.engines.cpu.native import elementwise

States = Float[Tensor, "B T _"]
Angles = tuple[Float[Tensor, "..."], Float[Tensor, "..."]]
"""Cosines and sines of the rotation of each token."""
Mask = Shaped[Tensor, "..."] | None
Lse = Float[Tensor, "..."] | None
"""Log-sum-exp of the scores, if the attention returns it."""


class FusedAttention:
    """Mixin for an attention module: projections, norms of heads in some models, rotation, attention, projection.

    Active inside `attention_by`, which replaces the attention function; otherwise the module's original forward pass
    runs.
    """

    config: Any
    scaling: float
    head_dim: int
    q_proj: Callable[[Tensor], Tensor]
    k_proj: Callable[[Tensor], Tensor]
    v_proj: Callable[[Tensor], Tensor]
    o_proj: Callable[[Tensor], Tensor]

    def forward(
        self, hidden_states: States, position_embeddings: Angles | None = None, attention_mask: Mask = None, **more: Any
    ) -> tuple[States, Lse]:
        """The output of the module, and the second result of the attention (see `Attention`)."""
        if position_embeddings is None or reads_cache(more) or not self.is_fused():
            more |= {"position_embeddings": position_embeddings, "attention_mask": attention_mask}
            result: tuple[Tensor, Tensor | None] = super().forward(hidden_states, **more)  # type: ignore[misc]
            return result
        out, lse = self.attended(hidden_states, position_embeddings, attention_mask, **more)
        return self.o_proj(out), lse

    def is_fused(self) -> bool:
        """Whether the attention function is replaced, and gradients are not differentiated."""
        return is_replaced(self.config) and not gradients_are_differentiated()

    def attended(self, x: States, angles: Angles, mask: Mask = None, **more: Any) -> tuple[States, Lse]:
        """The input of the last projection, and the second result of the attention (see `Attention`)."""
        shape = (*x.shape[:-1], -1, self.head_dim)
        with recomputed(x):
            query, key, value = (p(x).view(shape) for p in (self.q_proj, self.k_proj, self.v_proj))
        if norms := self.norms_of_heads():
            query, key = (norm(x) for norm, x in zip(norms, (query, key), strict=True))
        cos, sin = (x.unsqueeze(2) for x in angles)
        return self.attend(rotated(query, cos, sin), rotated(key, cos, sin), value, mask, **more)

    def attend(
        self,
        query: Float[Tensor, "B T H w"],
        key: Float[Tensor, "B T K w"],
        value: Float[Tensor, "B T K v"],
        mask: Mask = None,
        **more: Any,
    ) -> tuple[States, Lse]:
        """The attention function on rotated queries and keys, and its second result (see `Attention`)."""
        heads = (x.transpose(1, 2) for x in (query, key, value))
        out, lse = attend(cast(nn.Module, self), *heads, mask, scaling=self.scaling, **more)
        return out.flatten(2), lse

    def norms_of_heads(self) -> list[Any]:
        """The norms of queries and of keys; an empty list in models without them."""
        norms = (getattr(self, name, None) for name in ("q_norm", "k_norm"))
        return [norm for norm in norms if norm is not None]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether `module` is a candidate for the trial."""
        names = {name for name, _ in module.named_children()}
        parts = {"q_proj", "k_proj", "v_proj", "o_proj"}
        plain = parts in (names, names - {"q_norm", "k_norm"})
        return plain and all(hasattr(module, name) for name in ("scaling", "head_dim", "config"))

    @staticmethod
    def trial(module: Any) -> list[Float[Tensor, "..."]]:
        """Queries, keys and values that `module` passes to the attention for three tokens, and its output."""
        weight = next(module.q_proj.parameters())
        angle = wave(1, 3, module.head_dim // 2, like=weight).repeat(1, 1, 2)
        seen: list[Tensor] = []

        def record(layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any) -> Any:
            seen.extend((query, key, value))
            options = {name for name, value in more.items() if value is not None and name not in HARMLESS}
            if options - {"scaling", "dropout"} or more["scaling"] != module.scaling or more.get("dropout"):
                raise ValueError  # an attention option that the fused form does not support
            return query.transpose(1, 2).contiguous(), None

        with attention_under((module.config,), record):
            x = wave(1, 3, features(module.q_proj), like=weight)
            out, _ = module(x, position_embeddings=(angle.cos(), angle.sin()), attention_mask=None)
        return [*seen, out]


def rotated(
    x: Float[Tensor, "*tokens H w"], cos: Float[Tensor, "... w"], sin: Float[Tensor, "... w"]
) -> Float[Tensor, "*tokens H w"]:
    """The pairs (x[i], x[i + w/2]) rotated by their angles. Both halves of `cos` and of `sin` are equal."""
    if x.dtype != cos.dtype:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin
    y: Tensor = _Rotation.apply(x, cos, sin) if torch.is_grad_enabled() else rotate(x, cos, sin, 1.0)
    return y


def rotate(
    x: Float[Tensor, "*tokens H w"], cos: Float[Tensor, "... w"], sin: Float[Tensor, "... w"], direction: float
) -> Float[Tensor, "*tokens H w"]:
    """The pairs (x[i], x[i + w/2]) rotated by their angles, in reverse if `direction` is −1. Without a gradient."""
    if elementwise.supports_rotation(x, cos):
        return elementwise.rotate(x, cos, sin, direction)
    y, sin = x * cos, sin.chunk(2, -1)[0]
    (first, second), (x_first, x_second) = y.chunk(2, -1), x.chunk(2, -1)
    first.addcmul_(x_second, sin, value=-direction)
    second.addcmul_(x_first, sin, value=direction)
    return y


class _Rotation(torch.autograd.Function):
    """`rotate` with its gradient, the inverse rotation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return rotate(grad, cos, sin, -1.0), None, None
