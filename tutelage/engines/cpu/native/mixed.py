"""Element-wise kernels of layers whose products are in bfloat16: tensors for `mixed.cpp`.

They read and write operands of products in bfloat16 and residual streams in float32, and compute in float32. Rows are
whole vectors: see `supports`. Sums have the same bits for any number of threads.
"""

from ctypes import byref
from functools import cache

import torch
from jaxtyping import BFloat16, Float32
from torch import Tensor
from torch.nn.functional import silu

from tutelage.engines.cpu.native.bindings import LANES, is_available, library, thread_pool, warn_disabled


def supports(*sizes: int) -> bool:
    """Whether the kernels are available and agree with torch here, and rows of these sizes are whole vectors."""
    return all(size % LANES == 0 for size in sizes) and is_available() and _agree_with_torch()


def norm(
    x: Float32[Tensor, "N d"], weight: Float32[Tensor, " d"], epsilon: float
) -> tuple[BFloat16[Tensor, "N d"], Float32[Tensor, " N"]]:
    """y = x · r · w and r = (mean x² + ε)^-½ of RMSNorm."""
    return _norm(x, None, weight, epsilon)[1:]


def added_norm(
    x: Float32[Tensor, "N d"], more: BFloat16[Tensor, "N d"], weight: Float32[Tensor, " d"], epsilon: float
) -> tuple[Float32[Tensor, "N d"], BFloat16[Tensor, "N d"], Float32[Tensor, " N"]]:
    """h = x + `more`, and y and r of RMSNorm for h."""
    return _norm(x, more.contiguous(), weight, epsilon)


def _norm(x: Tensor, more: Tensor | None, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = x.contiguous(), weight.contiguous()
    h = x if more is None else torch.empty_like(x)
    y, r = torch.empty_like(x, dtype=torch.bfloat16), x.new_empty(len(x))
    pointers = (each.data_ptr() for each in (h, y, r))
    added = None if more is None else more.data_ptr()
    library().tutelage_mixed_norm(
        byref(thread_pool()), *x.shape, x.data_ptr(), added, weight.data_ptr(), epsilon, *pointers
    )
    return h, y, r


def norm_gradients(
    grad: BFloat16[Tensor, "N d"],
    x: Float32[Tensor, "N d"],
    weight: Float32[Tensor, " d"],
    r: Float32[Tensor, " N"],
    more: Float32[Tensor, "N d"] | None = None,
) -> tuple[Float32[Tensor, "N d"], BFloat16[Tensor, "N d"], Float32[Tensor, " d"]]:
    """The gradient of x of RMSNorm plus `more`, the same in bfloat16, and the gradient of w, from `grad`, that of y."""
    held = [each.contiguous() for each in (grad, x, r, weight)]
    more = None if more is None else more.contiguous()
    to_x, half = torch.empty_like(held[1]), torch.empty_like(held[0])
    sums = x.new_zeros(library().tutelage_parts(*x.shape), len(weight))
    pointers = [each.data_ptr() for each in held]
    to_add = None if more is None else more.data_ptr()
    library().tutelage_mixed_norm_gradients(
        byref(thread_pool()), *x.shape, *pointers, to_add, to_x.data_ptr(), half.data_ptr(), sums.data_ptr()
    )
    return to_x, half, sums.sum(0)


def swiglu(pairs: BFloat16[Tensor, "N two_m"]) -> BFloat16[Tensor, "N m"]:
    """silu(g) · u of rows [g | u]."""
    pairs = pairs.contiguous()
    rows, m = len(pairs), pairs.shape[1] // 2
    p = pairs.new_empty(rows, m)
    library().tutelage_mixed_swiglu(byref(thread_pool()), rows, m, pairs.data_ptr(), p.data_ptr())
    return p


def swiglu_gradients(
    pairs: BFloat16[Tensor, "N two_m"], grad: BFloat16[Tensor, "N m"]
) -> tuple[BFloat16[Tensor, "N m"], BFloat16[Tensor, "N two_m"]]:
    """p = silu(g) · u of rows [g | u], and the gradients of these rows from `grad`, that of p."""
    pairs, grad = pairs.contiguous(), grad.contiguous()
    p, to_pairs = torch.empty_like(grad), torch.empty_like(pairs)
    pointers = (each.data_ptr() for each in (pairs, grad, p, to_pairs))
    library().tutelage_mixed_swiglu_gradients(byref(thread_pool()), *grad.shape, *pointers)
    return p, to_pairs


def rotate_in_place(
    x: BFloat16[Tensor, "N all w"],
    heads: int,
    cos: Float32[Tensor, "N 1 w"],
    sin: Float32[Tensor, "N 1 w"],
    direction: float,
) -> None:
    """Rotate the pairs (x[i], x[i + w/2]) of the first `heads` heads by their angles, or back where `direction` is
    −1."""
    _rotate(x, 0, heads, cos, sin, direction, (None, 0.0, None))


def norm_and_rotate_in_place(
    x: BFloat16[Tensor, "N all w"],
    start: int,
    heads: int,
    cos: Float32[Tensor, "N 1 w"],
    sin: Float32[Tensor, "N 1 w"],
    weight: Float32[Tensor, " w"],
    epsilon: float,
) -> Float32[Tensor, "N heads 1"]:
    """Rotate the RMSNorm of each of `heads` heads from `start` on, without rounding it first; returns the r of the
    norms."""
    weight, r = weight.contiguous(), weight.new_empty(len(x), heads, 1)
    _rotate(x, start, heads, cos, sin, 1.0, (weight.data_ptr(), epsilon, r.data_ptr()))
    return r


def _rotate(
    x: Tensor,
    start: int,
    heads: int,
    cos: Tensor,
    sin: Tensor,
    direction: float,
    norm: tuple[int | None, float, int | None],
) -> None:
    assert x.is_contiguous()
    held = (x[:, start:], cos.contiguous(), sin.contiguous())
    pointers = (each.data_ptr() for each in held)
    library().tutelage_mixed_rotate(
        byref(thread_pool()), len(x), x[0].numel(), heads, x.shape[-1], *pointers, direction, *norm
    )


def add(
    x: Float32[Tensor, "..."], more: BFloat16[Tensor, "..."], *, out: Float32[Tensor, "..."] | None = None
) -> Float32[Tensor, "..."]:
    """x + `more`, into `out` where it is given. The number of entries is a multiple of 16; `x` and `out` are
    contiguous."""
    more, out = more.contiguous(), torch.empty_like(x) if out is None else out
    assert x.is_contiguous()
    assert out.is_contiguous()
    pointers = (each.data_ptr() for each in (x, more, out))
    library().tutelage_mixed_add(byref(thread_pool()), x.numel(), *pointers)
    return out


@cache
@torch.enable_grad()
def _agree_with_torch() -> bool:
    """Whether all kernels of this file agree with torch in double precision on a few rows, on this machine."""
    with torch.autocast("cpu", enabled=False):
        same = all(
            torch.allclose(found.double(), expected, rtol=2**-8, atol=1e-3) for found, expected in _trial()
        )
    if not same:
        warn_disabled("The compiled kernels for bfloat16 are not used: their results differ from torch's.")
    return same


def _trial() -> list[tuple[Tensor, Tensor]]:
    """The results of the kernels, each with what torch computes in double precision."""
    wave = torch.arange(4 * 6 * 2 * LANES, dtype=torch.float32).mul(0.7).sin().view(4, 6, 2 * LANES)
    x, more, weight = wave[0], wave[3], wave[1, 0]
    grad, pairs = wave[1].bfloat16(), torch.cat((wave[0], wave[2]), -1).bfloat16()
    exact = [each.double().requires_grad_() for each in (x, weight)]
    h = exact[0] + more.bfloat16()
    normed = h * (h.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * exact[1]
    of_norm = torch.autograd.grad(normed, (h, exact[1]), grad.double())
    own = pairs.double().requires_grad_()
    gate, up = own.chunk(2, -1)
    product = silu(gate) * up
    (of_pairs,) = torch.autograd.grad(product, own, grad.double())
    found_h, y, r = added_norm(x, more.bfloat16(), weight, 1e-6)
    to_h, half, to_weight = norm_gradients(grad, found_h, weight, r, more)
    found = [found_h, y, to_h, half, to_weight, swiglu(pairs), *swiglu_gradients(pairs, grad)]
    expected = [h, normed, of_norm[0] + more, of_norm[0] + more, of_norm[1], product, product, of_pairs]
    angles = torch.cat((wave[1, :, :LANES], wave[1, :, :LANES]), -1).unsqueeze(1)
    turned = torch.stack((x, more), 1).bfloat16()
    a, b = turned[:, 0].double().chunk(2, -1)
    cos, sin = (f(angles[:, 0, :LANES].double()) for f in (torch.cos, torch.sin))
    expected += [torch.cat((a * cos - b * sin, b * cos + a * sin), -1), turned[:, 1].double().clone()]
    rotate_in_place(turned, 1, angles.cos(), angles.sin(), 1.0)
    normed, of_head = torch.stack((more, x), 1).bfloat16(), wave[2, 0]
    own = normed[:, 1].double()
    r = norm_and_rotate_in_place(normed, 1, 1, angles.cos(), angles.sin(), of_head, 1e-6)
    scale = (own.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    a, b = (own * scale * of_head).chunk(2, -1)
    found.append(r[:, 0])
    expected.insert(-2, scale)
    expected += [more.bfloat16().double(), torch.cat((a * cos - b * sin, b * cos + a * sin), -1)]
    return list(
        zip([*found, *turned.unbind(1), *normed.unbind(1)], [each.detach() for each in expected], strict=True)
    )
