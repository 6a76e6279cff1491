"""The protocol between what a model is (`tutelage.models`) and how it computes (`tutelage.engines`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from tutelage import config
from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.engines.logprobs import Head
from tutelage.engines.sampling import PromptTokens

ValueHead = Callable[[Tensor], Tensor]


class Engine(Protocol):
    """How one transformer computes. Two engines of one model agree up to rounding; what an engine remembers between a
    rollout and the update that follows is its own business."""

    name: str
    head: Head

    def states(self, rows: Rows) -> Tensor:
        """Hidden states from which the M response tokens are predicted, row by row. Float[M, d]"""

    def last_states(self, rows: Rows) -> Tensor:
        """Hidden state at the last token of each row. Float[B, d]"""

    def score(
        self,
        rows: Rows,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        value_head: ValueHead | None = None,
        reference: Callable[[], AbstractContextManager["Engine"]] | None = None,
    ) -> TokenScores:
        """Log-probability, and where asked entropy, value and exact KL to `reference`, of each response token."""

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Tensor:
        """Logits of the M response tokens over the temperature, differentiable twice. Float[M, V]"""

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        end_ids: Sequence[int],
        seed: int,
        on_policy: bool = False,
        rows_at_once: int | None = None,
        on_token: Callable[[Tensor], None] | None = None,
    ) -> Rollout:
        """Sample `n` answers to each prompt, each ended by one of `end_ids` or the limit. `on_policy` announces that
        the rows are scored with gradients next, each once, before any weight changes."""

    def split(self, batch: Rows | Pairs, tokens: int) -> Iterator[Tensor]:
        """Parts of a batch for which a forward pass computes at most `tokens` tokens. Yields Int[b]."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the parameters."""

    def total_norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """√ Σ g² over all gradients. Float[]"""

    def metrics(self) -> dict[str, float]:
        """Figures of the engine's own about the last rollout and its update."""
