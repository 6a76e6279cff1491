"""What a model computes between its products, in one pass over memory each: tensors and pointers into `passes.cpp`.

Float32 on a processor, in rows of whole vectors, and enough of them: who calls asks `serve` first. What is summed up is
the same for any number of threads.
"""

from ctypes import byref
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import silu

from tutelage.engines.cpu.native.bindings import LANES, distrust, is_there, library, team

LARGE = 1 << 15
"""Numbers for which a call pays: the operations of torch cost as much while it is made."""


def serve(x: Tensor, *, whole: bool = True) -> bool:
    """Whether rows like those of x are what `passes.cpp` is for, and it is there. `whole`: of whole vectors."""
    if x.dtype != torch.float32 or x.device.type != "cpu" or x.numel() < LARGE:
        return False
    fits = x.shape[-1] % LANES == 0 if whole else x.shape[-1] >= LANES
    return fits and is_there() and _are_as_described()


def serve_turn(x: Tensor, cos: Tensor) -> bool:
    """Whether `turn` is for these: heads of two halves of whole vectors, and as many angles."""
    width = x.shape[-1]
    fits = cos.dtype == x.dtype and cos.shape == (*x.shape[:-2], 1, width) and width % (2 * LANES) == 0
    return fits and serve(x)


def scaled_rows(x: Tensor, r: Tensor, weight: Tensor) -> Tensor:
    """x · r · w. Float[..., d], Float[..., 1], Float[d] → Float[..., d]"""
    x, r, weight = (each.contiguous() for each in (x, r, weight))
    y = torch.empty_like(x)
    pointers = (each.data_ptr() for each in (x, r, weight, y))
    library().tutelage_scale_rows(byref(team()), r.numel(), len(weight), *pointers)
    return y


def norm_gradients(
    grad: Tensor, x: Tensor, r: Tensor, weight: Tensor, more: Tensor | None
) -> tuple[Tensor, Tensor]:
    """With n = x · r and g the gradient of n · w:  r · (g · w − n · mean(g · w · n)) + `more`,  Σ g · n.

    Float[..., d], Float[d]
    """
    held = [each.contiguous() for each in (grad, x, r, weight)]
    more = None if more is None else more.contiguous()
    to_x, sums = torch.empty_like(held[1]), x.new_zeros(_parts(x), len(weight))
    pointers = (each.data_ptr() for each in held)
    also = None if more is None else more.data_ptr()
    library().tutelage_norm_gradients(
        byref(team()), r.numel(), len(weight), *pointers, also, to_x.data_ptr(), sums.data_ptr()
    )
    return to_x, sums.sum(0)


def gate_gradients(gate: Tensor, up: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """p = silu(g) · u, and the gradients of g and u from that of p, which is used up. Float[..., m]"""
    gate, up, to_gate = (each.contiguous() for each in (gate, up, grad))
    product, to_up = torch.empty_like(gate), torch.empty_like(gate)
    pointers = (each.data_ptr() for each in (gate, up, product, to_gate, to_up))
    library().tutelage_gate_gradients(byref(team()), gate.numel(), *pointers)
    return product, to_gate, to_up


def turn(x: Tensor, cos: Tensor, sin: Tensor, way: float) -> Tensor:
    """The pairs (x[i], x[i + w/2]) turned by their angles, or back where `way` is −1.

    Float[..., H, w], Float[..., 1, w] → Float[..., H, w]
    """
    x, cos, sin = (each.contiguous() for each in (x, cos, sin))
    y = torch.empty_like(x)
    sizes = (cos.numel() // x.shape[-1], *x.shape[-2:])
    library().tutelage_turn(
        byref(team()), *sizes, *(each.data_ptr() for each in (x, cos, sin)), way, y.data_ptr()
    )
    return y


def squares(x: Tensor) -> Tensor:
    """Σ x², in double precision. Float[..., d] → Float[]"""
    x = x.contiguous()
    rows = x.view(-1, LANES)
    sums = x.new_empty(_parts(rows), dtype=torch.float64)
    library().tutelage_squares(byref(team()), x.numel(), x.data_ptr(), sums.data_ptr())
    return sums.sum()


def shares(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row, and log Σ e^(x − largest); the row becomes its softmax.

    Float[n, V] → Float[n], Float[n]. V need not be of whole vectors.
    """
    assert logits.is_contiguous()
    most, above = logits.new_empty(2, len(logits))
    pointers = (each.data_ptr() for each in (logits, most, above))
    library().tutelage_shares(byref(team()), *logits.shape, *pointers)
    return most, above


def _parts(x: Tensor) -> int:
    parts: int = library().tutelage_parts(x.numel() // x.shape[-1], x.shape[-1])
    return parts


@cache
@torch.enable_grad()
def _are_as_described() -> bool:
    """Whether they do what is said above, on a machine that nobody has seen: tried on some rows in double precision."""
    wave = torch.arange(4 * 6 * 2 * LANES, dtype=torch.float32).mul(0.7).sin().view(4, 6, 2 * LANES)
    x, grad, up, more = wave
    weight, r = up[0], more[:, :1].exp()
    exact = [each.double().requires_grad_() for each in (x, weight, up)]
    scale = (exact[0].square().mean(-1, keepdim=True)).rsqrt()
    normed, product = exact[0] * scale * exact[1], silu(exact[0]) * exact[2]
    of_norm = torch.autograd.grad(normed, exact[:2], grad.double())
    of_product = torch.autograd.grad(product, (exact[0], exact[2]), grad.double())
    angles, logits = torch.cat((grad, grad), -1).unsqueeze(1), torch.cat((x, up, more[:, :3]), -1)
    pair, by = torch.complex(x, up), torch.complex(grad.cos(), -grad.sin())
    turned = torch.view_as_real(pair * by)
    expected = [x * r * weight, of_norm[0] + more, of_norm[1], product, *of_product]
    expected += [torch.cat(turned.unbind(-1), -1), exact[0].square().sum()]
    expected += [logits.double().softmax(-1), logits.double().logsumexp(-1)]
    to_norm = norm_gradients(grad, x, scale.detach().float(), weight, more)
    found = [scaled_rows(x, r, weight), *to_norm, *gate_gradients(x, up, grad.clone())]
    back = turn(torch.cat((x, up), -1).unsqueeze(1), angles.cos(), angles.sin(), -1.0)
    most, above = shares(logits)
    found += [back.squeeze(1), squares(x), logits, most + above]
    same = all(
        torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-4)
        for a, b in zip(found, expected, strict=True)
    )
    if not same:
        distrust("Compiled passes are not used: they do not compute what they should.")
    return same
