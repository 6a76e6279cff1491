"""Interface between models (`tutelage.models`) and their computation: engine, decoders and argument types."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from tutelage.base import config
from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.core.rows import RowList
from tutelage.engines.lines import Lines
from tutelage.engines.logprobs import Head, HeadKernels, ValueHead

OnToken = Callable[[Int[Tensor, " B"]], None]
"""Callback for the tokens of every step."""


@dataclass(frozen=True)
class PromptTokens:
    """Tokenised prompts of at least one token each. `ids` identify the random streams of the prompts; those in
    `scored_first` have rows that a policy in this process scores next with gradients, once each, before any weight
    changes."""

    tokens: tuple[tuple[int, ...], ...]
    ids: tuple[str, ...]
    scored_first: frozenset[str] = field(default=frozenset(), compare=False)

    def at(self, places: Sequence[int]) -> "PromptTokens":
        """The prompts at these places."""
        return replace(self, tokens=tuple(self.tokens[i] for i in places), ids=tuple(self.ids[i] for i in places))


@dataclass(frozen=True)
class SamplingJob:
    """`n` completions of each prompt, each ended by one of `end_ids` or the limit.

    The random stream of a row depends only on `seed`, the prompt's id and the number of the sample. `on_token` is
    called with the tokens of every step, for streaming. `rows_at_once` bounds memory; chosen automatically if None.
    """

    prompts: PromptTokens
    n: int
    sampling: config.Sampling
    end_ids: Sequence[int]
    seed: int
    rows_at_once: int | None = None
    on_token: OnToken | None = None

    @property
    def limit(self) -> int:
        """Tokens of a completion at most."""
        return self.sampling.max_new_tokens

    @property
    def rows(self) -> int:
        """Number of completions."""
        return self.n * len(self.prompts.tokens)


@dataclass(frozen=True)
class PromptBatch:
    """Distinct prompts that are decoded together, and the number of completions for each."""

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Length of the longest prompt in tokens."""
        return max(map(len, self.prompts))


@runtime_checkable
class Decoder(Protocol):
    """Incremental decoding of sampled completions. Its lines are the completions, prompt by prompt."""

    def start(self) -> Float[Tensor, "n V"]:
        """Read the prompts. Returns logits of the first token of each line."""
        ...

    def step(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """Read one more token of each line. Returns the logits of the next one."""
        ...

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """Drop all lines except `lines` (ascending)."""
        ...

    def close(self, rows: Rollout) -> None:
        """Finish decoding, once all lines have ended. `rows` are all completions, prompt by prompt."""
        ...


@runtime_checkable
class Decoders(Protocol):
    """Factory of decoders on the current weights of a model. Several decoders may be used alternately."""

    @property
    def mixes_lengths(self) -> bool:
        """Whether prompts of several lengths are decoded together at no additional cost."""
        ...

    def decoder(self, batch: PromptBatch, limit: int) -> Decoder:
        """A decoder for completions of up to `limit` tokens."""
        ...

    def step(self, decoders: Sequence[Decoder], tokens: Sequence[Int[Tensor, " _"]]) -> list[Float[Tensor, "_ _"]]:
        """Run one step of several started decoders, jointly if that is faster. Returns the logits of the next
        tokens."""
        ...

    def restore(self) -> None:
        """Restore the model's original layout, for a forward pass between decoding steps."""
        ...


@dataclass(frozen=True)
class RolloutSize:
    """Size of a rollout: `n` completions of up to `limit` tokens per prompt. `first` are the prompts whose rows are
    scored with gradients next."""

    prompts: tuple[tuple[int, ...], ...]
    n: int
    limit: int
    first: frozenset[tuple[int, ...]]


class Reference(Protocol):
    """Reference model of an exact KL: `states` before each completion token, and the `head` on them."""

    @property
    def head(self) -> Head: ...

    def states(self, rows: Rows) -> Float[Tensor, "M d"]: ...


@runtime_checkable
class Engine(Protocol):
    """Computation of one transformer. All engines agree up to rounding and keep state between calls private."""

    name: str
    head: Head
    kernels: HeadKernels

    @property
    def is_exact(self) -> bool:
        """Whether `generate` and `score` give the same log-probabilities: up to rounding in float32, bit-identical in
        other dtypes."""

    @property
    def extends_exactly(self) -> bool:
        """Whether `lines` and `score` give the same log-probabilities to the bit."""

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
        """Logits of the M completion tokens divided by the temperature, twice differentiable."""

    def generate(self, job: SamplingJob) -> Rollout:
        """Sample completions (see `sampling.sample`). Row b belongs to prompt b // n."""

    def decoding(self, size: RolloutSize | None = None) -> AbstractContextManager[Decoders]:
        """Context for decoding, inside which weights must not change. `size` is the size of the rollout, if some of its
        rows are scored with gradients next."""

    def lines(self, longest: int) -> AbstractContextManager[Lines[Any, Any] | None]:
        """Context with lines of up to `longest` tokens, inside which weights must not change; None if the model has a
        state that cannot be kept and extended."""

    def split(self, batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """Split a batch into parts, as row indices, of at most `tokens` tokens per forward pass."""

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradient of a loss to the gradients of the parameters."""

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """√ Σ g² over all entries of all gradients."""

    def metrics(self) -> dict[str, float]:
        """Engine metrics of the last rollout and its update."""
