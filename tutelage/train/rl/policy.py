"""The protocols of a policy and a critic that `improve` needs, whatever computes them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

from tutelage.core.batch import Rows, TokenScores


class Policy(Protocol):
    """A distribution over responses, with parameters that training changes, and a frozen reference.

    For rows with M response tokens in all, V words and states of size d:

    is_exact    whether its own samples and `scores` give a token one log-probability
    states      the hidden state before each response token, row by row. Float[M, d]
    logits      the logits at these states over the temperature, differentiable twice. Float[M, V]
    scores      the log-probability of every token, and what else is wanted; `value_head` maps states to values [M, 1]
    reference   a context in which the methods compute the reference's results, without gradients
    split       the rows in parts of at most so many tokens. Yields Int[b]
    backward    adds the gradient of a loss [] to the gradients of the parameters
    total_norm  √ Σ g² over all gradients. []
    metrics     figures of the last step for the log
    """

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def is_exact(self) -> bool: ...

    @property
    def vocabulary(self) -> int: ...

    def parameters(self) -> list[nn.Parameter]: ...

    def states(self, rows: Rows) -> Tensor: ...

    def logits(self, rows: Rows, *, temperature: float) -> Tensor: ...

    def scores(
        self,
        rows: Rows,
        *,
        temperature: float,
        entropy: bool = False,
        value_head: Callable[[Tensor], Tensor] | None = None,
        divergence: float | None = None,
    ) -> TokenScores: ...

    def reference(self) -> AbstractContextManager[None]: ...

    def split(self, batch: Rows, tokens: int) -> Iterator[Tensor]: ...

    def backward(self, loss: Tensor) -> None: ...

    def total_norm(self, gradients: Iterable[Tensor]) -> Tensor: ...

    def metrics(self) -> dict[str, float]:
        return {}
