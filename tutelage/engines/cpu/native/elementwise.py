"""The operations of a model between its matrix products, in one pass over memory each: tensors for `elementwise.cpp`.

The kernels take float32 on a processor, in rows of whole vectors, and pay from 2¹⁵ numbers on: a caller asks `supports`
first. Sums have the same bits for any number of threads.
"""

from ctypes import byref
from functools import cache

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import silu

from tutelage.engines.cpu.native.bindings import LANES, is_available, library, thread_pool, warn_disabled

LARGE = 1 << 15
"""Numbers from which a kernel is faster than the operations of torch, whose cost a call would otherwise equal."""


def supports(x: Float[Tensor, "..."], *, whole: bool = True, small: bool = False) -> bool:
    """Whether the kernels take rows like those of `x`, and are available. `whole`: rows must be whole vectors.

    With `small`, they take few numbers too: then the bits of a row do not depend on how many rows there are.
    """
    if x.dtype != torch.float32 or x.device.type != "cpu" or not (small or x.numel() >= LARGE):
        return False
    fits = x.shape[-1] % LANES == 0 if whole else x.shape[-1] >= LANES
    return fits and is_available() and _agree_with_torch()


def supports_rotation(x: Float[Tensor, "... H w"], cos: Float[Tensor, "..."]) -> bool:
    """Whether `rotate` takes these: heads of two halves of whole vectors, and angles of each token for itself."""
    width = x.shape[-1]
    fits = cos.dtype == x.dtype and cos.shape == (*x.shape[:-2], 1, width) and width % (2 * LANES) == 0
    return fits and supports(x, small=True)


def rms_norm(
    x: Float[Tensor, "*rows d"], weight: Float[Tensor, " d"], epsilon: float
) -> tuple[Float[Tensor, "*rows d"], Float[Tensor, "*rows 1"]]:
    """y = x · r · w and r = (mean x² + ε)^-½ of RMSNorm."""
    x, weight = x.contiguous(), weight.contiguous()
    y, r = torch.empty_like(x), x.new_empty(*x.shape[:-1], 1)
    pointers = (each.data_ptr() for each in (y, r))
    library().tutelage_rms_norm(
        byref(thread_pool()), r.numel(), len(weight), x.data_ptr(), weight.data_ptr(), epsilon, *pointers
    )
    return y, r


def scaled_rows(
    x: Float[Tensor, "*rows d"], r: Float[Tensor, "*rows 1"], weight: Float[Tensor, " d"]
) -> Float[Tensor, "*rows d"]:
    """x · r · w, the output of RMSNorm from the reciprocal root mean square r."""
    x, r, weight = (each.contiguous() for each in (x, r, weight))
    y = torch.empty_like(x)
    pointers = (each.data_ptr() for each in (x, r, weight, y))
    library().tutelage_scale_rows(byref(thread_pool()), r.numel(), len(weight), *pointers)
    return y


def norm_gradients(
    grad: Float[Tensor, "*rows d"],
    x: Float[Tensor, "*rows d"],
    r: Float[Tensor, "*rows 1"],
    weight: Float[Tensor, " d"],
    more: Float[Tensor, "*rows d"] | None,
) -> tuple[Float[Tensor, "*rows d"], Float[Tensor, " d"]]:
    """The gradients of x and w of RMSNorm, y = n · w with n = x · r, from g = `grad`, the gradient of y:

    ∂x = r · (g · w − n · mean(g · w · n)) + `more`        ∂w = Σ g · n
    """
    held = [each.contiguous() for each in (grad, x, r, weight)]
    more = None if more is None else more.contiguous()
    to_x, sums = torch.empty_like(held[1]), x.new_zeros(_parts(x), len(weight))
    pointers = (each.data_ptr() for each in held)
    to_add = None if more is None else more.data_ptr()
    library().tutelage_norm_gradients(
        byref(thread_pool()), r.numel(), len(weight), *pointers, to_add, to_x.data_ptr(), sums.data_ptr()
    )
    return to_x, sums.sum(0)


def swiglu(gate: Float[Tensor, "*rows m"], up: Float[Tensor, "*rows m"]) -> Float[Tensor, "*rows m"]:
    """p = silu(g) · u, with the bits that a decoding step computes."""
    gate, up = gate.contiguous(), up.contiguous()
    product = torch.empty_like(gate)
    pointers = (each.data_ptr() for each in (gate, up, product))
    library().tutelage_swiglu(byref(thread_pool()), gate.numel(), *pointers)
    return product


def gate_gradients(
    gate: Float[Tensor, "*rows m"], up: Float[Tensor, "*rows m"], grad: Float[Tensor, "*rows m"]
) -> tuple[Float[Tensor, "*rows m"], Float[Tensor, "*rows m"], Float[Tensor, "*rows m"]]:
    """p = silu(g) · u, and the gradients of g and u from the gradient of p. `grad` is overwritten."""
    gate, up, to_gate = (each.contiguous() for each in (gate, up, grad))
    product, to_up = torch.empty_like(gate), torch.empty_like(gate)
    pointers = (each.data_ptr() for each in (gate, up, product, to_gate, to_up))
    library().tutelage_gate_gradients(byref(thread_pool()), gate.numel(), *pointers)
    return product, to_gate, to_up


def rotate(
    x: Float[Tensor, "*tokens H w"],
    cos: Float[Tensor, "*tokens 1 w"],
    sin: Float[Tensor, "*tokens 1 w"],
    direction: float,
) -> Float[Tensor, "*tokens H w"]:
    """The pairs (x[i], x[i + w/2]) rotated by their angles, or back where `direction` is −1, not 1."""
    x, cos, sin = (each.contiguous() for each in (x, cos, sin))
    y = torch.empty_like(x)
    sizes = (cos.numel() // x.shape[-1], *x.shape[-2:])
    library().tutelage_rotate(
        byref(thread_pool()),
        *sizes,
        *(each.data_ptr() for each in (x, cos, sin)),
        direction,
        y.data_ptr(),
    )
    return y


def sum_of_squares(x: Float[Tensor, "..."]) -> Float64[Tensor, ""]:
    """Σ x² over all entries, in double precision. The number of entries is a multiple of 16."""
    x = x.contiguous()
    rows = x.view(-1, LANES)
    sums = x.new_empty(_parts(rows), dtype=torch.float64)
    library().tutelage_sum_of_squares(byref(thread_pool()), x.numel(), x.data_ptr(), sums.data_ptr())
    return sums.sum()


def softmax_in_place(logits: Float[Tensor, "n V"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Replace logits by their softmax; returns max x and log Σ exp(x − max x) of each row."""
    maximum, log_sum = logits.new_empty(2, len(logits))
    pointers = (each.data_ptr() for each in (logits, maximum, log_sum))
    library().tutelage_softmax(byref(thread_pool()), *logits.shape, *pointers)
    return maximum, log_sum


def _parts(x: Tensor) -> int:
    """The number of parts that the kernels divide the rows of x into."""
    parts: int = library().tutelage_parts(x.numel() // x.shape[-1], x.shape[-1])
    return parts


@cache
@torch.enable_grad()
def _agree_with_torch() -> bool:
    """Whether all kernels of this file agree with torch in double precision on a few rows, on this machine."""
    wave = torch.arange(4 * 6 * 2 * LANES, dtype=torch.float32).mul(0.7).sin().view(4, 6, 2 * LANES)
    x, grad, up, more = wave
    weight, r = up[0], more[:, :1].exp()
    exact = [each.double().requires_grad_() for each in (x, weight, up)]
    scale = (exact[0].square().mean(-1, keepdim=True)).rsqrt()
    normed, product = exact[0] * scale * exact[1], silu(exact[0]) * exact[2]
    of_norm = torch.autograd.grad(normed, exact[:2], grad.double())
    of_product = torch.autograd.grad(product, (exact[0], exact[2]), grad.double())
    angles, logits = torch.cat((grad, grad), -1).unsqueeze(1), torch.cat((x, up, more[:, :3]), -1)
    pairs, rotation = torch.complex(x, up), torch.complex(grad.cos(), -grad.sin())
    rotated = torch.view_as_real(pairs * rotation)
    expected = [normed, x * r * weight, of_norm[0] + more, of_norm[1], product, product, *of_product]
    expected += [torch.cat(rotated.unbind(-1), -1), exact[0].square().sum()]
    expected += [logits.double().softmax(-1), logits.double().logsumexp(-1)]
    to_norm = norm_gradients(grad, x, scale.detach().float(), weight, more)
    found = [
        rms_norm(x, weight, 0.0)[0],
        scaled_rows(x, r, weight),
        *to_norm,
        swiglu(x, up),
        *gate_gradients(x, up, grad.clone()),
    ]
    back = rotate(torch.cat((x, up), -1).unsqueeze(1), angles.cos(), angles.sin(), -1.0)
    maximum, log_sum = softmax_in_place(logits)
    found += [back.squeeze(1), sum_of_squares(x), logits, maximum + log_sum]
    same = all(
        torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-4)
        for a, b in zip(found, expected, strict=True)
    )
    if not same:
        warn_disabled("The compiled element-wise kernels are not used: their results differ from torch's.")
    return same
