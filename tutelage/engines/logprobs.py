"""From hidden states to log-probabilities without ever holding the logits of all positions.

    logits = softcap(scale · (W h + b)) / T          log π(a) = logits[a] − logsumexp(logits)
    H = − Σ_v π(v) log π(v)

The `[N, V]` tensor of a vocabulary of 50,000 words is the largest one in language-model training by far, and
almost all of it is thrown away. Here it exists one chunk of rows at a time, and the backward pass makes each chunk
anew; only what fits into one chunk altogether is kept. Softmax and sums run in float32 whatever the weights' type.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tutelage.core.kl import exact_kl

CHUNK_ELEMENTS = 1 << 25  # logits held at once, 128 MiB of float32: a batch that fits is not computed twice


@dataclass(frozen=True)
class Head:
    """The map from hidden states to logits: `softcap(scale · (W h + b))`.

    `weight` None says that the states are logits already (an architecture whose head we could not reproduce).
    `module` is called instead of W and b where the head is not one matrix, as with LoRA on the head.
    """

    weight: Tensor | None = None  # [V, d]
    bias: Tensor | None = None  # [V]
    scale: float = 1.0
    softcap: float | None = None
    module: Callable[[Tensor], Tensor] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it takes hidden states, not logits."""
        return self.weight is not None or self.module is not None

    def logits(self, states: Tensor) -> Tensor:
        """States [N, d] → logits [N, V] in float32."""
        if self.module is not None:
            raw = self.module(states)
        elif self.weight is not None:
            raw = nn.functional.linear(states, self.weight.to(states.dtype), self.bias)
        else:
            return states.float()
        raw = raw.float()
        if self.scale != 1.0:
            raw = raw * self.scale
        return raw if self.softcap is None else torch.tanh(raw / self.softcap) * self.softcap


def softmax_parts(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax, in the place of the logits, and log-sum-exp in two parts: the largest logit and what comes on top.

    Float[n, V] → Float[n, V], Float[n], Float[n]. As one number of the size of the logits it would be less exact.
    """
    most = logits.amax(-1)
    shares = torch.softmax(logits, -1, out=logits)
    return shares, most, -shares.amax(-1).log()


def add_product(weight: Tensor, left: Tensor, right: Tensor, total: Tensor | None = None) -> Tensor | None:
    """The product `left` `right` added to `total`, a gradient of `weight` in float32 at least; None starts a total.

    Float[out, n], Float[n, in] -> Float[out, in]
    """
    if total is None:
        product = left @ right
        return product.to(torch.promote_types(product.dtype, torch.float32))
    return total.addmm_(left, right) if right.dtype == total.dtype else total.add_(left @ right)


@dataclass(frozen=True)
class HeadKernels:
    """The two operations of `token_scores` that an engine may compute in its own way."""

    softmax_parts: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    """See `softmax_parts`."""
    add_product: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor | None]
    """See `add_product`. Returns None where the product was added to the gradient of `weight` in place."""


PLAIN_KERNELS = HeadKernels(softmax_parts, add_product)


def token_scores(
    states: Tensor,
    head: Head,
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    kernels: HeadKernels = PLAIN_KERNELS,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of `tokens` [N] (and the entropy of their whole distribution) from `states` [N, d].

    Both come in float32 [N] and carry gradients to the states and to the head. The entropy is given only where
    asked, since it costs a second sum over the vocabulary.
    """
    if head.module is not None or head.weight is None:
        return _checkpointed(states, head, tokens, temperature, entropy)
    logp, spread = _ChunkedScores.apply(
        states, head.weight, head.bias, tokens, head.scale, head.softcap, temperature, entropy, kernels
    )
    return logp, spread if entropy else None


def exact_divergence(
    states: Tensor,
    head: Head,
    ref_states: Tensor,
    ref_logits: Callable[[Tensor], Tensor],
    *,
    temperature: float = 1.0,
) -> Tensor:
    """KL(π‖ref) of the next-token distributions at each of N states. Float[N, d], Float[N, d] -> Float[N]

    `ref_logits` is the reference's head. The gradient goes to `states` and `head`, chunk by chunk as in `token_scores`.
    """

    def divergence(states: Tensor, ref_states: Tensor) -> Tensor:
        with torch.no_grad():
            there = ref_logits(ref_states) / temperature
        return exact_kl(head.logits(states) / temperature, there)

    width = states.shape[-1] if head.weight is None else head.weight.shape[0]
    parts = [
        checkpoint(divergence, states[part], ref_states[part], use_reentrant=False)
        for part in _chunks(states.shape[0], width)
    ]
    return torch.cat(parts) if parts else states.new_zeros(0, dtype=torch.float32)


def _chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return (slice(start, start + size) for start in range(0, rows, size))


def _checkpointed(
    states: Tensor, head: Head, tokens: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """The same in plain autograd, chunk by chunk: for heads that are more than one matrix."""

    def scores(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = (head.logits(states) / temperature).log_softmax(-1)
        chosen = log_probs.gather(-1, tokens[:, None]).squeeze(-1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1) if entropy else torch.zeros_like(chosen)

    width = states.shape[-1] if head.weight is None else head.weight.shape[0]
    parts = [
        checkpoint(scores, states[part], tokens[part], use_reentrant=False)
        for part in _chunks(states.shape[0], width)
    ]
    if not parts:
        return states.new_zeros(0, dtype=torch.float32), None
    logp, spread = (torch.cat(column) for column in zip(*parts, strict=True))
    return logp, spread if entropy else None


class _ChunkedScores(torch.autograd.Function):
    """`token_scores` for a head of one matrix, with the gradient written out.

    With p the distribution at one position and a its token:
        ∂ log p(a) / ∂ logits = onehot(a) − p            ∂ H / ∂ logits = − p (log p + H)
    Only p is computed, in the place of the logits. Where p was kept, the first backward pass makes the gradient in its
    place; a second one computes it anew.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        scale: float,
        softcap: float | None,
        temperature: float,
        entropy: bool,
        kernels: HeadKernels,
    ) -> tuple[Tensor, Tensor]:
        head = Head(weight, bias, scale, softcap)
        rows = states.shape[0]
        logp, spread = torch.zeros(rows, device=states.device), torch.zeros(rows, device=states.device)
        parts = list(_chunks(rows, weight.shape[0]))
        ctx.kept = None
        for part in parts:
            logits = _logits(head, states[part], temperature)
            chosen = logits.gather(-1, tokens[part, None]).squeeze(-1)
            shares, most, above = kernels.softmax_parts(logits)
            logp[part] = (chosen - most) - above
            if entropy:
                spread[part] = torch.special.entr(shares).sum(-1)
            ctx.kept = shares if len(parts) == 1 and ctx.needs_input_grad[0] else None
        ctx.save_for_backward(states, weight, bias, tokens, spread)
        ctx.settings = (scale, softcap, temperature, entropy, kernels)
        device = states.device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        return logp, spread

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, tokens, spread = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None
        scale, softcap, temperature, entropy, kernels = ctx.settings
        head = Head(weight, bias, scale, softcap)
        device, dtype, enabled = ctx.autocast
        as_before = torch.autocast(device, dtype=dtype, enabled=enabled)  # or other logits would be rebuilt
        to_logp, to_entropy = gradients
        need_states, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_states = torch.empty_like(states) if need_states else None
        grad_weight = None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if need_bias else None
        for part in _chunks(states.shape[0], weight.shape[0]):
            if kept is None:
                with as_before:
                    logits = _logits(head, states[part], temperature)
                shares, *_ = kernels.softmax_parts(logits)
            else:
                shares = kept
            if entropy:
                slope = torch.special.entr(shares).mul_(to_entropy[part, None])
                slope.addcmul_(shares, -(to_logp[part] + to_entropy[part] * spread[part])[:, None])
            else:
                slope = shares.mul_(-to_logp[part, None])
            slope.scatter_add_(-1, tokens[part, None], to_logp[part, None])
            if scale != temperature:
                slope.mul_(scale / temperature)
            if softcap is not None:
                with as_before:
                    slope.mul_(1 - (head.logits(states[part]) / softcap) ** 2)
            slope = slope.to(states.dtype)
            if grad_states is not None:
                torch.matmul(slope, weight.to(states.dtype), out=grad_states[part])
            if need_weight:
                grad_weight = kernels.add_product(weight, slope.T, states[part], grad_weight)
            if grad_bias is not None:
                grad_bias += slope.sum(0)
        if need_weight and not len(states):
            grad_weight = torch.zeros_like(weight)
        return (
            grad_states,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            *(None,) * 6,
        )


def _logits(head: Head, states: Tensor, temperature: float) -> Tensor:
    """logits / T of some rows, which nobody else holds. Float[n, V]"""
    logits = head.logits(states)
    return logits if temperature == 1.0 else logits.div_(temperature)
