# mypy: ignore-errors
"""Triton kernels of the head: see `chunked_head`, which launches them, and whose eager functions are their twins.

Products and gradients are contiguous [N, width]; sums and terms of rows are float32[N]. What is not asked for is None,
and not compiled: biases, caps, the entropy, the reference.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _logits(products, bias, column, mask, gain, cap):
    """Logits at these columns of one row; without meaning outside the mask."""
    x = tl.load(products + column, mask=mask, other=0.0)
    if bias is not None:
        x += tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
    if cap is None:
        x *= gain
    else:
        x = libdevice.tanh(x * (gain / cap)) * cap
    return x


@triton.jit
def update(
    positions, maxima, totals, chosen, centred, ref_maxima, ref_totals, gaps, width,
    products, bias, gain, cap, ref_products, ref_bias, ref_gain, ref_cap,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of one row with one chunk more, in place, by one pass over its logits."""
    row = tl.program_id(0).to(tl.int64)
    products += row * width
    position = tl.load(positions + row)
    here = (position >= 0) & (position < width)
    tl.store(chosen + row, _logits(products, bias, position, here, gain, cap), mask=here)
    maximum, total = tl.load(maxima + row), tl.load(totals + row)
    if centred is not None:
        moment = tl.load(centred + row)
    if ref_products is not None:
        ref_products += row * width
        ref_maximum, ref_total, gap = tl.load(ref_maxima + row), tl.load(ref_totals + row), tl.load(gaps + row)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < width
        logits = tl.where(mask, _logits(products, bias, column, mask, gain, cap), float("-inf"))
        highest = tl.maximum(maximum, tl.max(logits, 0))
        drop = maximum - highest
        decay = tl.exp(drop)
        shifted = logits - highest
        weights = tl.exp(shifted)
        if centred is not None:
            added = tl.sum(tl.where(weights > 0, weights * shifted, 0.0), 0)
            moment = (moment + total * drop) * decay + added
        if ref_products is not None:
            ref_logits = _logits(ref_products, ref_bias, column, mask, ref_gain, ref_cap)
            ref_logits = tl.where(mask, ref_logits, float("-inf"))
            ref_highest = tl.maximum(ref_maximum, tl.max(ref_logits, 0))
            ref_drop, ref_shifted = ref_maximum - ref_highest, ref_logits - ref_highest
            added = tl.sum(tl.where(weights > 0, weights * (shifted - ref_shifted), 0.0), 0)
            gap = (gap + total * (drop - ref_drop)) * decay + added
            ref_total = ref_total * tl.exp(ref_drop) + tl.sum(tl.exp(ref_shifted), 0)
            ref_maximum = ref_highest
        total = total * decay + tl.sum(weights, 0)
        maximum = highest
    tl.store(maxima + row, maximum)
    tl.store(totals + row, total)
    if centred is not None:
        tl.store(centred + row, moment)
    if ref_products is not None:
        tl.store(ref_maxima + row, ref_maximum)
        tl.store(ref_totals + row, ref_total)
        tl.store(gaps + row, gap)


@triton.jit(do_not_specialize=["blocks"])
def gradient(
    output, positions, maxima, log_totals, to_logp, constants, to_entropy,
    to_divergence, ref_maxima, ref_log_totals, width, blocks,
    products, bias, gain, cap, ref_products, ref_bias, ref_gain, ref_cap,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of one block of columns of one row; programs that follow each other have the same row."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = column < width
    logits = _logits(products + row * width, bias, column, mask, gain, cap)
    logp = (logits - tl.load(maxima + row)) - tl.load(log_totals + row)
    factor = tl.load(constants + row)
    if to_entropy is not None:
        factor -= tl.load(to_entropy + row) * logp
    if ref_products is not None:
        ref_logits = _logits(ref_products + row * width, ref_bias, column, mask, ref_gain, ref_cap)
        ref_logp = (ref_logits - tl.load(ref_maxima + row)) - tl.load(ref_log_totals + row)
        factor += tl.load(to_divergence + row) * (logp - ref_logp)
    p = tl.exp(logp)
    grad = tl.where(column == tl.load(positions + row).to(tl.int32), tl.load(to_logp + row), 0.0)
    grad += tl.where(p > 0, p * factor, 0.0)
    if cap is None:
        grad *= gain
    else:
        ratio = logits * (1 / cap)
        grad *= gain * (1.0 - ratio * ratio)
    tl.store(output + row * width + column, grad.to(output.dtype.element_ty), mask=mask)
