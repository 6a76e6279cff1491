"""Two ways from tokens to the logits of the next ones, with the prompts read once either way.

`SharedDecoder` keeps one copy of each prompt's keys and values and never moves what it holds (`shared_prompts`).
It needs attention that can be replaced. `CachedDecoder` hands a cache to the model itself, for architectures that
attend in another way or keep something other than keys.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import pad

from tutelage.core.batch import Rollout
from tutelage.engines.cpu.activation_cache import ActivationCache, Recording
from tutelage.engines.cpu.attention_interface import Attend, attention_by, of_one_token, supports
from tutelage.engines.cpu.decoding_weights import DecodingWeights
from tutelage.engines.cpu.fused.exchange import exchanging
from tutelage.engines.cpu.fused.step import LeanStep, has_lean_step
from tutelage.engines.cpu.native.step import MOST_LINES, NativeStep, agrees, is_native, native_head
from tutelage.engines.cpu.native.weights import NativeWeights
from tutelage.engines.cpu.prompt_cache import SharedPrompts
from tutelage.engines.decoding import Decoder, PromptBatch
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.plain import CachedDecoder, last_states, next_logits

Step = Callable[[Tensor, Tensor, Attend], Tensor]
"""See `LeanStep`."""

READ_AT_ONCE = 4096  # prompt tokens in one forward pass: enough to keep a processor busy, few enough to hold
LEAVE_WHEN = 0.75  # rows leave a cache once fewer than this share is still at work: leaving copies the cache


class Decoding:
    """The decoders of one rollout: answers of up to `limit` tokens, whose activations are left in `cache`, if any."""

    def __init__(self, backbone: Backbone, head: Head, limit: int, cache: ActivationCache | None) -> None:
        self.backbone, self.head, self.limit, self.cache = backbone, head, limit, cache

    def try_model(self) -> None:
        """Try what the model is. To be called before its layers run on other weights; the answers are remembered."""
        if supports(self.backbone.model, 1):
            self._is_native()

    def select_decoder(self, batch: PromptBatch) -> "type[Decoder]":
        """The class of the best decoder that the model and the machine allow for a batch of prompts."""
        if not supports(self.backbone.model, batch.longest + self.limit):
            return CachedDecoder
        return NativeDecoder if self._is_native() else SharedDecoder

    def decoder(self, batch: PromptBatch, weights: DecodingWeights) -> Decoder:
        """A decoder of that class."""
        selected = self.select_decoder(batch)
        if selected is CachedDecoder:
            weights.for_any()
            return CachedDecoder(self.backbone, weights.head, batch, self.limit)
        if selected is SharedDecoder:
            return SharedDecoder(self.backbone, weights, batch, self.limit)
        return NativeDecoder(self.backbone, weights, batch, self.limit, self.cache)

    def _is_native(self) -> bool:
        model = self.backbone.model
        plain = self.backbone.dtype == torch.float32 and self.head.is_known
        return plain and has_lean_step(model) and is_native(model)


class SharedDecoder:
    """Prompts without padding, and one softmax over the prompt and the answer."""

    def __init__(self, backbone: Backbone, weights: DecodingWeights, batch: PromptBatch, limit: int) -> None:
        self.backbone, self.model, self.device = backbone, backbone.model, backbone.device
        self.weights, self.batch, self.limit = weights, batch, limit
        self.lean: Step | None = None
        self.version = -1  # of the weights that `lean` knows
        plain = backbone.dtype == torch.float32 and weights.own_head.is_known
        self.is_lean = plain and has_lean_step(self.model)
        lengths = [len(prompt) for prompt in batch.prompts]
        self.store = SharedPrompts(
            lengths, batch.answers, limit, dtype=backbone.dtype, device=backbone.device
        )

    def start(self) -> Tensor:
        """Read the prompts one behind the other, as many at a time as `READ_AT_ONCE` tokens hold."""
        self._prepare()
        logits = []
        for first, behind in _runs(self.batch.prompts, READ_AT_ONCE):
            prompts = self.batch.prompts[first:behind]
            self.store.reading = (first, behind)
            tokens = torch.tensor([token for prompt in prompts for token in prompt])
            where = torch.cat([torch.arange(len(prompt)) for prompt in prompts])
            last = torch.tensor([len(prompt) for prompt in prompts]).cumsum(0) - 1
            with attention_by(self.model, self.store.read), self._reading(first, behind):
                states = self._states(tokens[None], where[None])
            logits.append(next_logits(self.backbone, self.weights.head, states[0, last.to(states.device)]))
        answers = torch.tensor(self.batch.answers, device=self.device)
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
            with attention_by(self.model, of_one_token(self.store.attend)):
                states = self._states(tokens[:, None], where[:, None])[:, 0]
        return next_logits(self.backbone, self.weights.head, states)[:count]

    def keep(self, lines: Tensor) -> None:
        """See `SharedPrompts.keep`."""
        self.store.keep(lines)

    def close(self, rows: Rollout) -> None:
        """See `Decoder.close`."""

    def _prepare(self) -> None:
        self.weights.for_prompts()

    def _reading(self, first: int, behind: int) -> AbstractContextManager[None]:
        """Inside, these prompts are read."""
        return nullcontext()

    def _lines(self, count: int) -> int:
        return self.weights.for_answers(count)

    def _lean_step(self) -> Step:
        return LeanStep(self.model, self.weights.joint)

    def _states(self, tokens: Tensor, where: Tensor) -> Tensor:
        device = self.device
        given = {"input_ids": tokens.to(device), "position_ids": where.to(device), "use_cache": False}
        return last_states(self.backbone, self.weights.own_head, given)


class NativeDecoder(SharedDecoder):
    """With a step in C++, for processors in float32. More lines than that is good at are left to the other way, and so
    is a model whose weights have no room beside themselves (see `decoding_weights`).

    Raises TutelageError where it cannot be compiled.
    """

    def __init__(
        self,
        backbone: Backbone,
        weights: DecodingWeights,
        batch: PromptBatch,
        limit: int,
        cache: ActivationCache | None,
    ) -> None:
        super().__init__(backbone, weights, batch, limit)
        self.native: NativeStep | None = None
        self.recording: Recording | None = None
        if cache is not None and self._is_native(sum(batch.answers)):
            self.recording = cache.recording(self.store.lengths.tolist(), batch.answers, limit)

    def keep(self, lines: Tensor) -> None:
        """See `SharedPrompts.keep`."""
        super().keep(lines)
        if self.recording is not None:
            self.recording.keep(lines)

    def close(self, rows: Rollout) -> None:
        """See `Decoder.close`. The activations that were kept are named by the tokens of the rows."""
        if self.recording is not None:
            self.recording.name(rows)

    def _read(self, tokens: Tensor, where: Tensor) -> Tensor:
        if self._is_native(len(tokens)):
            if self.native is None:
                self.native, self.head = self._laid_out()
            if agrees(self.model, self.native, tokens, where):
                return self.head.logits(self.native(tokens, where))
            if self.recording is not None:
                self.recording.forget()
        return super()._read(tokens, where)

    def _is_native(self, count: int) -> bool:
        return count <= MOST_LINES and self.weights.fits

    def _prepare(self) -> None:
        """Layers in another form would serve the prompts alone, and are not what `LeanLayer` takes apart."""
        if self._is_native(sum(self.batch.answers)):
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
        weights.native = weights.native or NativeWeights(self.model)
        step = NativeStep(self.model, weights.native, self.store, self.recording)
        return step, native_head(weights.own_head, weights.native)


def _runs(prompts: Sequence[Sequence[int]], budget: int) -> Iterator[tuple[int, int]]:
    """Runs of prompts, first and behind the last, of up to `budget` tokens together, or of one longer prompt."""
    first, tokens = 0, 0
    for index, prompt in enumerate(prompts):
        if tokens and tokens + len(prompt) > budget:
            yield first, index
            first, tokens = index, 0
        tokens += len(prompt)
    yield first, len(prompts)
