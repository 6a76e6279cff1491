"""Trials of a model on a few tokens: what agrees with its own forward pass over rows without padding.

No engine has a list of architectures. A model is tried once when a policy is made (`verified_head`), and whatever
decodes it is tried once before its first completion (`decodes`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tutelage.base.errors import TutelageError
from tutelage.engines.interface import Decoders, PromptBatch
from tutelage.engines.lines import Lines
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone, head_of, inner, precision, run_trunk

TOLERANCE, HALF_TOLERANCE = 1e-4, 0.1
"""Tolerance of states and logits relative to the largest, for float32 and for bfloat16: about a hundred rounding errors
of 2⁻⁹, root mean square."""
MASKED = 1e30
"""Magnitude of a logit with which an architecture masks a token."""
SHARED = 5
"""Tokens that the two rows of `verified_head` have in common."""
LENGTHS, DRAWN = (3, 5), 3
"""Tokens of the prompts and of the completions of `decodes`."""
LONGEST = LENGTHS[-1] + DRAWN


def passes(trial: Callable[..., bool], *inputs: Any) -> bool:
    """The outcome of a trial; false if the model raises an exception other than for want of memory."""
    try:
        with torch.no_grad():
            return trial(*inputs)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # architectures raise various types
        return False


def agree(x: Float[Tensor, "..."], expected: Float[Tensor, "..."]) -> bool:
    """Whether two results of a model are equal up to rounding in their dtypes, and in which logits are masked."""
    if x.shape != expected.shape:
        return False
    half = min(x.dtype.itemsize, expected.dtype.itemsize) < 4
    x, expected = x.float(), expected.float()
    is_masked = ~(expected.abs() < MASKED)
    if not torch.equal(x[is_masked], expected[is_masked]):
        return False
    apart, largest = ((x - expected)[~is_masked].abs().amax(), expected[~is_masked].abs().amax())
    return bool(apart <= (HALF_TOLERANCE if half else TOLERANCE) * largest)


def tokens_of(model: nn.Module, numbers: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Token ids within the vocabulary of a model, on its device."""
    return numbers.to(next(model.parameters()).device) % int(inner(model).config.get_text_config().vocab_size)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Context in which `model` is in evaluation mode, so that trials are deterministic and consume no random
    numbers."""
    training = [part for part in model.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@torch.no_grad()
def verified_head(model: nn.Module) -> Head:
    """`network.head_of` if head(trunk(x)) equals the model's own logits, else an unknown head: an architecture may
    transform its logits in ways not stated in the configuration.

    Raises TutelageError if the model fails, or if tokens or their number change the logits before them: it is then no
    causal language model, or not a function of its tokens.
    """
    name = type(inner(model)).__name__
    if inner(model).config.model_type == "reformer":
        raise TutelageError(
            f"{name} has no gradient without dropout, so it is not supported: use another architecture."
        )
    numbers = torch.arange(1, 9).repeat(2, 1) * 7
    numbers[1, SHARED:] += 70
    try:
        tokens = tokens_of(model, numbers)
        with without_dropout(model):
            logits = model(input_ids=tokens, use_cache=False).logits
            beginning = model(input_ids=tokens[:, :SHARED], use_cache=False).logits
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise TutelageError(
            f"transformers cannot compute {name} on a row of tokens ({type(error).__name__}: "
            f"{(str(error) or 'no message').splitlines()[0][:200]}), so it is not supported: use another architecture."
        ) from error
    if not (agree(logits[1, :SHARED], logits[0, :SHARED]) and agree(beginning, logits[:, :SHARED])):
        raise TutelageError(
            f"{name} is not a causal language model as it is configured: a token changes the probabilities of those "
            "before it. Use a model that predicts each token from those before it (in an encoder, is_decoder in "
            "config.json)."
        )
    head = Head()

    def reproduces() -> bool:
        nonlocal head
        head = head_of(model)
        with without_dropout(model):
            return agree(head.logits(run_trunk(model, tokens)), logits)

    return head if passes(reproduces) else Head()


def decodes(decoders: Decoders, backbone: Backbone) -> bool:
    """Whether `decoders` give the logits of the model's own forward pass: two prompts, the first with two completions,
    one of which is dropped after its first token."""
    with without_dropout(backbone.model):
        return passes(_decodes, decoders, backbone)


def _decodes(decoders: Decoders, backbone: Backbone) -> bool:
    decoders.restore()  # to the weights of the forward pass
    lengths = LENGTHS if decoders.mixes_lengths else LENGTHS[-1:] * 2
    rows = tokens_of(backbone.model, torch.arange(3 * LONGEST).view(3, -1) * 7 + 3)
    rows[1, : lengths[0]] = rows[0, : lengths[0]]
    line, start = torch.arange(3), torch.tensor([lengths[0], lengths[0], lengths[1]])
    with precision(backbone.device, backbone.dtype):
        own = backbone.model(input_ids=rows, use_cache=False).logits
    prompts = tuple(tuple(rows[place, : start[place]].tolist()) for place in (0, 2))
    decoder = decoders.decoder(PromptBatch(prompts, (2, 1)), DRAWN)
    logits = [decoder.start(), decoder.step(rows[line, start])]
    rest = torch.tensor([0, 2])
    decoder.keep(rest.to(rows.device))
    logits.append(decoder.step(rows[rest, start[rest] + 1]))
    places = ((line, start - 1), (line, start), (rest, start[rest] + 1))
    return all(agree(x, own[place]) for x, place in zip(logits, places, strict=True))


def extends(lines: Lines[Any, Any], backbone: Backbone) -> bool:
    """Whether `lines` give the logits of the model's own forward pass: two rows, read in pieces of several lengths
    beside each other. No line remains."""
    with without_dropout(backbone.model):
        return passes(_extends, lines, backbone)


def _extends(lines: Lines[Any, Any], backbone: Backbone) -> bool:
    rows = tokens_of(backbone.model, torch.arange(2 * LONGEST).view(2, -1) * 7 + 3)
    with precision(backbone.device, backbone.dtype):
        own = backbone.model(input_ids=rows, use_cache=False).logits
    tokens, ends = rows.tolist(), (LENGTHS, (LENGTHS[0] + 1, LONGEST - 1), (LENGTHS[1] + 1, LONGEST))
    start, logits = (0, 0), list[Tensor]()
    for end in ends:
        logits.append(lines.extend({line: tokens[line][start[line] : end[line]] for line in (0, 1)}))
        start = end
    for line in (0, 1):
        lines.drop(line)
    index = torch.arange(2)
    return all(agree(x, own[index, torch.tensor(end) - 1]) for x, end in zip(logits, ends, strict=True))
