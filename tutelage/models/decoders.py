"""Two ways from tokens to the logits of the next ones, with the prompts read once either way.

`SharedDecoder` keeps one copy of each prompt's keys and values and never moves what it holds (`shared_prompts`).
It needs attention that can be replaced. `CachedDecoder` hands a cache to the model itself, for architectures that
attend in another way or keep something other than keys.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from tutelage.errors import TutelageError
from tutelage.models.activations import Activations, Recording
from tutelage.models.attention_interface import Attend, attention_by, of_one_token, supports
from tutelage.models.backbone import inner, trunk
from tutelage.models.cache import preallocated, rows_can_move
from tutelage.models.compiled_step import CompiledStep
from tutelage.models.decoding_weights import DecodingWeights, lines
from tutelage.models.lean.exchange import exchanging
from tutelage.models.lean.step import LeanStep, has_lean_step
from tutelage.models.logprobs import Head
from tutelage.models.native.bindings import library
from tutelage.models.native.step import MOST_LINES, NativeStep, agrees, is_native, native_head
from tutelage.models.native.weights import NativeWeights
from tutelage.models.policy import Policy, positions
from tutelage.models.rows import left_padded
from tutelage.models.shared_prompts import SharedPrompts

Step = Callable[[Tensor, Tensor, Attend], Tensor]
"""See `LeanStep`."""

READ_AT_ONCE = 4096  # prompt tokens in one forward pass: enough to keep a processor busy, few enough to hold
LEAVE_WHEN = 0.75  # rows leave a cache once fewer than this share is still at work: leaving copies the cache


@dataclass(frozen=True)
class Asked:
    """Different prompts, and the number of answers to each."""

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(map(len, self.prompts))


class Decoder(Protocol):
    """What reads tokens for answers that are being written. Lines are answers, prompt by prompt."""

    def record(self, kept: Activations) -> Recording | None:
        """Leave in `kept` what is computed from now on, or None where that is not at hand.

        For models of which it can be kept, before anything is read.
        """
        ...

    def start(self) -> Tensor:
        """Read the prompts: the logits of every answer's first token. Float[n, V]"""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each answer [n]: the logits of the next. Float[n, V]"""
        ...

    def keep(self, lines: Tensor) -> None:
        """Let the other lines leave. Int[n], ascending"""
        ...


def way_of_decoding(
    policy: Policy, asked: Asked, limit: int, compiled: bool | None = None
) -> type["SharedDecoder"] | type["CachedDecoder"]:
    """The best that the model and the machine allow for answers of up to `limit` tokens; `compiled` as in
    `config.Sampling`.

    The model may be tried for it, so ask before its layers run on other weights. Raises TutelageError where its step
    should be compiled and cannot be.
    """
    shared = supports(policy.model, asked.longest + limit)
    plain = SharedDecoder if shared else CachedDecoder
    native = policy.device.type == "cpu" and policy.dtype == torch.float32
    if compiled is False or not (compiled or native):
        return plain
    lean = shared and policy.head.is_known and has_lean_step(policy.model)
    if compiled is None:
        return NativeDecoder if lean and is_native(policy.model) else plain
    if not lean:
        raise TutelageError(
            f"--sampling.compile knows models of RMSNorm, rotary attention and SwiGLU, and "
            f"{type(inner(policy.model)).__name__} is not one over {asked.longest + limit} tokens: set it to false."
        )
    return NativeDecoder if native else CompiledDecoder


class SharedDecoder:
    """Prompts without padding, and one softmax over the prompt and the answer."""

    def __init__(self, policy: Policy, weights: DecodingWeights, asked: Asked, limit: int) -> None:
        self.policy, self.weights, self.asked, self.limit = policy, weights, asked, limit
        self.lean: Step | None = None
        self.version = -1  # of the weights that `lean` knows
        plain = policy.dtype == torch.float32 and policy.head.is_known
        self.is_lean = plain and has_lean_step(policy.model)
        lengths = [len(prompt) for prompt in asked.prompts]
        self.store = SharedPrompts(lengths, asked.answers, limit, dtype=policy.dtype, device=policy.device)

    def record(self, kept: Activations) -> Recording | None:
        """What a step computes on its way stays within it."""
        return None

    def start(self) -> Tensor:
        """Read the prompts one behind the other, as many at a time as `READ_AT_ONCE` tokens hold."""
        self._prepare()
        logits = []
        for first, behind in _runs(self.asked.prompts, READ_AT_ONCE):
            prompts = self.asked.prompts[first:behind]
            self.store.reading = (first, behind)
            tokens = torch.tensor([token for prompt in prompts for token in prompt])
            where = torch.cat([torch.arange(len(prompt)) for prompt in prompts])
            last = torch.tensor([len(prompt) for prompt in prompts]).cumsum(0) - 1
            with attention_by(self.policy.model, self.store.read), self._reading(first, behind):
                states = self._states(tokens[None], where[None])
            logits.append(_logits(self.policy, self.weights.head, states[0, last.to(states.device)]))
        answers = torch.tensor(self.asked.answers, device=self.policy.device)
        return torch.cat(logits).repeat_interleave(answers, 0)

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token of each answer."""
        return self._read(tokens, self.store.open())

    def _read(self, tokens: Tensor, where: Tensor) -> Tensor:
        """Tokens at positions, in a number of lines for which the layers are laid out."""
        count = len(tokens)
        idle = (0, self._lines(count) - count)
        tokens, where = pad(tokens, idle), pad(where, idle)
        if self.is_lean and self.version != self.weights.version:
            self.lean, self.version = self._lean_step(), self.weights.version
        if self.lean is not None:
            states = self.lean(tokens, where, self.store.attend)
        else:
            with attention_by(self.policy.model, of_one_token(self.store.attend)):
                states = self._states(tokens[:, None], where[:, None])[:, 0]
        return _logits(self.policy, self.weights.head, states)[:count]

    def keep(self, lines: Tensor) -> None:
        """See `SharedPrompts.keep`."""
        self.store.keep(lines)

    def _prepare(self) -> None:
        self.weights.for_prompts()

    def _reading(self, first: int, behind: int) -> AbstractContextManager[None]:
        """Inside, these prompts are read."""
        return nullcontext()

    def _lines(self, count: int) -> int:
        return self.weights.for_answers(count)

    def _lean_step(self) -> Step:
        return LeanStep(self.policy.model, self.weights.joint)

    def _states(self, tokens: Tensor, where: Tensor) -> Tensor:
        device = self.policy.device
        given = {"input_ids": tokens.to(device), "position_ids": where.to(device), "use_cache": False}
        return _states(self.policy, self.weights.own_head, given)


class CompiledDecoder(SharedDecoder):
    """With a step that torch.compile makes, in any precision."""

    def __init__(self, policy: Policy, weights: DecodingWeights, asked: Asked, limit: int) -> None:
        super().__init__(policy, weights, asked, limit)
        self.is_lean = True

    def _lines(self, count: int) -> int:
        self.weights.for_prompts()
        return lines(count)

    def _lean_step(self) -> Step:
        return CompiledStep(self.policy.model, self.policy.dtype)


class NativeDecoder(SharedDecoder):
    """With a step in C++, for processors in float32. More lines than that is good at are left to the other way, and so
    is a model whose weights have no room beside themselves (see `decoding_weights`).

    Raises TutelageError where it cannot be compiled.
    """

    def __init__(self, policy: Policy, weights: DecodingWeights, asked: Asked, limit: int) -> None:
        super().__init__(policy, weights, asked, limit)
        library()
        self.native: NativeStep | None = None
        self.recording: Recording | None = None

    def record(self, kept: Activations) -> Recording | None:
        """See `Decoder.record`. The step writes it where it belongs, if it is native from the first token on."""
        if self._is_native(sum(self.asked.answers)):
            self.recording = kept.recording(self.store.lengths.tolist(), self.asked.answers, self.limit)
        return self.recording

    def keep(self, lines: Tensor) -> None:
        """See `SharedPrompts.keep`."""
        super().keep(lines)
        if self.recording is not None:
            self.recording.keep(lines)

    def _read(self, tokens: Tensor, where: Tensor) -> Tensor:
        if self._is_native(len(tokens)):
            if self.native is None:
                self.native, self.head = self._laid_out()
            if agrees(self.policy.model, self.native, tokens, where):
                return self.head.logits(self.native(tokens, where))
            if self.recording is not None:
                self.recording.forget()
        return super()._read(tokens, where)

    def _is_native(self, count: int) -> bool:
        return count <= MOST_LINES and self.weights.fits

    def _prepare(self) -> None:
        """Layers in another form would serve the prompts alone, and are not what `LeanLayer` takes apart."""
        if self._is_native(sum(self.asked.answers)):
            self.weights.take_back()
        else:
            super()._prepare()

    def _reading(self, first: int, behind: int) -> AbstractContextManager[None]:
        if self.recording is None:
            return nullcontext()
        self.recording.reading = (first, behind)
        return exchanging(self.recording)

    def _laid_out(self) -> tuple[NativeStep, Head]:
        weights = self.weights
        weights.take_back()
        weights.native = weights.native or NativeWeights(self.policy.model)
        step = NativeStep(self.policy.model, weights.native, self.store, self.recording)
        return step, native_head(weights.own_head, weights.native)


class CachedDecoder:
    """Prompts padded on the left, and a cache with one line for each answer."""

    def __init__(self, policy: Policy, weights: DecodingWeights, asked: Asked, limit: int) -> None:
        weights.for_any()
        self.policy, self.head, self.asked = policy, weights.head, asked
        filler = asked.prompts[0][0]  # any token: the mask tells what is padding
        self.prompt, mask = left_padded(asked.prompts, filler, policy.device)
        self.mask = pad(mask, (0, limit), value=True)
        self.filled = mask.shape[1]
        self.cache = preallocated(inner(policy.model).config, self.filled + limit)
        self.together = rows_can_move(self.cache)
        self.live = torch.arange(sum(asked.answers), device=policy.device)  # each answer's line in the cache

    def record(self, kept: Activations) -> Recording | None:
        """Layers are called as they are, and tell nothing."""
        return None

    def start(self) -> Tensor:
        """Read each prompt once where a cache can be copied to the lines of its answers, else once for each."""
        answers = torch.tensor(self.asked.answers, device=self.policy.device)
        source = torch.arange(len(answers), device=self.policy.device).repeat_interleave(answers)
        if not self.together:
            self.prompt, self.mask = self.prompt[source], self.mask[source]
        mask = self.mask[:, : self.filled]
        logits = self._logits(self.prompt, positions(mask), mask)
        if self.together:
            self.cache.batch_select_indices(source)
            self.mask, logits = self.mask[source], logits[source]
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token of each answer; the lines of answers that have left read anything."""
        self.filled += 1
        mask = self.mask[:, : self.filled]
        every = tokens.new_zeros(len(mask)).index_copy_(0, self.live, tokens)
        return self._logits(every[:, None], mask.sum(1, keepdim=True) - 1, mask)[self.live]

    def keep(self, lines: Tensor) -> None:
        """Let lines leave the cache where that can be done and enough of them are idle."""
        self.live = self.live[lines]
        if self.together and len(self.live) < LEAVE_WHEN * len(self.mask):
            self.cache.batch_select_indices(self.live)
            self.mask = self.mask[self.live]
            self.live = torch.arange(len(self.live), device=self.live.device)

    def _logits(self, tokens: Tensor, where: Tensor, mask: Tensor) -> Tensor:
        given: dict[str, Any] = {"input_ids": tokens, "attention_mask": mask.long(), "position_ids": where}
        given |= {"past_key_values": self.cache, "use_cache": True}
        return _logits(self.policy, self.head, _states(self.policy, self.head, given)[:, -1])


def _states(policy: Policy, head: Head, given: dict[str, Any]) -> Tensor:
    """Last hidden states [B, T, d], or logits where that is what the head takes."""
    with policy.precision():
        if not head.is_known:
            logits: Tensor = policy.model(**given).logits
            return logits
        states: Tensor = trunk(policy.model)(**given).last_hidden_state
        return states


def _logits(policy: Policy, head: Head, states: Tensor) -> Tensor:
    with policy.precision():
        return head.logits(states)


def _runs(prompts: Sequence[Sequence[int]], budget: int) -> Iterator[tuple[int, int]]:
    """Runs of prompts, first and behind the last, of up to `budget` tokens together, or of one longer prompt."""
    first, tokens = 0, 0
    for index, prompt in enumerate(prompts):
        if tokens and tokens + len(prompt) > budget:
            yield first, index
            first, tokens = index, 0
        tokens += len(prompt)
    yield first, len(prompts)
