"""The protocol between what a model is (`tutelage.models`) and how it computes (`tutelage.engines`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from tutelage import config
from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.engines.logprobs import Head, ValueHead
from tutelage.engines.sampling import OnToken, PromptTokens


@runtime_checkable
class Engine(Protocol):
    """How one transformer computes. Engines of a model agree up to rounding; what they keep between calls is theirs."""

    name: str
    head: Head

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """Hidden states before each of the M response tokens, row by row."""

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """Hidden state at the last token of each row."""

    def score(
        self,
        rows: Rows,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        value_head: ValueHead | None = None,
        reference: Callable[[], AbstractContextManager["Engine"]] | None = None,
    ) -> TokenScores:
        """Log-probability and, on request, entropy, value and exact KL to `reference` of each response token."""

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """Logits of the M response tokens over the temperature, differentiable twice."""

    def generate(
        self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, end_ids: Sequence[int], seed: int,
        on_policy: bool = False, rows_at_once: int | None = None, on_token: OnToken | None = None,
    ) -> Rollout:  # fmt: skip
        """Sample `n` answers to each prompt, each ended by one of `end_ids` or the limit (see `sampling.sample`).
        `on_policy`: the rows will be scored with gradients next, each once, before any weight changes."""

    def split(self, batch: Rows | Pairs, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """Parts of a batch, as indices of rows, for which a forward pass computes at most `tokens` tokens each."""

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradient of a loss to the gradients of the parameters."""

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """√ Σ g² over all entries of all gradients."""

    def metrics(self) -> dict[str, float]:
        """The engine's own figures about the last rollout and its update."""
