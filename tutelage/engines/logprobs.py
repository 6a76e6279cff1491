"""Log-probabilities from hidden states, without materialising the logits of all positions.

    logits = softcap(scale · (W h + b)) / T          log π(a) = logits[a] − logsumexp(logits)
    H = − Σ_v π(v) log π(v)

With a vocabulary of 50,000 tokens, the [N, V] logits are by far the largest tensor in language-model training, and
almost all of it is discarded. Here logits exist one chunk of rows at a time, and the backward pass recomputes each
chunk; up to `KEPT_ELEMENTS` are saved instead. Softmax and sums are float32 for all dtypes of weights.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tutelage.core.kl import exact_divergence, expectation
from tutelage.engines.plans.token_budget import CHUNK_ELEMENTS, KEPT_ELEMENTS

Matrix = Float[Tensor, "_ _"]
Vector = Float[Tensor, " _"]
ValueHead = Callable[[Float[Tensor, "M d"]], Float[Tensor, "M 1"]]
"""A head that predicts the value of hidden states."""


@dataclass(frozen=True)
class Head:
    """The map from hidden states to logits: `softcap(scale · (W h + b))`.

    Without `weight` and `module` the head is unknown and the states are already logits, for architectures whose head is
    not reproduced. `module` is called instead of W and b if the head is not one matrix, as with LoRA on the head.
    """

    weight: Float[Tensor, "V d"] | None = None
    bias: Float[Tensor, " V"] | None = None
    scale: float = 1.0
    softcap: float | None = None
    module: Callable[[Float[Tensor, "N d"]], Float[Tensor, "N V"]] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the head takes hidden states instead of logits."""
        return self.weight is not None or self.module is not None

    @property
    def is_matrix(self) -> bool:
        """Whether the head is W and b alone."""
        return self.weight is not None and self.module is None

    def logits(self, states: Float[Tensor, "*N d"]) -> Float[Tensor, "*N V"]:
        """Logits of hidden states, in float32."""
        if self.module is not None:
            raw = self.module(states)
        elif self.weight is not None:
            raw = nn.functional.linear(states, self.weight.to(states.dtype), self.bias)
        else:
            return states.float()
        return self.scaled(raw.float())

    def scaled(self, raw: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
        """`softcap(scale · raw)` of float32 products `raw`."""
        if self.scale != 1.0:
            raw = raw * self.scale
        return raw if self.softcap is None else torch.tanh(raw / self.softcap) * self.softcap


def softmax_parts(
    logits: Float[Tensor, "n V"], temperature: float = 1.0, *, keeps: bool = True
) -> tuple[Float[Tensor, "n V"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The softmax of x = logits / temperature, overwriting the logits, and the log-sum-exp of each row in two parts:

    logsumexp x = max x + log Σ exp(x − max x)        (kept apart for precision)

    Without `keeps` the softmax is not used, so that it need not be computed.
    """
    logits = logits if temperature == 1.0 else logits.div_(temperature)
    maximum = logits.amax(-1)
    probabilities = torch.softmax(logits, -1, out=logits)
    return probabilities, maximum, -probabilities.amax(-1).log()


def logit_gradients(
    probabilities: Float[Tensor, "n V"], tokens: Int[Tensor, " n"], grad: Float[Tensor, " n"], factor: float
) -> Float[Tensor, "n V"]:
    """(onehot(a) − p) · ∂ · factor for the tokens a and the gradients ∂ of their log-probabilities, overwriting p."""
    to_logits = probabilities.mul_(-grad[:, None]).scatter_add_(-1, tokens[:, None], grad[:, None])
    return to_logits if factor == 1.0 else to_logits.mul_(factor)


def add_product(
    weight: Float[Tensor, "out in"],
    grad: Float[Tensor, "n out"],
    x: Float[Tensor, "n in"],
    total: Float[Tensor, "out in"] | None = None,
) -> Float[Tensor, "out in"] | None:
    """Gᵀ X added to `total`, a gradient of `weight` of at least float32 precision; a new gradient if None."""
    if total is None:
        product = grad.T @ x
        return product.to(torch.promote_types(product.dtype, torch.float32))
    return total.addmm_(grad.T, x) if x.dtype == total.dtype else total.add_(grad.T @ x)


def input_gradient(grad: Float[Tensor, "n out"], weight: Float[Tensor, "out in"], into: Float[Tensor, "n in"]) -> None:
    """Write G W to `into`."""
    torch.matmul(grad, weight, out=into)


def linear(
    weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None
) -> Callable[[Float[Tensor, "*N d"]], Float[Tensor, "*N V"]]:
    """The function x ↦ W x + b on the current weights."""
    return lambda x: nn.functional.linear(x, weight.to(x.dtype), bias)


@dataclass(frozen=True)
class HeadKernels:
    """The operations of `token_scores` that an engine may replace."""

    softmax_parts: Callable[..., tuple[Matrix, Vector, Vector]]
    """See `softmax_parts`."""
    add_product: Callable[[Matrix, Matrix, Matrix, Matrix | None], Matrix | None]
    """See `add_product`. Returns None if the product was added to the gradient of `weight` in place."""
    linear: Callable[[Matrix, Vector | None], Callable[[Matrix], Matrix]] = linear
    """See `linear`."""
    input_gradient: Callable[[Matrix, Matrix, Matrix], None] = input_gradient
    """See `input_gradient`."""
    logit_gradients: Callable[[Matrix, Vector, Vector, float], Matrix] = logit_gradients
    """See `logit_gradients`."""
    sample: Callable[[Matrix, Vector, float], tuple[Vector, Vector]] | None = None
    """See `token_sampling.sample`, which is used if None."""


PLAIN_KERNELS = HeadKernels(softmax_parts, add_product)


def token_scores(
    states: Float[Tensor, "N d"],
    head: Head,
    tokens: Int[Tensor, " N"],
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    kernels: HeadKernels = PLAIN_KERNELS,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
    """The log-probability of each token, and the entropy of its distribution if `entropy` is set, else None.

    Both are float32 and differentiable in the states and the head. The entropy costs a second sum over the vocabulary.
    """
    if head.module is not None or head.weight is None:
        return _checkpointed(states, head, tokens, temperature, entropy)
    logp, entropies = _ChunkedScores.apply(
        states, head.weight, head.bias, tokens, head.scale, head.softcap, temperature, entropy, kernels
    )
    return logp, entropies if entropy else None


def reference_divergence(
    states: Float[Tensor, "N d"],
    head: Head,
    ref_states: Float[Tensor, "N e"],
    ref_logits: Callable[[Float[Tensor, "n e"]], Float[Tensor, "n V"]],
    *,
    mixture: float = 1.0,
    temperature: float = 1.0,
) -> Float[Tensor, " N"]:
    """The divergence of next-token distributions from those of a reference at each of N states, in nats: KL(π‖ref), or
    for other values of `mixture` see `core.kl.exact_divergence`.

    `ref_logits` is the head of the reference. Differentiable in `states` and `head`, chunk by chunk as in
    `token_scores`.
    """

    def divergence(states: Tensor, ref_states: Tensor) -> Tensor:
        with torch.no_grad():
            expected = ref_logits(ref_states) / temperature
        return exact_divergence(head.logits(states) / temperature, expected, mixture)

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
    """`token_scores` by checkpointed autograd, chunk by chunk, for heads of more than one matrix."""

    def scores(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = (head.logits(states) / temperature).log_softmax(-1)
        chosen = log_probs.gather(-1, tokens[:, None]).squeeze(-1)
        return chosen, -expectation(log_probs, log_probs) if entropy else torch.zeros_like(chosen)

    width = states.shape[-1] if head.weight is None else head.weight.shape[0]
    parts = [
        checkpoint(scores, states[part], tokens[part], use_reentrant=False) for part in _chunks(states.shape[0], width)
    ]
    if not parts:
        return states.new_zeros(0, dtype=torch.float32), None
    logp, entropies = (torch.cat(column) for column in zip(*parts, strict=True))
    return logp, entropies if entropy else None


class _ChunkedScores(torch.autograd.Function):
    """`token_scores` for a head of one matrix, with an explicit gradient.

    With p the distribution at one position and a its token:
        ∂ log p(a) / ∂ logits = onehot(a) − p            ∂ H / ∂ logits = − p (log p + H)
    Only p is stored, in place of the logits. If p was saved for the backward pass, the gradient overwrites it; a second
    backward pass recomputes p. Under autocast, the products of the backward pass use its dtype too.
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
        head = Head(weight, bias, scale, softcap, kernels.linear(weight, bias))
        rows = states.shape[0]
        logp, entropies = torch.zeros(rows, device=states.device), torch.zeros(rows, device=states.device)
        keeps = ctx.needs_input_grad[0] and rows * weight.shape[0] <= KEPT_ELEMENTS
        ctx.kept = [] if keeps else None
        for part in _chunks(rows, weight.shape[0]):
            logits = head.logits(states[part])
            chosen = logits.gather(-1, tokens[part, None]).squeeze(-1).div_(temperature)
            probabilities, maximum, log_sum = kernels.softmax_parts(logits, temperature, keeps=keeps or entropy)
            logp[part] = (chosen - maximum) - log_sum
            if entropy:
                entropies[part] = torch.special.entr(probabilities).sum(-1)
            if keeps:
                ctx.kept.append(probabilities)
        ctx.save_for_backward(states, weight, bias, tokens, entropies)
        ctx.settings = (scale, softcap, temperature, entropy, kernels)
        device = states.device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        return logp, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, tokens, entropies = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None
        scale, softcap, temperature, entropy, kernels = ctx.settings
        device, dtype, enabled = ctx.autocast
        autocast = torch.autocast(device, dtype=dtype, enabled=enabled)  # as in the forward pass, for equal logits
        to_logp, to_entropy = gradients
        need_states, need_weight, need_bias = ctx.needs_input_grad[:3]
        states_type, states = states.dtype, states.to(dtype if enabled else states.dtype)
        rounded = weight.to(states.dtype)
        with autocast:
            head = Head(weight, bias, scale, softcap, kernels.linear(weight, bias))
        grad_states = torch.empty_like(states) if need_states else None
        grad_weight = None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if need_bias else None
        for part in _chunks(states.shape[0], weight.shape[0]):
            if kept is None:
                with autocast:
                    logits = head.logits(states[part])
                probabilities, *_ = kernels.softmax_parts(logits, temperature)
            else:
                probabilities = kept.pop(0)
            if entropy:
                grad_logits = torch.special.entr(probabilities).mul_(to_entropy[part, None])
                grad_logits.addcmul_(probabilities, -(to_logp[part] + to_entropy[part] * entropies[part])[:, None])
                grad_logits.scatter_add_(-1, tokens[part, None], to_logp[part, None]).mul_(scale / temperature)
            else:
                grad_logits = kernels.logit_gradients(probabilities, tokens[part], to_logp[part], scale / temperature)
            if softcap is not None:
                with autocast:
                    grad_logits.mul_(1 - (head.logits(states[part]) / softcap) ** 2)
            grad_logits = grad_logits.to(states.dtype)
            if grad_states is not None:
                kernels.input_gradient(grad_logits, rounded, grad_states[part])
            if need_weight:
                grad_weight = kernels.add_product(weight, grad_logits, states[part], grad_weight)
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
        if need_weight and not len(states):
            grad_weight = torch.zeros_like(weight)
        return (
            None if grad_states is None else grad_states.to(states_type),
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            *(None,) * 6,
        )
