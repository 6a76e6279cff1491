"""Operations between the matrix products of a model, each in one pass over memory: bindings of `elementwise.cpp`, and
of `mixed.cpp` for bfloat16 products.

The kernels take rows of whole vectors on a CPU. The float32 kernels pay off from 2¹⁵ elements; call `supports` first.
The `mixed` kernels use bfloat16 operands of products and float32 residual streams, and compute in float32; call
`mixed_supports` first. Sums are bit-identical for any number of threads.
"""

from functools import cache

import torch
from jaxtyping import BFloat16, Float, Float32, Float64, Int
from torch import Tensor
from torch.nn.functional import silu

from tutelage.engines.cpu.allocator import workspace
from tutelage.engines.cpu.native.bindings import LANES, compute, is_available, size_of, thread_pool, warn_disabled

Rows = Float[Tensor, "*rows d"]
Weight = Float[Tensor, " d"]
"""The weight of a norm."""
Scale = Float[Tensor, "*rows 1"]
"""r of RMSNorm."""
Angle = Float[Tensor, "*tokens 1 w"]
"""Cosines or sines of the rotation of each token."""
Stream = Float32[Tensor, "N d"]
"""A residual stream, or a gradient of one."""
Operand = BFloat16[Tensor, "N d"]
"""An operand of products, or its gradient."""
Pairs = BFloat16[Tensor, "N two_d"]
"""Rows [g | u]."""
Heads = BFloat16[Tensor, "N all w"]
LARGE = 1 << 15
"""Number of elements from which a kernel is faster than torch's operations."""


def supports(x: Float[Tensor, "..."], *, whole: bool = True, small: bool = False) -> bool:
    """Whether the kernels are available and support rows like those of `x`. `whole`: rows must be whole vectors.

    `small`: small tensors are accepted too, so that the result for a row is bit-identical for any number of rows.
    """
    if x.dtype != torch.float32 or x.device.type != "cpu" or not (small or x.numel() >= LARGE):
        return False
    fits = x.shape[-1] % LANES == 0 if whole else x.shape[-1] >= LANES
    return fits and is_available() and _agree_with_torch()


def supports_rotation(x: Float[Tensor, "... H w"], cos: Float[Tensor, "..."]) -> bool:
    """Whether `rotate` supports these: heads of two halves of whole vectors, and angles per token."""
    width = x.shape[-1]
    fits = cos.dtype == x.dtype and cos.shape == (*x.shape[:-2], 1, width) and width % (2 * LANES) == 0
    return fits and supports(x, small=True)


def mixed_supports(*sizes: int) -> bool:
    """Whether the `mixed` kernels are available and agree with torch, and rows of these sizes are whole vectors."""
    return all(size % LANES == 0 for size in sizes) and is_available() and _mixed_agree_with_torch()


# RMSNorm --------------------------------------------------------------------------------------------------------------


def rms_norm(x: Rows, weight: Weight, epsilon: float) -> tuple[Rows, Scale]:
    """y = x · r · w and r = (mean x² + ε)^-½ of RMSNorm."""
    x, weight = x.contiguous(), weight.contiguous()
    y, r = torch.empty_like(x), x.new_empty(*x.shape[:-1], 1)
    compute("rms_norm", r.numel(), len(weight), x, weight, epsilon, y, r)
    return y, r


def mixed_norm(x: Stream, weight: Weight, epsilon: float) -> tuple[Operand, Float32[Tensor, " N"]]:
    """`rms_norm` with y in bfloat16."""
    return _mixed_norm(x, None, weight, epsilon)[1:]


def mixed_added_norm(
    x: Stream, more: Operand, weight: Weight, epsilon: float
) -> tuple[Stream, Operand, Float32[Tensor, " N"]]:
    """h = x + `more`, and y and r of `mixed_norm` for h."""
    return _mixed_norm(x, more.contiguous(), weight, epsilon)


def _mixed_norm(x: Tensor, more: Tensor | None, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = x.contiguous(), weight.contiguous()
    h = x if more is None else torch.empty_like(x)
    y, r = torch.empty_like(x, dtype=torch.bfloat16), x.new_empty(len(x))
    compute("mixed_norm", *x.shape, x, more, weight, epsilon, h, y, r)
    return h, y, r


def scaled_rows(x: Rows, r: Scale, weight: Weight) -> Rows:
    """x · r · w, the output of RMSNorm from the reciprocal root mean square r."""
    x, r, weight = (each.contiguous() for each in (x, r, weight))
    y = torch.empty_like(x)
    compute("scale_rows", r.numel(), len(weight), x, r, weight, y)
    return y


def norm_gradients(grad: Rows, x: Rows, r: Scale, weight: Weight, more: Rows | None) -> tuple[Rows, Weight]:
    """The gradients of x and w of RMSNorm, y = n · w with n = x · r, from g = `grad`, the gradient of y:

    ∂x = r · (g · w − n · mean(g · w · n)) + `more`        ∂w = Σ g · n
    """
    grad, x, r, weight = (each.contiguous() for each in (grad, x, r, weight))
    more = None if more is None else more.contiguous()
    to_x, sums = torch.empty_like(x), x.new_zeros(_parts(x), len(weight))
    compute("norm_gradients", r.numel(), len(weight), grad, x, r, weight, more, to_x, sums)
    return to_x, sums.sum(0)


def mixed_norm_gradients(
    grad: Operand, x: Stream, weight: Weight, r: Float32[Tensor, " N"], more: Stream | None = None
) -> tuple[Stream, Operand, Weight]:
    """The gradient of x of RMSNorm plus `more`, the same in bfloat16, and the gradient of w, from the gradient `grad`
    of y."""
    grad, x, r, weight = (each.contiguous() for each in (grad, x, r, weight))
    more = None if more is None else more.contiguous()
    to_x, half = torch.empty_like(x), torch.empty_like(grad)
    sums = x.new_zeros(_parts(x), len(weight))
    compute("mixed_norm_gradients", *x.shape, grad, x, r, weight, more, to_x, half, sums)
    return to_x, half, sums.sum(0)


# SwiGLU ---------------------------------------------------------------------------------------------------------------


def swiglu(gate: Rows, up: Rows) -> Rows:
    """p = silu(g) · u, bit-identical to a decoding step."""
    gate, up = gate.contiguous(), up.contiguous()
    product = torch.empty_like(gate)
    compute("swiglu", gate.numel(), gate, up, product)
    return product


def mixed_swiglu(pairs: Pairs) -> Operand:
    """silu(g) · u of rows [g | u]."""
    pairs = pairs.contiguous()
    product = pairs.new_empty(len(pairs), pairs.shape[1] // 2)
    compute("mixed_swiglu", *product.shape, pairs, product)
    return product


def gate_gradients(gate: Rows, up: Rows, grad: Rows) -> tuple[Rows, Rows, Rows]:
    """p = silu(g) · u, and the gradients of g and u from the gradient of p. `grad` is overwritten."""
    gate, up, to_gate = (each.contiguous() for each in (gate, up, grad))
    product, to_up = torch.empty_like(gate), torch.empty_like(gate)
    compute("gate_gradients", gate.numel(), gate, up, product, to_gate, to_up)
    return product, to_gate, to_up


def mixed_swiglu_gradients(pairs: Pairs, grad: Operand) -> tuple[Operand, Pairs]:
    """p = silu(g) · u of rows [g | u], and the gradients of these rows from the gradient `grad` of p."""
    pairs, grad = pairs.contiguous(), grad.contiguous()
    product, to_pairs = torch.empty_like(grad), torch.empty_like(pairs)
    compute("mixed_swiglu_gradients", *grad.shape, pairs, grad, product, to_pairs)
    return product, to_pairs


# Rotation -------------------------------------------------------------------------------------------------------------


def rotate(x: Float[Tensor, "*tokens H w"], cos: Angle, sin: Angle, direction: float) -> Float[Tensor, "*tokens H w"]:
    """The pairs (x[i], x[i + w/2]) rotated by their angles, in reverse if `direction` is −1."""
    x, cos, sin = (each.contiguous() for each in (x, cos, sin))
    y = torch.empty_like(x)
    compute("rotate", cos.numel() // x.shape[-1], *x.shape[-2:], x, cos, sin, direction, y)
    return y


def rotate_in_place(x: Heads, heads: int, cos: Angle, sin: Angle, direction: float) -> None:
    """Rotate the first `heads` heads as `rotate` does."""
    _rotate_in_place(x, 0, heads, cos, sin, direction, None, 0.0, None)


def norm_and_rotate_in_place(
    x: Heads, start: int, heads: int, cos: Angle, sin: Angle, weight: Float32[Tensor, " w"], epsilon: float
) -> Float32[Tensor, "N heads 1"]:
    """Rotate the RMSNorm of `heads` heads starting at `start`, without intermediate rounding; returns r of the
    norms."""
    weight, r = weight.contiguous(), weight.new_empty(len(x), heads, 1)
    _rotate_in_place(x, start, heads, cos, sin, 1.0, weight, epsilon, r)
    return r


def _rotate_in_place(
    x: Tensor, start: int, heads: int, cos: Tensor, sin: Tensor, direction: float, *norm: Tensor | float | None
) -> None:  # fmt: skip
    assert x.is_contiguous()
    sizes, angles = (len(x), x[0].numel(), heads, x.shape[-1]), (cos.contiguous(), sin.contiguous())
    compute("mixed_rotate", *sizes, x[:, start:], *angles, direction, *norm)


# Sums -----------------------------------------------------------------------------------------------------------------


def mixed_add(
    x: Float32[Tensor, "..."], more: BFloat16[Tensor, "..."], *, out: Float32[Tensor, "..."] | None = None
) -> Float32[Tensor, "..."]:
    """x + `more`, written to `out` if given. The number of entries is a multiple of 16; `x` and `out` are
    contiguous."""
    more, out = more.contiguous(), torch.empty_like(x) if out is None else out
    assert x.is_contiguous()
    assert out.is_contiguous()
    compute("mixed_add", x.numel(), x, more, out)
    return out


def sum_of_squares(x: Float[Tensor, "..."]) -> Float64[Tensor, ""]:
    """Σ x² over all entries, in double precision. The number of entries is a multiple of 16."""
    x = x.contiguous()
    sums = x.new_empty(_parts(x.view(-1, LANES)), dtype=torch.float64)
    compute("sum_of_squares", x.numel(), x, sums)
    return sums.sum()


# The output head ------------------------------------------------------------------------------------------------------


def softmax_in_place(
    logits: Float[Tensor, "n V"], temperature: float = 1.0, *, keeps: bool = True
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Replace logits x by their softmax in place, unless it is not kept; returns max x/T and log Σ exp(x/T − max x/T)
    of each row."""
    maximum, log_sum = logits.new_empty(2, len(logits))
    compute("softmax", *logits.shape, logits, temperature, keeps, maximum, log_sum)
    return maximum, log_sum


def logit_gradients(
    probabilities: Float[Tensor, "n V"], tokens: Int[Tensor, " n"], grad: Float[Tensor, " n"], factor: float
) -> Float[Tensor, "n V"]:
    """See `logprobs.logit_gradients`."""
    assert probabilities.is_contiguous()
    compute("logit_gradients", *probabilities.shape, probabilities, tokens.contiguous(), grad.contiguous(), factor)
    return probabilities


def sample(
    logits: Float[Tensor, "n V"], uniform: Float64[Tensor, " n"], temperature: float = 1.0
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """See `token_sampling.sample`. Log-probabilities have the bits of `softmax_in_place`."""
    logits, uniform = logits.contiguous(), uniform.double().contiguous()
    token, logp = torch.empty(len(logits), dtype=torch.long), torch.empty(len(logits))
    floats = 2 * -(-logits.shape[1] // LANES) * LANES
    with workspace(thread_pool().threads * floats) as rows:
        compute("sample", *logits.shape, logits, temperature, uniform, rows, token, logp)
    return token, logp


def _parts(x: Tensor) -> int:
    """Number of parts into which the kernels divide the rows of x."""
    return size_of("parts", x.numel() // x.shape[-1], x.shape[-1])


# Trials ---------------------------------------------------------------------------------------------------------------


@cache
@torch.enable_grad()
def _agree_with_torch() -> bool:
    """Whether all float32 kernels agree with torch in double precision on a few rows, on this machine."""
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
    shares, uniform = logits.double().softmax(-1), torch.linspace(0.1, 0.9, len(logits), dtype=torch.float64)
    chosen = (shares.cumsum(-1) <= uniform[:, None]).sum(-1)
    token, logp = sample(logits * 2, uniform, 2.0)
    expected += [chosen.double(), shares.gather(-1, chosen[:, None]).squeeze(-1).log()]
    expected += [logits.double().logsumexp(-1)]
    to_logits = -3 * r.double() * shares.scatter_add(-1, chosen[:, None], -torch.ones_like(chosen[:, None]).double())
    expected += [shares, to_logits]
    to_norm = norm_gradients(grad, x, scale.detach().float(), weight, more)
    results = [
        rms_norm(x, weight, 0.0)[0],
        scaled_rows(x, r, weight),
        *to_norm,
        swiglu(x, up),
        *gate_gradients(x, up, grad.clone()),
    ]
    back = rotate(torch.cat((x, up), -1).unsqueeze(1), angles.cos(), angles.sin(), -1.0)
    maximum, log_sum = softmax_in_place(logits.mul_(2), 2.0)
    to_logits = logit_gradients(logits.clone(), chosen, r.squeeze(-1), 3.0)
    results += [back.squeeze(1), sum_of_squares(x), token, logp, maximum + log_sum, logits, to_logits]
    same = all(
        torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-4) for a, b in zip(results, expected, strict=True)
    )
    if not same:
        warn_disabled("The compiled element-wise kernels are not used: their results differ from torch's.")
    return same


@cache
@torch.enable_grad()
def _mixed_agree_with_torch() -> bool:
    """Whether all `mixed` kernels agree with torch in double precision on a few rows, on this machine."""
    with torch.autocast("cpu", enabled=False):
        same = all(
            torch.allclose(actual.double(), expected, rtol=2**-8, atol=1e-3) for actual, expected in _mixed_trial()
        )
    if not same:
        warn_disabled("The compiled kernels for bfloat16 are not used: their results differ from torch's.")
    return same


def _mixed_trial() -> list[tuple[Tensor, Tensor]]:
    """Results of the kernels, each paired with torch's in double precision."""
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
    found_h, y, r = mixed_added_norm(x, more.bfloat16(), weight, 1e-6)
    to_h, half, to_weight = mixed_norm_gradients(grad, found_h, weight, r, more)
    results = [found_h, y, to_h, half, to_weight, mixed_swiglu(pairs), *mixed_swiglu_gradients(pairs, grad)]
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
    results.append(r[:, 0])
    expected.insert(-2, scale)
    expected += [more.bfloat16().double(), torch.cat((a * cos - b * sin, b * cos + a * sin), -1)]
    return list(
        zip([*results, *turned.unbind(1), *normed.unbind(1)], [each.detach() for each in expected], strict=True)
    )
