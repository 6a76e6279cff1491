"""The interface between what a model is (`tutelage.models`) and how it computes: engine, decoders, arguments."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from tutelage.base import config
from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.core.rows import RowList
from tutelage.engines.logprobs import Head, ValueHead

OnToken = Callable[[Int[Tensor, " B"]], None]
"""A function that is called with the tokens of every step."""


@dataclass(frozen=True)
class PromptTokens:
    """Tokenised prompts of at least one token each. `ids` name the random streams of the prompts."""

    tokens: tuple[tuple[int, ...], ...]
    ids: tuple[str, ...]


@dataclass(frozen=True)
class PromptBatch:
    """Different prompts that are decoded together, and the number of completions to each."""

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(map(len, self.prompts))


@runtime_checkable
class Decoder(Protocol):
    """Reads the tokens of completions that are being sampled. Its lines are these completions, prompt by prompt."""

    def start(self) -> Float[Tensor, "n V"]:
        """Read the prompts. Returns the logits of the first token of each line."""
        ...

    def step(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """Read one more token of each line. Returns the logits of the next one."""
        ...

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """Drop all lines except `lines` (ascending)."""
        ...

    def close(self, rows: Rollout) -> None:
        """Called when all lines have ended. `rows` are all completions, prompt by prompt."""
        ...


@runtime_checkable
class Decoders(Protocol):
    """Makes decoders on the weights that a model has now. Several may be in use in turn."""

    def decoder(self, batch: PromptBatch, limit: int) -> Decoder:
        """A decoder of completions of up to `limit` tokens."""
        ...

    def step(
        self, decoders: Sequence[Decoder], tokens: Sequence[Int[Tensor, " _"]]
    ) -> list[Float[Tensor, "_ _"]]:
        """Have several decoders, of which each has read its prompts, read one more token of each line: together, where
        that is faster. Returns the logits of the next tokens."""
        ...

    def restore(self) -> None:
        """Return the model to its own layout, for a forward pass between two steps of decoders."""
        ...


@dataclass(frozen=True)
class RolloutSize:
    """What a rollout will hold: `n` completions of up to `limit` tokens to each prompt. `first` are the prompts whose
    rows will be scored with gradients next."""

    prompts: tuple[tuple[int, ...], ...]
    n: int
    limit: int
    first: frozenset[tuple[int, ...]]


class Reference(Protocol):
    """The model that an exact KL is measured to: `states` before each completion token, and the `head` on them."""

    @property
    def head(self) -> Head: ...

    def states(self, rows: Rows) -> Float[Tensor, "M d"]: ...


@runtime_checkable
class Engine(Protocol):
    """The computation of one transformer. Engines of a model agree up to rounding; state between calls is private."""

    name: str
    head: Head

    @property
    def is_exact(self) -> bool:
        """Whether `generate` and `score` give a token one log-probability: in float32 up to rounding, elsewhere to the
        last bit."""

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """Hidden states before each of the M completion tokens, row by row."""

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """Hidden state at the last token of each row."""

    def score(
        self,
        rows: Rows,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        value_head: ValueHead | None = None,
        reference: Callable[[], AbstractContextManager[Reference]] | None = None,
        mixture: float = 1.0,
    ) -> TokenScores:
        """Log-probability and, on request, entropy, value and divergence from `reference` of each completion token; for
        `mixture` see `core.kl.exact_divergence`."""

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """Logits of the M completion tokens over the temperature, differentiable twice."""

    def generate(
        self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, end_ids: Sequence[int], seed: int,
        scored_first: frozenset[str] = frozenset(), rows_at_once: int | None = None, on_token: OnToken | None = None,
    ) -> Rollout:  # fmt: skip
        """Sample `n` completions to each prompt, each ended by one of `end_ids` or the limit (see `sampling.sample`).
        `scored_first`: the ids of prompts whose rows will be scored with gradients next, each once, before any weight
        changes."""

    def decoding(self, size: RolloutSize | None = None) -> AbstractContextManager[Decoders]:
        """The context in which completions are decoded; no weight changes inside. `size` is that of
        the one rollout that will be decoded, where rows of it will be scored with gradients next."""

    def split(self, batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """Parts of a batch, as indices of rows, for which a forward pass computes at most `tokens` tokens each."""

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradient of a loss to the gradients of the parameters."""

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """√ Σ g² over all entries of all gradients."""

    def metrics(self) -> dict[str, float]:
        """The engine's own figures about the last rollout and its update."""
