"""The reference engine: transformers' own modules on padded batches, on any device and in any precision.

It does not modify the model, compile kernels or keep state between calls. All other engines are tested against it. Rows
form a batch with padding on the right only, in which a causal model computes each row as if it were alone; on a GPU,
rows with shared prompts are read as one packed sequence if that saves enough tokens (see `PlainEngine.packs`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import embedding

from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.core.rows import (
    RowList,
    before_each_response_token,
    distinct,
    left_aligned,
    positions,
    split_by_length,
    spread,
)
from tutelage.engines.cached_decoders import CachedDecoders, Form, form_of_decoding
from tutelage.engines.cached_lines import CachedLines
from tutelage.engines.interface import Decoders, Reference, RolloutSize, SamplingJob
from tutelage.engines.lines import Lines
from tutelage.engines.logprobs import PLAIN_KERNELS, Head, HeadKernels, ValueHead, reference_divergence, token_scores
from tutelage.engines.network import Backbone, attention_window, precision, run_trunk, trunk
from tutelage.engines.packing import PackedRows, pack, visible_tokens
from tutelage.engines.sampling import sample
from tutelage.engines.trials import agree, extends, passes, tokens_of

SAVED = 0.3
"""Share of the tokens of a padded batch that packing must save, since its attention computes all pairs."""
LONGEST_PACKED = 8192
"""Maximum tokens of a packed sequence, whose mask is quadratic in them."""


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
        self._decoding_form: Form | None = None  # None before the trial
        self._extends: dict[type, bool] = {}  # whether each kind of lines passed its trial

    @property
    def is_exact(self) -> bool:
        return self.dtype.itemsize >= 4

    @property
    def extends_exactly(self) -> bool:
        """See `Engine.extends_exactly`. They agree up to rounding."""
        return False

    def precision(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: bfloat16 arithmetic over float32 weights, or nothing."""
        return precision(self.device, self.dtype)

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """See `Engine.states`. Logits [M, V] if the head of the model is unknown."""
        if self.packs and (packed := self._pack(rows)) is not None:
            with self.precision():
                return self._packed(packed)[packed.before[rows.places]]
        with self.precision():
            return self._states_before(rows)

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """See `Engine.last_states`. Reads equal rows once."""
        first, same = distinct(rows)
        return (
            self._last_states(rows) if len(first) == len(rows) else embedding(same, self._last_states(rows.rows(first)))
        )

    def _last_states(self, rows: Rows) -> Tensor:
        """`last_states` of distinct rows. Float[B, d]"""
        last = rows.lengths() - 1
        with self.precision():
            return self._aligned(rows)[torch.arange(len(rows), device=last.device), last]

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
                rows.contexts.response[rows.places],
                temperature=temperature,
                entropy=entropy,
                kernels=self.kernels,
            )
        apart = None
        if reference is not None:
            apart = self._divergence(rows, states, temperature, reference, mixture)
        values = None if value_head is None else value_head(states.float()).squeeze(-1)
        return scores_in_columns(rows, logp, entropies, values, apart)

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
        loss.backward()

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """See `Engine.total_norm`. Squares are summed in double precision."""
        norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]
        return torch.stack(norms).norm().float() if norms else torch.zeros(())

    def metrics(self) -> dict[str, float]:
        """See `Engine.metrics`. The reference engine has none."""
        return {}

    def generate(self, job: SamplingJob) -> Rollout:
        """See `Engine.generate` and `tutelage.engines.sampling.sample`."""
        prompts = job.prompts
        named = zip(prompts.tokens, prompts.ids, strict=True)
        first = frozenset(tokens for tokens, name in named if name in prompts.scored_first)
        size = RolloutSize(prompts.tokens, job.n, job.limit, first) if first else None
        with self.decoding(size) as decoders:
            return sample(self.backbone, decoders, job, self.kernels)

    @contextmanager
    def decoding(self, size: RolloutSize | None = None) -> Iterator[Decoders]:
        yield self.cached_decoders(self.head)

    def cached_decoders(self, head: Head) -> CachedDecoders:
        """Decoders with transformers' modules and a head that equals the model's. Raises TutelageError if the model
        cannot be decoded."""
        if self._decoding_form is None:
            self._decoding_form = form_of_decoding(self.backbone, self.head)
        return CachedDecoders(self.backbone, head, self._decoding_form)

    @contextmanager
    def lines(self, longest: int) -> Iterator[Lines[Any, Any] | None]:
        with self.decoding() as decoders:
            for lines in self._lines(decoders, longest):
                if type(lines) not in self._extends:
                    decoders.restore()  # to the weights of the forward pass
                    self._extends[type(lines)] = extends(lines, self.backbone)
                    lines.computed = 0
                if self._extends[type(lines)]:
                    yield lines
                    return
            yield None

    def _lines(self, decoders: Decoders, longest: int) -> Iterator[Lines[Any, Any]]:
        """The kinds of lines that may serve, fastest first, before their trial."""
        if isinstance(decoders, CachedDecoders) and decoders.form == "padded" and CachedLines.supports(self.backbone):
            yield CachedLines(decoders.backbone, decoders.head)

    def _pack(self, rows: Rows) -> PackedRows | None:
        """The packed rows; None if that saves too little or the attention does not support such masks."""
        rows = rows.contexts
        cells = rows.prompt_mask.numel() + rows.mask.numel()
        longest = int(rows.lengths().max()) if len(rows) else 0
        if self._packable is None:
            self._packable = passes(self._packed_equals_aligned)
        if longest > attention_window(self.model) or not self._packable:
            return None
        packed = pack(rows, with_last=False)
        count = len(packed.tokens)
        return packed if count <= min((1 - SAVED) * cells, LONGEST_PACKED) else None

    def _packed(self, packed: PackedRows) -> Tensor:
        """Last hidden states of a packed sequence of N tokens, by one masked attention. Float[N, d]"""
        visible = visible_tokens(packed.layout.sequence, packed.layout.prefix)
        states: Tensor = trunk(self.model)(
            input_ids=packed.tokens[None],
            position_ids=packed.positions[None],
            attention_mask=visible[None, None],
            use_cache=False,
        ).last_hidden_state
        return states.squeeze(0)

    def _packed_equals_aligned(self) -> bool:
        """Whether packed and separate states of two rows with the same prompt agree up to rounding; a trial."""
        if not (self.is_scalar or self.head.is_known):
            return False
        prompt = tokens_of(self.model, torch.arange(3, 6)).expand(2, 3)
        response = tokens_of(self.model, torch.arange(7, 15)).view(2, 4)
        mask = torch.ones(2, 4, dtype=torch.bool, device=self.device)
        rows = Rows(prompt=prompt, prompt_mask=mask[:, :3], response=response, mask=mask)
        packed = pack(rows, with_last=False)
        return agree(self._packed(packed)[packed.before[rows.places]], self._states_before(rows))

    def _states_before(self, rows: Rows) -> Tensor:
        """The states before each of the M completion tokens. Float[M, d]"""
        contexts = rows.contexts
        column = positions(torch.cat([contexts.prompt_mask, contexts.mask], 1))
        before = before_each_response_token(column, contexts)[rows.places]
        return self._aligned(contexts)[rows.places[0], before]

    def _aligned(self, rows: Rows) -> Tensor:
        """Last hidden states of each row, padded on the right, or logits if the head is unknown. Float[B, T, d],
        T the tokens of the longest row"""
        tokens = left_aligned(rows)
        if self.is_scalar or self.head.is_known:
            return run_trunk(self.model, tokens)
        logits: Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return logits


def scores_in_columns(
    rows: Rows,
    logp: Float[Tensor, " M"],
    entropy: Float[Tensor, " M"] | None,
    value: Float[Tensor, " M"] | None,
    divergence: Float[Tensor, " M"] | None,
) -> TokenScores:
    """Scores of the M completion tokens, row by row, in the columns of the rows."""
    more = (None if x is None else spread(x, rows.mask) for x in (entropy, value, divergence))
    return TokenScores(spread(logp, rows.mask), *more)
