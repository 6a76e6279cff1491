"""The token budget of a forward pass: chosen from available memory, and lowered if memory runs out.

The budget affects the cost of a step but not its result, up to rounding: loss weights are computed over the whole batch
before it is split. A step that runs out of memory can therefore be repeated in smaller parts.
"""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ParamSpec, Protocol, Self, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import Rows
from tutelage.engines.choose import release_memory
from tutelage.engines.devices import available_memory
from tutelage.engines.network import feed_forward_width, inner, size_in
from tutelage.engines.plans.token_budget import bytes_per_token, tokens_at_once
from tutelage.engines.ranks.passes import DONE, FAILED, OUT_OF_MEMORY, BrokenPass, Exhausted, Passes
from tutelage.engines.ranks.ranks import ALONE, PeerError, PeerLost, Ranks, deal
from tutelage.engines.ranks.sharded_tensors import shard_of

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B", bound="Divisible")
Split = Callable[[B, int], Iterable[Int[Tensor, " b"]]]
"""(batch, tokens at once) → the rows of each micro-batch, Int[b]."""
RowCost = Callable[[int, int], float]
"""(tokens of a row, of which completion) → cost of a pass over the row, in any unit."""

EXHAUSTED = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED", "bad_alloc")
"""Error messages of allocators that do not raise torch.OutOfMemoryError."""

_log = logging.getLogger(__name__)


@runtime_checkable
class Divisible(Protocol):
    """Rows or pairs that can be split into parts: `Rows`, `Pairs`, `RowList`."""

    @property
    def owner(self) -> Tensor | None:
        """The rank that must compute each row, Int[B]; None if any may."""

    def __len__(self) -> int: ...
    def rows(self, index: Int[Tensor, " b"], /) -> Self: ...
    def lengths(self) -> Int[Tensor, " B"]: ...
    def response_lengths(self) -> Int[Tensor, " B"]: ...
    def families(self) -> Int[Tensor, " B"]: ...


class Budget:
    """Tokens per forward pass, shared by all passes of a run, so that a reduction applies to later passes.

    `scoring` is the budget of passes without gradients, if larger. `ranks` are the processes that share the work;
    `passes` are the collective passes through sharded models. `remedy` returns advice for the error that a single
    example does not fit. Rows are distributed over ranks by `cost`, by default their number of tokens.
    """

    def __init__(
        self,
        tokens: int,
        ranks: Ranks = ALONE,
        remedy: Callable[[], str] | None = None,
        passes: Passes | None = None,
        cost: RowCost | None = None,
        scoring: int = 0,
    ) -> None:
        self.tokens, self.scoring = tokens, max(tokens, scoring)
        self.ranks, self._remedy, self._passes = ranks, remedy, passes
        self._scores = False  # whether the current passes are without gradients
        self._cost: RowCost = cost or (lambda tokens, response: tokens)
        self._split: Callable[[int], Iterable[Tensor]] | None = None
        self._at_work: Tensor | None = None

    @classmethod
    def of(cls, value: "int | Budget") -> "Budget":
        """The budget itself, or a new one of that many tokens."""
        return value if isinstance(value, Budget) else cls(value)

    def parts(self, split: Split[B], batch: B, at_end: Callable[[], None] | None = None) -> Iterator[Int[Tensor, " b"]]:
        """Micro-batches of this rank's rows of a batch, by `split`. Yields Int[b], indices into `batch`.

        Each row is assigned to exactly one rank, so sums over the parts must be summed over ranks. After the last part,
        `at_end` is called and the ranks synchronise: an error on one rank is raised on all, see `spend`.
        """
        own = self._own(batch)
        mine = batch if own is None else batch.rows(own)
        self._split = partial(split, mine) if len(mine) else lambda tokens: ()
        self._scores = not torch.is_grad_enabled()
        for index in self._split(self._limit):
            self._at_work = index
            yield index if own is None else own[index]
        if at_end is not None and self._at_work is not None:
            at_end()
        self._split = self._at_work = None
        self._confer(None)

    @property
    def _limit(self) -> int:
        """Token limit of the current passes."""
        return self.scoring if self._scores else self.tokens

    def _own(self, batch: Divisible) -> Tensor | None:
        """The rows of a batch that this rank computes, Int[m]; None for all."""
        if self.ranks.size == 1:
            return None
        owner = batch.owner
        if owner is None:
            costs = map(self._cost, batch.lengths().tolist(), batch.response_lengths().tolist())
            owners = deal(list(costs), batch.families().tolist(), self.ranks.size)
            owner = torch.tensor(owners, dtype=torch.long)
        return (owner == self.ranks.rank).nonzero().squeeze(1)

    def spend(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `step(*args, **kwargs)`, which loops over `parts`; repeated if memory runs out.

        Each repetition starts from the same random state with at most half the tokens, so the result equals that of a
        run with the smaller budget from the start. A step that accumulates gradients must clear them first. If memory
        runs out on one rank, all ranks repeat the step.

        Raises TutelageError if a single row (or pair) is too large, `PeerError` if another rank failed, and
        `BrokenPass` if memory ran out in the middle of a pass over shards.
        """
        while True:
            on_cpu = torch.get_rng_state()
            on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
            try:
                return step(*args, **kwargs)
            except Exhausted:
                pass
            except (PeerError, PeerLost):
                raise
            except BrokenPass as broken:
                raise self._explained(broken) from broken
            except Exception as error:
                if self._at_work is None:
                    raise
                self._confer(error)
            # Only after the except block does no traceback keep the tensors of the attempt alive.
            release_memory()
            gc.collect()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            torch.set_rng_state(on_cpu)
            if on_gpus:
                torch.cuda.set_rng_state_all(on_gpus)
            self._lower()

    def _confer(self, error: Exception | None) -> None:
        """Share the outcome of this rank's parts with the other ranks. Raises the error, or `PeerError` for another
        rank's.

        Out of memory is not such an error: `Exhausted` is raised on the ranks with enough memory.
        """
        exhausted = error is not None and out_of_memory(error)
        if error is None and self._passes is not None:
            worst = self._passes.join()
        else:
            worst = self.ranks.largest(DONE if error is None else OUT_OF_MEMORY if exhausted else FAILED)
        if worst == FAILED:
            self.ranks.raise_first(None if exhausted else error)
        if worst == OUT_OF_MEMORY and not exhausted:
            raise Exhausted

    def _lower(self) -> None:
        """Lower the token limit on all ranks, so that micro-batches that were too large are split."""
        before = self._limit
        lowered = int(-self.ranks.largest(-self.ranks.together(self._fewer)))
        self.scoring = self.scoring * lowered // before
        self.tokens = min(self.tokens, lowered)
        self._split = self._at_work = None
        if self.ranks.is_first:
            _log.warning(
                "Memory ran out with up to %s tokens at once: retrying with %s, also in later passes.",
                f"{before:,}",
                f"{lowered:,}",
            )

    def _explained(self, broken: BrokenPass) -> BrokenPass:
        """The error of an interrupted pass; if memory ran out, with the number of tokens to resume with."""
        if broken.__cause__ is None or not out_of_memory(broken.__cause__):
            return broken
        try:
            fewer = self._fewer()
        except TutelageError as single:
            return BrokenPass(str(single))
        limit = f" --tokens-at-once {fewer}" if fewer < self._limit else ""
        return BrokenPass(
            f"Memory ran out in the middle of a pass over shards, with up to {counted(self._limit, 'token')} at once. "
            "The other ranks wait inside the pass, so that it cannot be repeated. The latest checkpoint is whole: go "
            f"on with --resume{limit}, or on more ranks."
        )

    def _fewer(self) -> int:
        """Half the tokens, or fewer, such that this rank's oversized micro-batch is split."""
        if self._split is None or self._at_work is None:
            return self._limit
        if len(self._at_work) == 1:
            by_plan = self._remedy() if self._remedy else ""
            raise TutelageError(
                "Memory ran out on a single example, which cannot be split. "
                + (f"{by_plan} " if by_plan else "")
                + "Shorten the examples (--max-length; in improve the prompts and --sampling.max-new-tokens), train an "
                "adapter (--lora.rank 8), or begin with a smaller model."
            )
        tokens = self._limit
        while any(torch.equal(part, self._at_work) for part in self._split(tokens)):
            tokens //= 2
        return tokens


def out_of_memory(error: BaseException) -> bool:
    """Whether the error means that an allocator is out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in EXHAUSTED)


def automatic_budget(
    device: torch.device,
    dtype: torch.dtype,
    *models: nn.Module,
    shared_by: int = 1,
    checkpointing: bool = False,
    group: int = 0,
) -> int:
    """Tokens of one forward and backward pass through each of `models`, one after another, from available memory,
    divided by `shared_by` processes; see `engines.plans.token_budget.tokens_at_once`. `checkpointing`: layers are
    recomputed in the backward pass; `group`: tokens of a prompt with its completions, if they share it (see
    `engines.plans.token_budget.group_tokens`)."""
    return tokens_at_once(
        available_memory(device) / shared_by,
        weights=sum(shard_of(p).numel() for model in models for p in model.parameters()),
        trainable=sum(shard_of(p).numel() for model in models for p in model.parameters() if p.requires_grad),
        vocabulary=max(int(inner(model).config.get_text_config().vocab_size) for model in models),
        each=max(bytes_of_token(model, dtype, checkpointing) for model in models),
        half=dtype == torch.bfloat16,
        on_cpu=device.type == "cpu",
        group=group,
    )


def bytes_of_token(model: nn.Module, dtype: torch.dtype, checkpointing: bool = False) -> int:
    """Bytes per token of a training pass through a model; see `engines.plans.token_budget.bytes_per_token`."""
    settings = inner(model).config.get_text_config()
    sizes = (size_in(settings, "num_hidden_layers"), size_in(settings, "hidden_size"), feed_forward_width(settings))
    return bytes_per_token(*sizes, half=dtype == torch.bfloat16, checkpointing=checkpointing)


@torch.no_grad()
def token_values(
    split: Split[Rows], values: Callable[[Rows], Float[Tensor, "b r"]], rows: Rows, budget: Budget
) -> Float[Tensor, "B R"]:
    """`values` of the columns of all rows, computed in micro-batches by `split`; 0 at padding. Float[B, R]"""

    def compute() -> Tensor:
        total = torch.zeros(rows.mask.shape, device=rows.mask.device)
        for index in budget.parts(split, rows):
            part = rows.rows(index).trimmed()
            total[index, : part.mask.shape[1]] = values(part)
        budget.ranks.sum_([total])
        return total

    return budget.spend(compute)
