"""The curvature of the policy's distributions as a product with a vector, and its parameters as one vector."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tutelage.core.batch import Rows
from tutelage.core.kl import exact_kl
from tutelage.core.rows import split_by_length
from tutelage.engines.plans.token_budget import CHUNK_ELEMENTS
from tutelage.models.budget import Budget
from tutelage.train.rl.policy import Policy

LOGITS_AT_ONCE = 4 * CHUNK_ELEMENTS
"""Elements of the logits of one part: here they live in a graph, and cannot be cut into chunks."""


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors of any shape as one vector. Float[N]"""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def put(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Give the parameters the values of one vector, in order. Float[N]"""
    for parameter, values in zip(parameters, vector.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(values.view_as(parameter))


def parts_by_logits(rows: Rows, vocabulary: int, budget: Budget) -> Iterator[Rows]:
    """Rows in parts of at most `budget` padded tokens whose logits also stay within `LOGITS_AT_ONCE`."""
    most = max(1, LOGITS_AT_ONCE // vocabulary)
    for index in budget.parts(lambda batch, tokens: split_by_length(batch, min(tokens, most)), rows):
        yield rows.rows(index).trimmed()


@dataclass(frozen=True)
class _Linear:
    """The logits [n, V] of some tokens, and Jᵀu as a function of u, where J is their Jacobian."""

    logits: Tensor
    u: Tensor
    pulled: Sequence[Tensor]


class Fisher:
    """v ↦ F v, with F = mean over tokens of Jᵀ (diag p − p pᵀ) J, the Hessian of the mean KL(π_old‖π) at π = π_old.

    J is the Jacobian of a token's logits in the parameters and p its distribution. F is never formed: J v is the
    derivative of uᵀJv in u, whose value is 0 everywhere and costs one more backward pass (Pearlmutter 1994). So a
    product costs about two gradients, and half of that where one part holds all rows: its graph is then kept.
    """

    def __init__(self, policy: Policy, rows: Rows, *, temperature: float, budget: Budget) -> None:
        self.policy, self.rows, self.temperature, self.budget = policy, rows, temperature, budget
        self.parameters = policy.parameters()
        self.tokens = max(1, int(rows.mask.sum()))
        self._kept: _Linear | None = None

    def __call__(self, v: Tensor) -> Tensor:
        """F v. Float[N] -> Float[N]"""
        direction = [
            piece.view_as(p)
            for piece, p in zip(v.split([p.numel() for p in self.parameters]), self.parameters, strict=True)
        ]
        total = torch.zeros_like(v)
        for part in parts_by_logits(self.rows, self.policy.vocabulary, self.budget):
            at = self._kept or self._linear(part)
            if len(part) == len(self.rows):
                self._kept = at
            total += self._product(at, direction)
        self.budget.ranks.sum_([total])
        return total / self.tokens

    def _linear(self, part: Rows) -> _Linear:
        logits = self.policy.logits(part, temperature=self.temperature)
        u = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(logits, self.parameters, u, create_graph=True, materialize_grads=True)
        return _Linear(logits, u, pulled)

    def _product(self, at: _Linear, direction: Sequence[Tensor]) -> Tensor:
        along = torch.stack([(a * b).sum() for a, b in zip(at.pulled, direction, strict=True)]).sum()
        (moved,) = torch.autograd.grad(along, at.u, retain_graph=True)
        p = at.logits.detach().softmax(-1)
        curved = p * (moved - (p * moved).sum(-1, keepdim=True))
        keep = self._kept is not None
        return flat(
            torch.autograd.grad(at.logits, self.parameters, curved, retain_graph=keep, materialize_grads=True)
        )


@torch.no_grad()
def mean_kl(
    policy: Policy, rows: Rows, old: Tensor, new: Tensor, *, temperature: float, budget: Budget
) -> float:
    """KL(old‖new) of the next-token distributions, exactly, averaged over the response tokens. Nats per token.

    `old` and `new` are the policy's parameters as vectors Float[N]; the policy is left new.
    """
    parameters = policy.parameters()
    total = torch.zeros((), dtype=torch.float64)
    for part in parts_by_logits(rows, policy.vocabulary, budget):
        put(parameters, old)
        before = policy.logits(part, temperature=temperature)
        put(parameters, new)
        after = policy.logits(part, temperature=temperature)
        total += exact_kl(before, after).sum().double().cpu()
    put(parameters, new)  # a rank may have no rows
    budget.ranks.sum_([total])
    return float(total) / max(1, int(rows.mask.sum()))
