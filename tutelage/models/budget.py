"""How many tokens a forward pass may hold: chosen from the memory that is left, and lowered where they are too many.

A bound on tokens changes what a step costs, never what it computes beyond the last bits: weights are computed over the
whole batch before it is split. So a step that ran out of memory can be taken again in smaller parts.
"""

import gc
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from tutelage.engines.logprobs import CHUNK_ELEMENTS
from tutelage.engines.memory import available_memory
from tutelage.engines.network import inner
from tutelage.errors import TutelageError

P = ParamSpec("P")
T = TypeVar("T")
Split = Callable[[int], Iterable[Int[Tensor, " b"]]]
"""Tokens at once → the rows of each micro-batch, Int[b]."""

FEWEST = 256
"""Below this many tokens the products are so thin that it is better to try and be told."""
MOST_ON_CPU = 8192
"""More were no faster on a processor."""
SMALL = 192 << 20
"""Bytes of activations that a processor's memory is not spared, whatever the size of the model."""
MOST_ON_GPU = 131_072
SHARE = 0.5
"""Of the memory that is left, what the estimate may fill: the rest is for what it does not see."""
EXHAUSTED = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED", "bad_alloc")
"""How allocators say it, where they do not raise torch.OutOfMemoryError."""

_log = logging.getLogger(__name__)


class Budget:
    """Tokens of one forward pass, shared by all passes of a run, so that those to come know what was too many."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._split: Split | None = None
        self._at_work: Tensor | None = None

    @classmethod
    def of(cls, given: "int | Budget") -> "Budget":
        """The budget itself, or a new one of so many tokens."""
        return given if isinstance(given, Budget) else cls(given)

    def parts(self, split: Split) -> Iterator[Int[Tensor, " b"]]:
        """The micro-batches that `split` makes of the tokens at hand. Yields Int[b]."""
        self._split = split
        for index in split(self.tokens):
            self._at_work = index
            yield index
        self._split = self._at_work = None

    def spend(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `step(*args, **kwargs)`, which loops over `parts`; repeated where memory runs out.

        Each repetition starts from the same random state with at most half the tokens, so that the result is that of a
        run which had the smaller budget from the start. A step that accumulates gradients clears them before it begins,
        so that it can be repeated.

        Raises TutelageError where a single row (or pair) is too large.
        """
        while True:
            random = _random_state()
            try:
                return step(*args, **kwargs)
            except (RuntimeError, MemoryError) as error:
                if self._at_work is None or not out_of_memory(error):
                    raise
            # Only here, behind the except block, does no traceback keep the tensors of the attempt alive.
            gc.collect()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            _set_random_state(random)
            self._lower()

    def _lower(self) -> None:
        """Halve the tokens until the micro-batch that was too large is split."""
        assert self._split is not None
        assert self._at_work is not None
        if len(self._at_work) == 1:
            raise TutelageError(
                "Memory ran out over a single example, which cannot be split. Shorten the examples (--max-length; in "
                "improve the prompts and --sampling.max-new-tokens), train an adapter (--lora.rank 8), or begin with a "
                "smaller model."
            )
        before, too_large = self.tokens, self._at_work
        while any(torch.equal(part, too_large) for part in self._split(self.tokens)):
            self.tokens //= 2
        self._split = self._at_work = None
        _log.warning(
            "Memory ran out with up to %s tokens at once: the pass is repeated with %s, and so are those to come.",
            f"{before:,}",
            f"{self.tokens:,}",
        )


def out_of_memory(error: BaseException) -> bool:
    """Whether this is how an allocator says that it has nothing left."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        words in str(error) for words in EXHAUSTED
    )


def automatic_budget(device: torch.device, dtype: torch.dtype, *models: nn.Module) -> int:
    """Tokens of one forward and backward pass through each of `models`, one after the other.

    What fits into half of the free memory:

        tokens = (½ · free − 12 · trainable − 2 · weights [bf16] − 12 · C) / bytes_per_token

    `trainable` weights have yet to get a gradient and two moments in float32; in bf16 autocast keeps a copy of all
    weights; C logits, a chunk of them or those of all tokens, exist up to three times (see `logprobs`). At least
    `FEWEST`, at most `MOST_ON_CPU` or `MOST_ON_GPU`, and a power of two, so that a little more or less memory gives the
    same run.

    On a processor no more than about

        tokens = (4 · weights + 12 · trainable, or `SMALL`, whichever is more) / bytes_per_token

    A pass whose activations are as large as weights, gradients and moments keeps the products busy; one of twice the
    tokens was not faster, and would need half as much memory again.
    """
    half = dtype == torch.bfloat16
    on_cpu = device.type == "cpu"
    most = MOST_ON_CPU if on_cpu else MOST_ON_GPU
    vocabulary = max(int(inner(model).config.get_text_config().vocab_size) for model in models)
    weights = sum(p.numel() for model in models for p in model.parameters())
    trainable = sum(p.numel() for model in models for p in model.parameters() if p.requires_grad)
    held = 12 * min(CHUNK_ELEMENTS, most * vocabulary) + 12 * trainable + (2 * weights if half else 0)
    each = max(bytes_per_token(model, dtype) for model in models)
    fitting = int(min(max((SHARE * available_memory(device) - held) / each, FEWEST), most))
    tokens = 1 << (fitting.bit_length() - 1)
    if on_cpu:
        enough = max(4 * weights + 12 * trainable, SMALL) / each
        tokens = min(tokens, max(FEWEST, 1 << round(math.log2(enough))))
    return tokens


def bytes_per_token(model: nn.Module, dtype: torch.dtype) -> int:
    """What a forward pass keeps of every token for the backward pass, estimated from the model's shape:

        layers · (16 · hidden + 5 · feed-forward) · bytes of an activation

    Llama, Qwen3 and GPT-2 keep about 10 · hidden + 4 · feed-forward of a token per layer: the states around two norms,
    queries, keys and values before and after their rotation, the attention's result; the gate, its activation, the
    other branch and their product. The rest is room for the gradients on their way back. In bf16 norms stay in
    float32, so that an activation has 2.5 bytes on average instead of 4.
    """
    settings = inner(model).config.get_text_config()
    hidden = int(settings.hidden_size)
    names = ("intermediate_size", "ffn_dim", "n_inner")
    inside = next((int(size) for name in names if (size := getattr(settings, name, None))), 4 * hidden)
    each = 2.5 if dtype == torch.bfloat16 else 4
    return int(int(settings.num_hidden_layers) * (16 * hidden + 5 * inside) * each)


def _random_state() -> tuple[Tensor, list[Tensor]]:
    """Of the processor and, where one is in use, of every GPU."""
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state(), on_gpu


def _set_random_state(state: tuple[Tensor, list[Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])
