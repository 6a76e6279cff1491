"""The reference engine: transformers' own modules on padded batches, on any device and in any precision.

It does not modify the model, compile kernels or keep state between calls. All other engines are tested against it. Rows
form a padded batch; on a GPU, rows with shared prompts are read as one packed sequence if that saves enough tokens (see
`PlainEngine.packs`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import embedding, pad

from tutelage.base import config
from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.core.rows import (
    RowList,
    before_each_response_token,
    distinct,
    left_padded,
    positions,
    split_by_length,
    spread,
)
from tutelage.engines.interface import Decoder, Decoders, OnToken, PromptBatch, PromptTokens, Reference, RolloutSize
from tutelage.engines.kv_cache import preallocated, rows_can_move
from tutelage.engines.logprobs import PLAIN_KERNELS, Head, HeadKernels, ValueHead, reference_divergence, token_scores
from tutelage.engines.network import Backbone, attention_window, cache_name, inner, precision, run_trunk, trunk
from tutelage.engines.packing import PackedRows, pack
from tutelage.engines.sampling import sample

SAVED = 0.3
"""Share of the tokens of a padded batch that packing must save, since its attention computes all pairs."""
LONGEST_PACKED = 8192
"""Maximum tokens of a packed sequence, whose mask is quadratic in them."""
DEPART_WHEN = 0.75
"""Share of unfinished lines below which finished lines are dropped from the cache, by copying it."""


class PlainEngine:
    """The reference implementation of `Engine`.

    `head` is the verified output head of a language model, or None if only the hidden states of the transformer are
    used.
    """

    name = "plain"
    kernels: HeadKernels = PLAIN_KERNELS

    def __init__(self, backbone: Backbone, head: Head | None = None) -> None:
        self.backbone, self.model = backbone, backbone.model
        self.device, self.dtype = backbone.device, backbone.dtype
        self.is_scalar = head is None
        self.head = head or Head()
        self.packs = self.device.type == "cuda"
        """Whether rows with shared prompts may be packed into one sequence with each prompt once."""
        self._packable: bool | None = None

    @property
    def is_exact(self) -> bool:
        """See `Engine.is_exact`."""
        return self.dtype.itemsize >= 4

    def precision(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: bfloat16 arithmetic over float32 weights, or nothing."""
        return precision(self.device, self.dtype)

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """See `Engine.states`. Logits [M, V] if the head of the model is unknown."""
        if self.packs and (packed := self._pack(rows)) is not None:
            with self.precision():
                return self._packed(packed)[packed.before[rows.places]]
        with self.precision():
            return before_each_response_token(self._padded(rows), rows)[rows.places]

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """See `Engine.last_states`. Reads equal rows once."""
        first, same = distinct(rows)
        if len(first) < len(rows):
            return embedding(same, self.last_states(rows.rows(first)))
        last = rows.prompt.shape[1] - 1 + rows.mask.sum(1)
        with self.precision():
            return self._padded(rows)[torch.arange(len(rows), device=last.device), last]

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
        """See `Engine.score`. The head runs only on completion positions, and logits exist one chunk at a time."""
        states = self.states(rows)
        with self.precision():
            logp, entropies = token_scores(
                states,
                self.head,
                rows.response[rows.places],
                temperature=temperature,
                entropy=entropy,
                kernels=self.kernels,
            )
        apart = None
        if reference is not None:
            apart = self._divergence(rows, states, temperature, reference, mixture)
        return TokenScores(
            logp=spread(logp, rows.mask),
            entropy=None if entropies is None else spread(entropies, rows.mask),
            value=None if value_head is None else spread(value_head(states.float()).squeeze(-1), rows.mask),
            divergence=None if apart is None else spread(apart, rows.mask),
        )

    def _divergence(
        self,
        rows: Rows,
        states: Tensor,
        temperature: float,
        reference: Callable[[], AbstractContextManager[Reference]],
        mixture: float,
    ) -> Tensor:
        """The divergence from the reference at the states of the completion tokens. Float[M, d] -> Float[M]"""

        def ref_logits(ref_states: Tensor) -> Tensor:
            with reference() as model:
                return model.head.logits(ref_states)

        with reference() as model:
            ref_states = model.states(rows)
        with self.precision():
            return reference_divergence(
                states, self.head, ref_states, ref_logits, mixture=mixture, temperature=temperature
            )

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """See `Engine.logits`. Uses twice-differentiable attention kernels."""
        kernels = sdpa_kernel(SDPBackend.MATH) if torch.is_grad_enabled() else nullcontext()
        with self.precision(), kernels:
            return self.head.logits(self.states(rows)) / temperature

    def split(self, batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """See `Engine.split`. Counts padding."""
        return split_by_length(batch, tokens)

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """See `Engine.backward`."""
        loss.backward()

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """See `Engine.total_norm`. Squares are summed in double precision."""
        norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]
        return torch.stack(norms).norm().float() if norms else torch.zeros(())

    def metrics(self) -> dict[str, float]:
        """See `Engine.metrics`. The reference engine has none."""
        return {}

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        end_ids: Sequence[int],
        seed: int,
        scored_first: frozenset[str] = frozenset(),
        rows_at_once: int | None = None,
        on_token: OnToken | None = None,
    ) -> Rollout:
        """See `Engine.generate` and `tutelage.engines.sampling.sample`."""
        limit = sampling.max_new_tokens
        first = frozenset(x for x, name in zip(prompts.tokens, prompts.ids, strict=True) if name in scored_first)
        size = RolloutSize(prompts.tokens, n, limit, first) if first else None
        with self.decoding(size) as decoders:
            return sample(
                self.backbone,
                decoders,
                prompts,
                n,
                sampling,
                end_ids=end_ids,
                seed=seed,
                rows_at_once=rows_at_once,
                on_token=on_token,
                kernels=self.kernels,
            )

    @contextmanager
    def decoding(self, size: RolloutSize | None = None) -> Iterator[Decoders]:
        """See `Engine.decoding`."""
        yield CachedDecoders(self.backbone, self.head)

    def _pack(self, rows: Rows) -> PackedRows | None:
        """The packed rows; None if that saves too little or the attention does not support such masks."""
        cells = rows.prompt_mask.numel() + rows.mask.numel()
        longest = int(rows.lengths().max()) if len(rows) else 0
        if longest > attention_window(self.model) or not self._reads_packed_sequences():
            return None
        packed = pack(rows, with_last=False)
        count = len(packed.tokens)
        return packed if count <= min((1 - SAVED) * cells, LONGEST_PACKED) else None

    def _packed(self, packed: PackedRows) -> Tensor:
        """Last hidden states of a packed sequence of N tokens, by one masked attention. Float[N, d]"""
        sequence, prefix = packed.layout.sequence, packed.layout.prefix
        visible = ((sequence[:, None] == sequence) | (prefix[:, None] == sequence)).tril()
        states: Tensor = trunk(self.model)(
            input_ids=packed.tokens[None],
            position_ids=packed.positions[None],
            attention_mask=visible[None, None],
            use_cache=False,
        ).last_hidden_state
        return states.squeeze(0)

    def _reads_packed_sequences(self) -> bool:
        """Whether packed and padded states agree; tested once, on two rows with the same prompt."""
        if self._packable is None:
            with torch.no_grad():
                self._packable = self._packed_equals_padded()
        return self._packable

    def _packed_equals_padded(self) -> bool:
        """Whether packed and padded states of two rows of seven tokens agree up to rounding."""
        if not (self.is_scalar or self.head.is_known):
            return False
        vocabulary = int(inner(self.model).config.get_text_config().vocab_size)
        prompt = torch.arange(3, 6, device=self.device).expand(2, 3) % vocabulary
        response = torch.arange(7, 15, device=self.device).view(2, 4) % vocabulary
        mask = torch.ones(2, 4, dtype=torch.bool, device=self.device)
        rows = Rows(prompt=prompt, prompt_mask=mask[:, :3], response=response, mask=mask)
        expected = before_each_response_token(self._padded(rows), rows)[rows.mask]
        packed = pack(rows, with_last=False)
        try:
            states = self._packed(packed)[packed.before[rows.mask]]
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
            return False
        largest = expected.abs().max()
        return bool((states - expected).abs().max() <= (1e-4 if self.dtype == torch.float32 else 0.05) * largest)

    def _padded(self, rows: Rows) -> Tensor:
        """Last hidden states of a padded batch, or logits if the head is unknown. Float[B, Q + R, d]"""
        tokens = torch.cat([rows.prompt, rows.response], 1)
        mask = torch.cat([rows.prompt_mask, rows.mask], 1)
        if self.is_scalar or self.head.is_known:
            return run_trunk(self.model, tokens, mask)
        logits: Tensor = self.model(input_ids=tokens, attention_mask=mask.long(), position_ids=positions(mask)).logits
        return logits


@dataclass(frozen=True)
class CachedDecoders:
    """Decoder factory of the reference engine."""

    backbone: Backbone
    head: Head

    def decoder(self, batch: PromptBatch, limit: int) -> Decoder:
        """See `Decoders.decoder`."""
        return CachedDecoder(self.backbone, self.head, batch, limit)

    def step(self, decoders: Sequence[Decoder], tokens: Sequence[Int[Tensor, " _"]]) -> list[Float[Tensor, "_ _"]]:
        """See `Decoders.step`."""
        return [decoder.step(own) for decoder, own in zip(decoders, tokens, strict=True)]

    def restore(self) -> None:
        """See `Decoders.restore`; does nothing."""


class CachedDecoder:
    """A decoder with a key/value cache: prompts padded on the left, one cache line per completion."""

    def __init__(self, backbone: Backbone, head: Head, batch: PromptBatch, limit: int) -> None:
        self.backbone, self.head, self.batch, self.device = backbone, head, batch, backbone.device
        filler = batch.prompts[0][0]  # any token: the mask excludes padding
        self.prompt, mask = left_padded(batch.prompts, filler, self.device)
        self.mask = pad(mask, (0, limit), value=True)
        self.filled = mask.shape[1]
        self.cache = preallocated(inner(backbone.model).config, self.filled + limit)
        self.cache_name = cache_name(trunk(backbone.model))
        self.rows_can_move = rows_can_move(self.cache)
        self.live = torch.arange(sum(batch.answers), device=self.device)  # cache line of each completion

    def start(self) -> Float[Tensor, "n V"]:
        """See `Decoder.start`. Reads a prompt once if its cache can be copied to the lines of its completions."""
        answers = torch.tensor(self.batch.answers, device=self.device)
        source = torch.arange(len(answers), device=self.device).repeat_interleave(answers)
        if not self.rows_can_move:
            self.prompt, self.mask = self.prompt[source], self.mask[source]
        mask = self.mask[:, : self.filled]
        logits = self._logits(self.prompt, positions(mask), mask)
        if self.rows_can_move:
            self.cache.batch_select_indices(source)
            self.mask, logits = self.mask[source], logits[source]
        return logits

    def step(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """See `Decoder.step`. Lines of finished completions read arbitrary tokens."""
        self.filled += 1
        mask = self.mask[:, : self.filled]
        of_lines = tokens.new_zeros(len(mask)).index_copy_(0, self.live, tokens)
        return self._logits(of_lines[:, None], mask.sum(1, keepdim=True) - 1, mask)[self.live]

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """See `Decoder.keep`. Lines are dropped from the cache if supported and enough of them are idle."""
        self.live = self.live[lines]
        if self.rows_can_move and len(self.live) < DEPART_WHEN * len(self.mask):
            self.cache.batch_select_indices(self.live)
            self.mask = self.mask[self.live]
            self.live = torch.arange(len(self.live), device=self.live.device)

    def close(self, rows: Rollout) -> None:
        """See `Decoder.close`."""

    def _logits(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        inputs: dict[str, Any] = {
            "input_ids": tokens,
            "attention_mask": mask.long(),
            "position_ids": positions,
            self.cache_name: self.cache,
            "use_cache": True,
        }
        return next_logits(self.backbone, self.head, last_states(self.backbone, self.head, inputs)[:, -1])


def last_states(backbone: Backbone, head: Head, inputs: dict[str, Any]) -> Float[Tensor, "B T d"]:
    """Last hidden states for the `inputs` of the model's forward pass; logits [B, T, V] if the head is unknown."""
    model: nn.Module = backbone.model
    with precision(backbone.device, backbone.dtype):
        if not head.is_known:
            logits: Tensor = model(**inputs).logits
            return logits
        states: Tensor = trunk(model)(**inputs).last_hidden_state
        return states


def next_logits(backbone: Backbone, head: Head, states: Float[Tensor, "n d"]) -> Float[Tensor, "n V"]:
    """Logits of the next token of each line, in the precision of the backbone."""
    with precision(backbone.device, backbone.dtype):
        return head.logits(states)
