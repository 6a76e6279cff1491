"""Attention of a packed sequence: suffixes attend to themselves and to their shared prefix, stored once.

On a CPU it runs on compiled kernels (`NativeKernels`) if available, else on torch's flash attention (`FlashKernels`).
Both save the output and the log-sum-exp of the scores for the backward pass, never a score matrix, and are compared
with the masked form before use.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from tutelage.engines.cpu.forward_pass import Attention, gradients_are_differentiated
from tutelage.engines.cpu.native.attention_kernels import Keys, NativeKernels, Operands, Queries
from tutelage.engines.cpu.native.bindings import warn_disabled
from tutelage.engines.packing import Bucket, Layout, PrefixTree, visible_tokens

flash_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_attention_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def packed_attention(layout: Layout) -> Attention:
    """The attention function of a packed sequence with that layout, for `attention_by`.

    On a CPU it runs on the kernels described above. Elsewhere, and where gradients are differentiated (see
    `differentiable_twice`), it is one masked attention per prefix tree, for which torch supports derivatives of all
    orders.
    """
    return partial(_attend, layout, NativeKernels(layout))


def _attend(
    layout: Layout,
    native: NativeKernels,
    layer: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    known: tuple[Tensor, Tensor] | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention of one layer. `known` are its cached output and lse from another forward pass, if any.

    The kernels return lse only without gradients.
    """
    if dropout:
        raise ValueError("attention over shared prompts does not support dropout")
    device = query.device.type
    if torch.is_autocast_enabled(device):
        query, key, value = (x.to(torch.get_autocast_dtype(device)) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    kernels_serve = device == "cpu" and not gradients_are_differentiated()
    if kernels_serve and native.supports(query, key, value) and _native_agrees(query.dtype):
        out, lse = _attended(query, key, value, known, native, scale)
        return out[None], lse
    query, key, value = (layout.spread(x) for x in (query, key, value))
    known = None if known is None else (layout.spread(known[0]), layout.spread(known[1]))
    out, lse = _by_torch(query, key, value, known, layout, scale, may_be_flash=kernels_serve)
    return layout.gathered(out)[None], None if lse is None else layout.gathered(lse)


def _by_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    known: tuple[Tensor, Tensor] | None,
    layout: Layout,
    scale: float,
    *,
    may_be_flash: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attention over all M tokens of the sequences, by torch's flash attention or in the masked form."""
    repeats = query.shape[1] // key.shape[1]
    use_flash = may_be_flash and query.shape[-1] == value.shape[-1] and _flash_agrees()
    if repeats > 1 and not (use_flash and _flash_shares_heads()):
        key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
    if use_flash:
        return _attended(query, key, value, known, FlashKernels(layout), scale)
    return _masked(query, key, value, layout, scale), None


def _attended(
    query: Tensor, key: Tensor, value: Tensor, known: tuple[Tensor, Tensor] | None, kernels: "Kernels", scale: float
) -> tuple[Tensor, Tensor | None]:
    if torch.is_grad_enabled():
        return _Attention.apply(query, key, value, known, kernels, scale), None
    return known or kernels.forward(query, key, value, scale)


class _Attention(torch.autograd.Function):
    """[N, H, w], [N, K, w], [N, K, w] → [N, H, w]. `known` are out and lse if already computed."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        known: tuple[Tensor, Tensor] | None,
        kernels: "Kernels",
        scale: float,
    ) -> Tensor:
        out, lse = known or kernels.forward(query, key, value, scale)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.kernels, ctx.scale = kernels, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        return *ctx.kernels.backward((query, key, value), out, lse, grad, ctx.scale), None, None, None


# The implementations by torch -----------------------------------------------------------------------------------------


class FlashKernels:
    """The interface of `NativeKernels` implemented with torch's flash attention.

    For a query of a suffix with log-sum-exp lse of its scores,

        out₁, lse₁ = attention to the shared prefix      out₂, lse₂ = causal attention within the suffix
        lse = log(exp lse₁ + exp lse₂)                   out = exp(lse₁ − lse) out₁ + exp(lse₂ − lse) out₂

    is attention to both. The gradient of each part is that of a plain attention with the merged `out` and `lse` instead
    of its own: with p = exp(s − lse), the gradient of a score is p (∂p − ∂out · out) for every key (Liu, Zaharia and
    Abbeel 2023, arXiv 2310.01889, use the same for attention over a ring of devices).

    Causal attention of the queries of a whole prefix tree to the keys of its prefix combines causal attention within
    the prefix with full attention of the suffixes to it, since the causal mask covers only the keys of the prefix.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def forward(self, query: Queries, key: Keys, value: Keys, scale: float) -> tuple[Queries, Float[Tensor, "N H"]]:
        """See `NativeKernels.forward`."""
        count, heads, width = query.shape
        out = query.new_zeros(count + 1, heads, width)  # the last row receives padding
        exact = torch.float64 if query.dtype == torch.float64 else torch.float32
        lse = query.new_zeros(count + 1, heads, dtype=exact)
        for tree in self.layout.trees:
            q, (k, v) = query[tree.start : tree.stop], (x[tree.start : tree.fork] for x in (key, value))
            part, part_lse = flash_attention(by_heads(q), by_heads(k), by_heads(v), 0.0, True, scale=scale)
            out[tree.start : tree.stop] = part[0].transpose(0, 1)
            lse[tree.start : tree.stop] = part_lse[0].T
        for bucket in self.layout.buckets:
            q, k, v = (gathered(x, bucket) for x in (query, key, value))
            part, part_lse = flash_attention(by_heads(q), by_heads(k), by_heads(v), 0.0, True, scale=scale)
            part, part_lse = part.transpose(1, 2), part_lse.transpose(1, 2)
            if bucket.are_suffixes:
                both = torch.logaddexp(gathered(lse, bucket), part_lse)
                share = (part_lse - both).exp().to(part.dtype)[..., None]
                part, part_lse = gathered(out, bucket).lerp(part, share), both
            _scatter(out, bucket, part)
            _scatter(lse, bucket, part_lse)
        return out[:-1], lse[:-1]

    def backward(
        self, tensors: Operands, out: Queries, lse: Float[Tensor, "N H"], grad: Queries, scale: float
    ) -> Operands:
        """See `NativeKernels.backward`."""
        query, key, value = tensors
        to_query, to_key, to_value = (x.new_empty(len(x) + 1, *x.shape[1:]) for x in (query, key, value))
        for tree in self.layout.trees:
            tokens, prefix = slice(tree.start, tree.stop), slice(tree.start, tree.fork)
            parts = _flash_attention_backward(
                *(by_heads(x) for x in (grad[tokens], query[tokens], key[prefix], value[prefix], out[tokens])),
                lse[tokens].T[None],
                0.0,
                True,
                scale=scale,
            )
            for whole, span, part in zip((to_query, to_key, to_value), (tokens, prefix, prefix), parts, strict=True):
                whole[span] = part[0].transpose(0, 1)
        for bucket in self.layout.buckets:
            bucket_lse = gathered(lse, bucket)
            if bucket.start is None:
                # padding has probabilities exp(s − lse) = 0, hence zero gradients
                padding = (bucket.token == len(query))[..., None]
                bucket_lse = bucket_lse.masked_fill(padding, torch.inf)
            parts = _flash_attention_backward(
                *(by_heads(gathered(x, bucket)) for x in (grad, query, key, value, out)),
                bucket_lse.transpose(1, 2),
                0.0,
                True,
                scale=scale,
            )
            for whole, part in zip((to_query, to_key, to_value), parts, strict=True):
                part = part.transpose(1, 2)
                if bucket.are_suffixes and whole is to_query:
                    part = part + gathered(whole, bucket)
                _scatter(whole, bucket, part)
        return to_query[:-1], to_key[:-1], to_value[:-1]


Kernels = NativeKernels | FlashKernels
"""Forward and backward attention of a packed sequence."""


def by_heads(x: Float[Tensor, "*b T H w"]) -> Float[Tensor, "B H T w"]:
    """[T, H, w] → [1, H, T, w], or [b, L, H, w] → [b, H, L, w]"""
    return x.transpose(0, 1)[None] if x.dim() == 3 else x.transpose(1, 2)


def gathered(x: Float[Tensor, "N ..."], bucket: Bucket) -> Float[Tensor, "b L ..."]:
    """The entries of a bucket's tokens; padding is undefined."""
    if bucket.start is not None:
        return x.narrow(0, bucket.start, bucket.token.numel()).unflatten(0, bucket.token.shape)
    return x.index_select(0, bucket.token.clamp(max=len(x) - 1).flatten()).unflatten(0, bucket.token.shape)


def _scatter(x: Tensor, bucket: Bucket, part: Tensor) -> None:
    """The inverse of `gathered`: [b, L, …] into [N + 1, …], whose last row receives padding."""
    if bucket.start is not None:
        gathered(x, bucket).copy_(part)
    else:
        x.index_copy_(0, bucket.token.flatten(), part.flatten(0, 1))


def _masked(query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float) -> Tensor:
    """The masked form. [N, H, w], [N, H, w], [N, H, w'] → [N, H, w']"""
    indices, parts = [], []
    for tree in layout.trees:
        span = slice(tree.start, tree.stop)
        visible = visible_tokens(layout.sequence[span], layout.prefix[span])
        q, k, v = (by_heads(x[span]) for x in (query, key, value))
        part = scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=scale)
        indices.append(torch.arange(tree.start, tree.stop, device=query.device))
        parts.append(part[0].transpose(0, 1))
    for bucket in layout.buckets:
        if not bucket.are_suffixes:
            q, k, v = (by_heads(gathered(x, bucket)) for x in (query, key, value))
            part = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
            indices.append(bucket.token.flatten())
            parts.append(part.transpose(1, 2).flatten(0, 1))
    whole = value.new_zeros(len(value) + 1, *value.shape[1:])  # the last row receives padding
    return whole.index_copy(0, torch.cat(indices), torch.cat(parts))[:-1]


# Trials ---------------------------------------------------------------------------------------------------------------


@cache
def _native_agrees(dtype: torch.dtype) -> bool:
    """Whether the compiled kernels for that dtype agree with the masked form on this machine. Logs a warning if they do
    not."""
    same = all(_agree_with_masked(NativeKernels, repeats, dtype) for repeats in (1, 2))
    if not same:
        warn_disabled("The compiled attention is not used: its results differ from torch's.")
    return same


@cache
def _flash_agrees() -> bool:
    """Whether torch's flash attention for CPUs is available and agrees with the masked form."""
    return _agree_with_masked(FlashKernels, 1)


@cache
def _flash_shares_heads() -> bool:
    """Whether torch's flash attention supports fewer key heads than query heads."""
    return _flash_agrees() and _agree_with_masked(FlashKernels, 2)


@torch.enable_grad()
def _agree_with_masked(
    kernels: "Callable[[Layout], Kernels]", repeats: int, dtype: torch.dtype = torch.float32
) -> bool:
    """Whether outputs and gradients of kernels and masked form agree on a prefix tree and two short sequences.

    Inputs are rounded to `dtype`; the masked form computes in float32. The result is cached for the process, so it must
    not depend on the precision of the first caller.
    """
    with torch.autocast("cpu", enabled=False):
        actual, expected = _trial(kernels, repeats, dtype)
    relative, absolute = (1e-4, 1e-5) if dtype == torch.float32 else (2**-6, 2**-6)
    return len(actual) == len(expected) and all(
        torch.allclose(a.float(), b, rtol=relative, atol=absolute) for a, b in zip(actual, expected, strict=True)
    )


def _trial(
    kernels: "Callable[[Layout], Kernels]", repeats: int, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    """Results of kernels and masked form; empty if the kernels do not support the inputs."""
    sequence = torch.tensor([0] * 5 + [1] * 3 + [2] * 2 + [3] * 3)
    prefix = torch.tensor([0] * 10 + [3] * 3)
    suffixes = Bucket(torch.tensor([[5, 6, 7], [8, 9, 13]]), True)
    lone = Bucket(torch.tensor([[10, 11, 12]]), False)
    layout = Layout((PrefixTree(0, 5, 10),), (suffixes, lone), sequence, prefix)
    wave = torch.arange(13 * 4 * 16, dtype=torch.float32).view(13, 4, 16)
    grad = (wave * 0.9).cos().to(dtype)
    query, key, value = (
        (wave[:, :heads] * step).sin().to(dtype).requires_grad_()
        for heads, step in ((4, 0.7), (4 // repeats, 1.3), (4 // repeats, 2.1))
    )
    try:
        out = _Attention.apply(query, key, value, None, kernels(layout), 0.4)
        results = [out, *torch.autograd.grad(out, (query, key, value), grad)]
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        results = []
    inputs = [x.detach().float().requires_grad_() for x in (query, key, value)]
    keys, values = (x.repeat_interleave(repeats, 1) for x in inputs[1:])
    exact = _masked(inputs[0], keys, values, layout, 0.4)
    expected = [exact, *torch.autograd.grad(exact, inputs, grad.float())]
    return results, expected
