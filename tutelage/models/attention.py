"""Attention of trees: every branch looks at its stem and at itself, and the stem's keys and values exist once.

For a query in a branch, with lse the logarithm of the sum of the exponentials of its scores,

    out₁, lse₁ = attention to the stem          out₂, lse₂ = causal attention within the branch
    lse = log(exp lse₁ + exp lse₂)              out = exp(lse₁ − lse) out₁ + exp(lse₂ − lse) out₂

is attention to both. The gradient of either part is that of a plain attention in which the merged `out` and `lse` stand
for its own: with p = exp(s − lse), the gradient of a score is p (∂p − ∂out · out), whichever key it belongs to (Liu,
Zaharia and Abbeel 2023, arXiv 2310.01889, use the same for attention over a ring of devices). So the kernels that torch
has for plain attention serve forwards and backwards, and no matrix of scores is ever kept.
"""

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from tutelage.models.attention_interface import Attention, gradients_are_differentiated
from tutelage.models.lone_attention import LoneLine, is_lone_and_short
from tutelage.models.packing import Bundle, Shape, Tree

fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def tree_attention(shape: Shape) -> Attention:
    """The attention of a line of tokens of that shape, for `attention_by`.

    On a CPU it runs in the kernels described above, or in plain products where there are no trees (`lone_attention`).
    Elsewhere, and where gradients of gradients are wanted (see `twice_differentiable`), it is one masked attention for
    each tree, of which torch knows all derivatives.
    """
    return partial(_attend, shape, LoneLine(shape) if is_lone_and_short(shape) else None)


def _attend(
    shape: Shape,
    lone: LoneLine | None,
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
) -> tuple[Tensor, None]:
    if dropout:
        raise ValueError("attention over shared prompts knows no dropout")
    device = query.device.type
    if torch.is_autocast_enabled(device):
        query, key, value = (x.to(torch.get_autocast_dtype(device)) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    repeats = query.shape[1] // key.shape[1]
    alike = query.shape[-1] == value.shape[-1]
    written_out = device == "cpu" and not gradients_are_differentiated()
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    if lone is not None and written_out and query.dtype.itemsize >= 4:
        return lone.attend(query, key, value, scale)[None], None
    merged = written_out and alike and _kernel_is_as_described()
    if repeats > 1 and not (merged and _heads_can_share_keys()):
        key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
    if merged:
        return _Merged.apply(query, key, value, known, shape, scale)[None], None
    return _masked(query, key, value, shape, scale)[None], None


def _heads(x: Tensor) -> Tensor:
    """[T, H, w] → [1, H, T, w], or [b, L, H, w] → [b, H, L, w]"""
    return x.transpose(0, 1)[None] if x.dim() == 3 else x.transpose(1, 2)


def _masked(query: Tensor, key: Tensor, value: Tensor, shape: Shape, scale: float) -> Tensor:
    """The plain form. [N, H, w], [N, H, w], [N, H, w'] → [N, H, w']"""
    indices, parts = [], []
    for tree in shape.trees:
        span = slice(tree.start, tree.stop)
        sequence, stem = shape.sequence[span], shape.stem[span]
        seen = (sequence[:, None] == sequence) | (stem[:, None] == sequence)
        q, k, v = (_heads(x[span]) for x in (query, key, value))
        part = scaled_dot_product_attention(q, k, v, attn_mask=seen.tril(), scale=scale)
        indices.append(torch.arange(tree.start, tree.stop, device=query.device))
        parts.append(part[0].transpose(0, 1))
    for bundle in shape.bundles:
        if not bundle.branches:
            q, k, v = (_heads(_picked(x, bundle)) for x in (query, key, value))
            part = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
            indices.append(bundle.token.flatten())
            parts.append(part.transpose(1, 2).flatten(0, 1))
    whole = value.new_zeros(len(value) + 1, *value.shape[1:])  # padding is written into one row more
    return whole.index_copy(0, torch.cat(indices), torch.cat(parts))[:-1]


class _Merged(torch.autograd.Function):
    """[N, H, w], [N, K, w], [N, K, w] → [N, H, w], part by part. `known` are out and lse, from somebody who has them.

    Causal attention of the queries of a whole tree to the keys of its stem is both causal attention within the stem and
    unhindered attention of the branches to it: the mask begins at the first key, and ends with the last.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        known: tuple[Tensor, Tensor] | None,
        shape: Shape,
        scale: float,
    ) -> Tensor:
        out, lse = known or _merged(query, key, value, shape, scale)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.shape, ctx.scale = shape, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        to_query, to_key, to_value = (x.new_empty(len(x) + 1, *x.shape[1:]) for x in (query, key, value))
        for tree in ctx.shape.trees:
            tokens, stem = slice(tree.start, tree.stop), slice(tree.start, tree.fork)
            parts = _fused_backward(
                *(_heads(x) for x in (grad[tokens], query[tokens], key[stem], value[stem], out[tokens])),
                lse[tokens].T[None],
                0.0,
                True,
                scale=ctx.scale,
            )
            for whole, span, part in zip(
                (to_query, to_key, to_value), (tokens, stem, stem), parts, strict=True
            ):
                whole[span] = part[0].transpose(0, 1)
        for bundle in ctx.shape.bundles:
            ends = _picked(lse, bundle)
            if bundle.start is None:
                # beyond the end of a sequence the shares exp(s − lse) are 0, and so are all gradients
                ends = ends.masked_fill((bundle.token == len(query))[..., None], torch.inf)
            parts = _fused_backward(
                *(_heads(_picked(x, bundle)) for x in (grad, query, key, value, out)),
                ends.transpose(1, 2),
                0.0,
                True,
                scale=ctx.scale,
            )
            for whole, part in zip((to_query, to_key, to_value), parts, strict=True):
                part = part.transpose(1, 2)
                if bundle.branches and whole is to_query:
                    part = part + _picked(whole, bundle)
                _put(whole, bundle, part)
        return to_query[:-1], to_key[:-1], to_value[:-1], None, None, None


def _merged(query: Tensor, key: Tensor, value: Tensor, shape: Shape, scale: float) -> tuple[Tensor, Tensor]:
    """The merged out [N, H, w] and lse [N, H]."""
    count, heads, width = query.shape
    out = query.new_zeros(count + 1, heads, width)  # padding is written into one row more
    exact = torch.float64 if query.dtype == torch.float64 else torch.float32
    lse = query.new_zeros(count + 1, heads, dtype=exact)
    for tree in shape.trees:
        q, (k, v) = query[tree.start : tree.stop], (x[tree.start : tree.fork] for x in (key, value))
        part, part_lse = fused(_heads(q), _heads(k), _heads(v), 0.0, True, scale=scale)
        out[tree.start : tree.stop] = part[0].transpose(0, 1)
        lse[tree.start : tree.stop] = part_lse[0].T
    for bundle in shape.bundles:
        q, k, v = (_picked(x, bundle) for x in (query, key, value))
        part, part_lse = fused(_heads(q), _heads(k), _heads(v), 0.0, True, scale=scale)
        part, part_lse = part.transpose(1, 2), part_lse.transpose(1, 2)
        if bundle.branches:
            both = torch.logaddexp(_picked(lse, bundle), part_lse)
            share = (part_lse - both).exp().to(part.dtype)[..., None]
            part, part_lse = _picked(out, bundle).lerp(part, share), both
        _put(out, bundle, part)
        _put(lse, bundle, part_lse)
    return out[:-1], lse[:-1]


def _picked(x: Tensor, bundle: Bundle) -> Tensor:
    """The entries of a bundle's tokens, anything beyond the end of a sequence. [N, …] → [b, L, …]"""
    if bundle.start is not None:
        return x.narrow(0, bundle.start, bundle.token.numel()).unflatten(0, bundle.token.shape)
    return x.index_select(0, bundle.token.clamp(max=len(x) - 1).flatten()).unflatten(0, bundle.token.shape)


def _put(x: Tensor, bundle: Bundle, part: Tensor) -> None:
    """The inverse: [b, L, …] into [N + 1, …], of which the last row is for padding."""
    if bundle.start is not None:
        _picked(x, bundle).copy_(part)
    else:
        x.index_copy_(0, bundle.token.flatten(), part.flatten(0, 1))


@cache
def _kernel_is_as_described() -> bool:
    """Whether this torch has the kernels and they do what is relied on, tried on a tree and two short sequences."""
    return _same_as_masked(1)


def tells_its_ends(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether `fused` takes queries [b, H, L, w] on keys and values [b, K, L, w] as they are, in float32."""
    plain = query.device.type == "cpu" and query.dtype == torch.float32 and query.shape[-1] == value.shape[-1]
    shared = query.shape[1] != key.shape[1]
    return plain and _kernel_is_as_described() and (not shared or _heads_can_share_keys())


@cache
def _heads_can_share_keys() -> bool:
    """Whether the kernels take fewer heads of keys than of queries."""
    return _kernel_is_as_described() and _same_as_masked(2)


@torch.enable_grad()
def _same_as_masked(repeats: int) -> bool:
    sequence = torch.tensor([0] * 5 + [1] * 3 + [2] * 2 + [3] * 3)
    stem = torch.tensor([0] * 10 + [3] * 3)
    bundle = torch.tensor([[5, 6, 7], [8, 9, 13]])
    shape = Shape(
        (Tree(0, 5, 10),), (Bundle(bundle, True), Bundle(torch.tensor([[10, 11, 12]]), False)), sequence, stem
    )
    wave = torch.arange(13 * 4 * 8, dtype=torch.float32).view(13, 4, 8)
    query, key, value = (
        (wave[:, :heads] * step).sin().requires_grad_()
        for heads, step in ((4, 0.7), (4 // repeats, 1.3), (4 // repeats, 2.1))
    )
    try:
        got = _Merged.apply(query, key, value, None, shape, 0.4)
        found = [got, *torch.autograd.grad(got, (query, key, value), (wave * 0.9).cos())]
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return False
    keys, values = (x.repeat_interleave(repeats, 1) for x in (key, value))
    wanted = _masked(query, keys, values, shape, 0.4)
    expected = [wanted, *torch.autograd.grad(wanted, (query, key, value), (wave * 0.9).cos())]
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, expected, strict=True))
