"""Attention of trees: every branch looks at its stem and at itself, and the stem's keys and values exist once.

On a processor in float32 it is computed by kernels of our own (`native.trees`) where they were compiled, else by those
of torch (`fused_attention`). Either keeps the result and the log-sum-exp of the scores for the backward pass, never a
matrix of scores, and is tried against the plain form before it is trusted.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from tutelage.engines.cpu.attention_interface import Attention, gradients_are_differentiated
from tutelage.engines.cpu.flash_attention import Fused, by_heads, picked
from tutelage.engines.cpu.native.bindings import distrust
from tutelage.engines.cpu.native.trees import Trees
from tutelage.engines.packing import Bundle, Shape, Tree


class Kernels(Protocol):
    """Attention of a line of one shape, forwards and backwards."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """[N, H, w], [N, K, w], [N, K, w] → [N, H, w] and the log-sum-exp of the scores [N, H]"""
        ...

    def backward(
        self,
        tensors: tuple[Tensor, Tensor, Tensor],
        out: Tensor,
        lse: Tensor,
        grad: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of query, key and value from that of `out`."""
        ...


def tree_attention(shape: Shape) -> Attention:
    """The attention of a line of tokens of that shape, for `attention_by`.

    On a CPU it runs in the kernels described above. Elsewhere, and where gradients of gradients are wanted (see
    `twice_differentiable`), it is one masked attention for each tree, of which torch knows all derivatives.
    """
    return partial(_attend, shape, Trees(shape))


def _attend(
    shape: Shape,
    trees: Trees,
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
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    written_out = device == "cpu" and not gradients_are_differentiated()
    if written_out and trees.serve(query, key, value) and _native_is_as_described():
        return _Attention.apply(query, key, value, known, trees, scale)[None], None
    fused = written_out and query.shape[-1] == value.shape[-1] and _fused_is_as_described()
    if repeats > 1 and not (fused and _heads_can_share_keys()):
        key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
    if fused:
        return _Attention.apply(query, key, value, known, Fused(shape), scale)[None], None
    return _masked(query, key, value, shape, scale)[None], None


class _Attention(torch.autograd.Function):
    """[N, H, w], [N, K, w], [N, K, w] → [N, H, w]. `known` are out and lse, from somebody who has them."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        known: tuple[Tensor, Tensor] | None,
        kernels: Kernels,
        scale: float,
    ) -> Tensor:
        out, lse = known or kernels.forward(query, key, value, scale)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.kernels, ctx.scale = kernels, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, out, lse = ctx.saved_tensors
        return *ctx.kernels.backward(tensors, out, lse, grad, ctx.scale), None, None, None


def _masked(query: Tensor, key: Tensor, value: Tensor, shape: Shape, scale: float) -> Tensor:
    """The plain form. [N, H, w], [N, H, w], [N, H, w'] → [N, H, w']"""
    indices, parts = [], []
    for tree in shape.trees:
        span = slice(tree.start, tree.stop)
        sequence, stem = shape.sequence[span], shape.stem[span]
        seen = (sequence[:, None] == sequence) | (stem[:, None] == sequence)
        q, k, v = (by_heads(x[span]) for x in (query, key, value))
        part = scaled_dot_product_attention(q, k, v, attn_mask=seen.tril(), scale=scale)
        indices.append(torch.arange(tree.start, tree.stop, device=query.device))
        parts.append(part[0].transpose(0, 1))
    for bundle in shape.bundles:
        if not bundle.branches:
            q, k, v = (by_heads(picked(x, bundle)) for x in (query, key, value))
            part = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
            indices.append(bundle.token.flatten())
            parts.append(part.transpose(1, 2).flatten(0, 1))
    whole = value.new_zeros(len(value) + 1, *value.shape[1:])  # padding is written into one row more
    return whole.index_copy(0, torch.cat(indices), torch.cat(parts))[:-1]


@cache
def _native_is_as_described() -> bool:
    """Whether what was compiled does what is relied on: on a machine that nobody has seen."""
    same = _same_as_masked(Trees, 1) and _same_as_masked(Trees, 2)
    if not same:
        distrust("The compiled attention is not used: it does not compute what it should.")
    return same


@cache
def _fused_is_as_described() -> bool:
    """Whether this torch has the kernels and they do what is relied on."""
    return _same_as_masked(Fused, 1)


@cache
def _heads_can_share_keys() -> bool:
    """Whether torch's kernels take fewer heads of keys than of queries."""
    return _fused_is_as_described() and _same_as_masked(Fused, 2)


def tells_its_ends(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether `fused` takes queries [b, H, L, w] on keys and values [b, K, L, w] as they are, in float32."""
    plain = query.device.type == "cpu" and query.dtype == torch.float32 and query.shape[-1] == value.shape[-1]
    shared = query.shape[1] != key.shape[1]
    return plain and _fused_is_as_described() and (not shared or _heads_can_share_keys())


@torch.enable_grad()
def _same_as_masked(kernels: Callable[[Shape], Kernels], repeats: int) -> bool:
    """Tried on a tree and two short sequences."""
    sequence = torch.tensor([0] * 5 + [1] * 3 + [2] * 2 + [3] * 3)
    stem = torch.tensor([0] * 10 + [3] * 3)
    bundle = torch.tensor([[5, 6, 7], [8, 9, 13]])
    shape = Shape(
        (Tree(0, 5, 10),), (Bundle(bundle, True), Bundle(torch.tensor([[10, 11, 12]]), False)), sequence, stem
    )
    wave = torch.arange(13 * 4 * 16, dtype=torch.float32).view(13, 4, 16)
    query, key, value = (
        (wave[:, :heads] * step).sin().requires_grad_()
        for heads, step in ((4, 0.7), (4 // repeats, 1.3), (4 // repeats, 2.1))
    )
    try:
        got = _Attention.apply(query, key, value, None, kernels(shape), 0.4)
        found = [got, *torch.autograd.grad(got, (query, key, value), (wave * 0.9).cos())]
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return False
    keys, values = (x.repeat_interleave(repeats, 1) for x in (key, value))
    wanted = _masked(query, keys, values, shape, 0.4)
    expected = [wanted, *torch.autograd.grad(wanted, (query, key, value), (wave * 0.9).cos())]
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, expected, strict=True))
