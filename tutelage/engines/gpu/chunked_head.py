"""Scores of tokens from hidden states on a GPU, over chunks of the vocabulary.

    l = softcap(scale · (W h + b)) / T         log π(a) = l_a − log Σ_v exp l_v
    H = − Σ_v π(v) log π(v)                    D = KL(π‖ref) = Σ_v π(v) (log π(v) − log ref(v))

Logits exist for all N rows and one chunk of the vocabulary at a time, in float32; the forward pass has running maxima
and sums, and the backward pass recomputes each chunk. So a product is large, each chunk of the weight's gradient is
written once, and the gradient of the states is a sum over chunks. Operands have the dtype of the states, sums float32.
On CUDA the elementwise work of a chunk is one Triton kernel (`head_kernels`). The host never waits for the device.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from tutelage.engines.devices import triton_kernels
from tutelage.engines.logprobs import Head
from tutelage.engines.plans.token_budget import HEAD_ELEMENTS

NARROWEST = 1024
"""Vocabulary entries of a chunk at least, however many rows there are."""
UPDATE_BLOCK, GRADIENT_BLOCK = 4096, 2048
"""Columns that a program of the kernels reads at once, 16 by each thread."""


class _Model(NamedTuple):
    """Operands of logits l = cap · tanh(gain (W h + b) / cap), or gain (W h + b) without cap, temperature included."""

    states: Float[Tensor, "N d"]
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None
    gain: float
    cap: float | None


class _Chunk(NamedTuple):
    """A part of the vocabulary, of v entries. The products W h are float32."""

    products: Float[Tensor, "N v"]
    bias: Float[Tensor, " v"] | None
    gain: float
    cap: float | None


class _Sums(NamedTuple):
    """Sums over the chunks so far, with m the largest logit of each row. Float[N] each"""

    maximum: Tensor
    total: Tensor
    """Σ exp(l − m)"""
    chosen: Tensor
    """The token's logit; −inf before its chunk."""
    centred: Tensor | None
    """Σ exp(l − m) (l − m), for the entropy."""
    ref: tuple[Tensor, Tensor, Tensor] | None
    """For the divergence: the largest logit r of ref, Σ exp(l_ref − r), and Σ exp(l − m) ((l − m) − (l_ref − r))."""


class _Rows(NamedTuple):
    """The terms of each row in the gradient of its logits. Float[N] each

    ∂ loss / ∂ l = to_logp · onehot(a) + π (constant − to_entropy log π + to_divergence (log π − log ref))
    """

    maximum: Tensor
    log_total: Tensor
    to_logp: Tensor
    constant: Tensor
    """− to_logp − to_entropy H − to_divergence D"""
    to_entropy: Tensor | None
    ref: tuple[Tensor, Tensor, Tensor] | None
    """to_divergence, and maximum and log_total of the reference."""


def head_scores(
    states: Float[Tensor, "N d"],
    head: Head,
    tokens: Int[Tensor, " N"],
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    reference: tuple[Float[Tensor, "N e"], Head] | None = None,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None, Float[Tensor, " N"] | None]:
    """The log-probability of each token; the entropy of its distribution if `entropy` is set; and with the states and
    the head of a `reference`, the divergence KL(π‖ref) of the distributions in nats. None for what is not asked for.

    All are float32, and differentiable once in the states and the head, not in the reference. Gradients are float32
    sums, which autograd rounds to the dtype of the tensor, or to its `grad_dtype`.

    Raises ValueError for a head that is not one matrix, for which there is `logprobs.token_scores`.
    """
    models = [_model(states, head, temperature)]
    if reference is not None:
        models.append(_model(reference[0].detach(), reference[1], temperature))
    sizes = {len(model.weight) for model in models}
    if len(sizes) > 1:
        raise ValueError(f"The policy and the reference have vocabularies of different sizes: {sizes}.")
    with torch.autocast(states.device.type, enabled=False):
        return _Scores.apply(*models[0][:3], tokens.long(), entropy, *models)


def _model(states: Tensor, head: Head, temperature: float) -> _Model:
    """A model for products in the dtype of its states, or that of autocast."""
    if head.weight is None or not head.is_matrix:
        raise ValueError("A head without a weight or with a module has no chunks; use `logprobs.token_scores`.")
    device = states.device.type
    if torch.is_autocast_enabled(device):
        states = states.to(torch.get_autocast_dtype(device))
    cap = None if head.softcap is None else head.softcap / temperature
    return _Model(states, head.weight, head.bias, head.scale / temperature, cap)


def chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Parts of the vocabulary of at most `HEAD_ELEMENTS` logits, or `NARROWEST` wide. None if there are no rows."""
    width = max(HEAD_ELEMENTS // max(rows, 1), NARROWEST) // 128 * 128
    return (slice(start, min(start + width, vocabulary)) for start in range(0, vocabulary if rows else 0, width))


def product(
    a: Float[Tensor, "n k"], b: Float[Tensor, "k m"], into: Float[Tensor, "n m"] | None = None
) -> Float[Tensor, "n m"]:
    """A B in float32, without rounding the sums to the dtype of the operands."""
    if a.is_cuda and a.dtype.itemsize == 2:
        return torch.mm(a, b, out_dtype=torch.float32, out=into)
    return torch.mm(a.float(), b.float(), out=into)


def _add_product(total: Float[Tensor, "n m"], a: Float[Tensor, "n k"], b: Float[Tensor, "k m"]) -> None:
    """Add A B to a float32 matrix."""
    if a.is_cuda and a.dtype.itemsize == 2:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        total.addmm_(a.float(), b.float())


class _Buffers:
    """The parts of the vocabulary, and memory for the products of each model with one part, which all parts share."""

    def __init__(self, models: Sequence[_Model]) -> None:
        states, vocabulary = models[0].states, len(models[0].weight)
        self.models, self.rows = models, len(states)
        self.parts = list(chunks(self.rows * len(models), vocabulary))
        self.size = self.rows * (self.parts[0].stop if self.parts else 0)
        self.products = [states.new_empty(self.size, dtype=torch.float32) for _ in models]

    def view(self, memory: Float[Tensor, " n"], part: slice) -> Float[Tensor, "N v"]:
        """The first numbers of `memory` as a contiguous matrix of one chunk."""
        width = part.stop - part.start
        return memory[: self.rows * width].view(self.rows, width)

    def compute(self, part: slice) -> Iterator[_Chunk]:
        """The chunk of each model, whose products overwrite those of the chunk before."""
        for model, memory in zip(self.models, self.products, strict=True):
            weight = model.weight[part].to(model.states.dtype)
            products = product(model.states, weight.T, into=self.view(memory, part))
            bias = None if model.bias is None else model.bias[part].contiguous()
            yield _Chunk(products, bias, model.gain, model.cap)


def _logits(chunk: _Chunk) -> Float[Tensor, "N v"]:
    x = chunk.products if chunk.bias is None else chunk.products + chunk.bias.float()
    return x * chunk.gain if chunk.cap is None else torch.tanh(x * (chunk.gain / chunk.cap)) * chunk.cap


def update(sums: _Sums, positions: Int[Tensor, " N"], chunk: _Chunk, ref: _Chunk | None = None) -> _Sums:
    """The sums with one chunk more, on CUDA in their memory.

    `positions` are columns of the tokens, outside 0…v−1 for those of other chunks.
    """
    if chunk.products.is_cuda:
        return launch_update(sums, positions, chunk, ref)
    logits = _logits(chunk)
    width = logits.shape[1]
    here = logits.gather(1, positions.clamp(0, width - 1)[:, None]).squeeze(1)
    chosen = torch.where((positions >= 0) & (positions < width), here, sums.chosen)
    maximum = torch.maximum(sums.maximum, logits.amax(1))
    drop = sums.maximum - maximum
    decay = drop.exp()
    shifted = logits - maximum[:, None]
    weights = shifted.exp()
    total = sums.total * decay + weights.sum(1)
    centred = ref_sums = None
    if sums.centred is not None:
        added = torch.where(weights > 0, weights * shifted, 0.0).sum(1)  # 0 · −inf is 0 here
        centred = (sums.centred + sums.total * drop) * decay + added
    if ref is not None and sums.ref is not None:
        ref_logits, (before, ref_total, gap) = _logits(ref), sums.ref
        ref_maximum = torch.maximum(before, ref_logits.amax(1))
        ref_drop, ref_shifted = before - ref_maximum, ref_logits - ref_maximum[:, None]
        added = torch.where(weights > 0, weights * (shifted - ref_shifted), 0.0).sum(1)
        gap = (gap + sums.total * (drop - ref_drop)) * decay + added
        ref_sums = ref_maximum, ref_total * ref_drop.exp() + ref_shifted.exp().sum(1), gap
    return _Sums(maximum, total, chosen, centred, ref_sums)


def launch_update(sums: _Sums, positions: Int[Tensor, " N"], chunk: _Chunk, ref: _Chunk | None = None) -> _Sums:
    """`update` by one Triton kernel, in place."""
    rows, width = chunk.products.shape
    triton_kernels("head_kernels").update[rows,](
        positions, *sums[:4], *(sums.ref or (None,) * 3), width, *chunk, *(ref or (None,) * 4),
        BLOCK=UPDATE_BLOCK, num_warps=8,
    )  # fmt: skip
    return sums


def gradient(
    into: Float[Tensor, "N v"], rows: _Rows, positions: Int[Tensor, " N"], chunk: _Chunk, ref: _Chunk | None = None
) -> None:
    """Write ∂ loss / ∂ (W h + b) of one chunk, rounded to the dtype of `into`. `positions` as in `update`."""
    if chunk.products.is_cuda:
        launch_gradient(into, rows, positions, chunk, ref)
        return
    logits = _logits(chunk)
    logp = (logits - rows.maximum[:, None]) - rows.log_total[:, None]
    factor = rows.constant[:, None]
    if rows.to_entropy is not None:
        factor = factor - rows.to_entropy[:, None] * logp
    if ref is not None and rows.ref is not None:
        to_divergence, ref_maximum, ref_log_total = (row[:, None] for row in rows.ref)
        factor = factor + to_divergence * (logp - ((_logits(ref) - ref_maximum) - ref_log_total))
    p = logp.exp()
    columns = torch.arange(logits.shape[1], device=logits.device)
    grad = torch.where(columns == positions[:, None], rows.to_logp[:, None], 0.0)
    grad = grad + torch.where(p > 0, p * factor, 0.0)
    slope = chunk.gain if chunk.cap is None else chunk.gain * (1.0 - (logits / chunk.cap) ** 2)
    into.copy_(grad * slope)


def launch_gradient(
    into: Float[Tensor, "N v"], rows: _Rows, positions: Int[Tensor, " N"], chunk: _Chunk, ref: _Chunk | None = None
) -> None:
    """`gradient` by one Triton kernel."""
    number, width = into.shape
    blocks = -(-width // GRADIENT_BLOCK)
    triton_kernels("head_kernels").gradient[number * blocks,](
        into, positions, *rows[:5], *(rows.ref or (None,) * 3), width, blocks, *chunk, *(ref or (None,) * 4),
        BLOCK=GRADIENT_BLOCK, num_warps=4,
    )  # fmt: skip


class _Scores(torch.autograd.Function):
    """`head_scores` with an explicit gradient. The models are the policy, whose tensors are the first arguments too for
    their gradients, and the reference if there is one."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, entropy: bool, *models: _Model
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        row = partial(torch.full, (len(states),), dtype=torch.float32, device=states.device)
        low = torch.finfo(torch.float32).min  # finite, so that differences are numbers
        ref = (row(low), row(0.0), row(0.0)) if len(models) > 1 else None
        sums = _Sums(row(low), row(0.0), row(-torch.inf), row(0.0) if entropy else None, ref)
        buffers = _Buffers(models)
        for part in buffers.parts:
            sums = update(sums, tokens - part.start, *buffers.compute(part))
        log_total = sums.total.log()
        logp = (sums.chosen - sums.maximum) - log_total
        entropies = None if sums.centred is None else log_total - sums.centred / sums.total
        divergences = ref_maximum = ref_log_total = None
        if sums.ref is not None:
            ref_maximum, ref_total, gap = sums.ref
            ref_log_total = ref_total.log()
            divergences = gap / sums.total - log_total + ref_log_total
        rows = sums.maximum, log_total, entropies, divergences, ref_maximum, ref_log_total
        ctx.save_for_backward(tokens, *rows, *(operand for model in models for operand in model[:3]))
        ctx.curves = [model[3:] for model in models]
        ctx.set_materialize_grads(False)
        return logp, entropies, divergences

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, to_logp: Tensor | None, to_entropy: Tensor | None, to_divergence: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        tokens, maximum, log_total, entropies, divergences, *ref_rows, states, weight, bias = ctx.saved_tensors[:10]
        models, ref = [_Model(states, weight, bias, *ctx.curves[0])], None
        to_logp = torch.zeros_like(log_total) if to_logp is None else to_logp.contiguous()
        constant = -to_logp
        if to_entropy is not None:
            to_entropy = to_entropy.contiguous()
            constant = constant - to_entropy * entropies
        if to_divergence is not None:
            ref = (to_divergence.contiguous(), *ref_rows)
            constant = constant - to_divergence * divergences
            models.append(_Model(*ctx.saved_tensors[10:], *ctx.curves[1]))
        rows = _Rows(maximum, log_total, to_logp, constant, to_entropy, ref)
        needs = ctx.needs_input_grad
        new = partial(torch.empty_like if len(states) else torch.zeros_like, dtype=torch.float32)
        grad_states = torch.zeros_like(states, dtype=torch.float32) if needs[0] else None
        grad_weight, grad_bias = new(weight) if needs[1] else None, new(bias) if needs[2] else None
        with torch.autocast(states.device.type, enabled=False):
            buffers = _Buffers(models)
            memory = states.new_empty(buffers.size)
            for part in buffers.parts:
                grad = buffers.view(memory, part)
                gradient(grad, rows, tokens - part.start, *buffers.compute(part))
                if grad_states is not None:
                    _add_product(grad_states, grad, weight[part].to(states.dtype))
                if grad_weight is not None:
                    product(grad.T, states, into=grad_weight[part])
                if grad_bias is not None:
                    torch.sum(grad, 0, dtype=torch.float32, out=grad_bias[part])
        return grad_states, grad_weight, grad_bias, *(None,) * 4  # autograd rounds them to the dtypes of gradients
