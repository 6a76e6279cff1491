"""What `improve` needs of a policy and of a critic, whatever computes them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

from tutelage.core.batch import Rows, TokenScores


class Policy(Protocol):
    """A distribution over responses, with parameters that training changes, and its frozen reference."""

    @property
    def dtype(self) -> torch.dtype: ...  # of the arithmetic

    @property
    def vocabulary(self) -> int: ...

    def parameters(self) -> list[nn.Parameter]: ...

    def states(
        self, rows: Rows
    ) -> Tensor: ...  # Float[M, d], before each of the M response tokens, row by row

    def logits(self, rows: Rows, *, temperature: float) -> Tensor: ...  # Float[M, V], differentiable twice

    def scores(
        self,
        rows: Rows,
        *,
        temperature: float,
        entropy: bool = False,
        value_head: Callable[[Tensor], Tensor]
        | None = None,  # Float[M, d] -> Float[M, 1], for `TokenScores.value`
        exact_kl: bool = False,
    ) -> TokenScores: ...

    def reference(
        self,
    ) -> AbstractContextManager[None]: ...  # inside, the reference answers, without gradients

    def split(
        self, batch: Rows, tokens: int
    ) -> Iterator[Tensor]: ...  # Int[b], parts of at most so many tokens

    def backward(self, loss: Tensor) -> None: ...  # adds to the gradients of the parameters

    def total_norm(self, gradients: Iterable[Tensor]) -> Tensor: ...

    def metrics(self) -> dict[str, float]:  # of the last step, for the log
        return {}


class Critic(Protocol):
    """A prediction of the return from every state on the way."""

    @property
    def value_head(
        self,
    ) -> Callable[[Tensor], Tensor] | None: ...  # on the policy's states, if shared

    def parameters(self) -> list[nn.Parameter]: ...

    def values(
        self, rows: Rows
    ) -> Tensor: ...  # Float[B, R]; its gradient reaches the critic's parameters alone

    def backward(self, loss: Tensor) -> None: ...
