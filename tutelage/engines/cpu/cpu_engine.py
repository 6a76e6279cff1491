"""The engine for CPUs: fused layers, packed sequences, compiled kernels, and a cache of activations.

Results equal those of `tutelage.engines.plain` up to rounding. Optimisations are enabled by trials of the model's
layers, not by a list of architectures; a model or module that fails its trial runs the code of the reference engine.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from tutelage.base.errors import TutelageError
from tutelage.core.batch import Pairs, Rows, TokenScores
from tutelage.core.rows import RowList, by_shared_tokens, common_tokens, distinct, shares
from tutelage.engines.cpu.activation_cache import ActivationCache
from tutelage.engines.cpu.allocator import (
    keep_freed_memory,
    limit_primitive_caches,
    release_fragments,
    release_freed_memory,
)
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.decoders import CpuDecoders, NativeDecoder, NativeLines, decoder_class
from tutelage.engines.cpu.decoding_weights import decoding_weights
from tutelage.engines.cpu.forward_pass import (
    LayerCache,
    attention_by,
    differentiable_twice,
    forward_pass,
    packed_states,
)
from tutelage.engines.cpu.fused import fuse, keep_states_in_float32
from tutelage.engines.cpu.head import KERNELS, differentiable_linear
from tutelage.engines.cpu.native.bindings import library
from tutelage.engines.cpu.native.build import multiplies_bf16
from tutelage.engines.cpu.packed_attention import packed_attention
from tutelage.engines.cpu.products import products
from tutelage.engines.cpu.weight_gradients import Gradients, total_norm
from tutelage.engines.interface import Decoders, RolloutSize
from tutelage.engines.lines import Lines
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.packing import PackedRows, pack
from tutelage.engines.plain import PlainEngine

_log = logging.getLogger(__name__)
TOLERANCE = 1e-3
"""Tolerance, in nats, of log-probabilities from cached activations; 7e-6 is typical."""


class CpuEngine(PlainEngine):
    """The implementation of `Engine` for CPUs. It replaces the modules that have a fused form.

    If the compiled kernels are not available, raises TutelageError with `insist`; otherwise logs one warning and uses
    torch's operations.
    """

    name = "cpu"
    kernels = KERNELS

    def __init__(self, backbone: Backbone, head: Head | None = None, *, insist: bool = False) -> None:
        if insist:
            library()
        keep_freed_memory()
        release_freed_memory()  # release memory left by earlier models
        limit_primitive_caches()
        fuse(backbone.model)
        keep_states_in_float32(backbone.model)
        super().__init__(backbone, head)
        self._capabilities = Capabilities(self.model, self.dtype)
        self._gradients = Gradients(self.model)
        self._cache: ActivationCache | None = None
        self._verified = False  # whether scores from cached activations were verified
        self._fits = True  # whether decoding weights fitted into memory last time
        whole = all(weight.dtype == torch.float32 for weight in self.model.parameters())  # as in training
        self._exact = self.dtype == torch.bfloat16 and not multiplies_bf16() and whole
        if self._exact:
            _log.warning(
                "This CPU has no bf16 instructions, so forward and backward passes compute in float32, which is "
                "faster. Decoding reads its weights in bf16."
            )

    @property
    def is_exact(self) -> bool:
        """See `Engine.is_exact`. True in bfloat16 if the weights of the compiled step, bit-identical to the layers, fit
        into memory."""
        return super().is_exact or (self._fits and self._decodes_as_it_scores())

    @property
    def extends_exactly(self) -> bool:
        """See `Engine.extends_exactly`. True if the lines are those of the compiled step, and it is bit-identical to
        the layers."""
        return self._fits and self._extends.get(NativeLines, True) and self._decodes_as_it_scores()

    def _decodes_as_it_scores(self) -> bool:
        """Whether decoding and scoring both run on the compiled kernels, and are bit-identical."""
        if self._exact or self.head.weight is None:
            return False
        return self._capabilities.decodes_as_it_scores(self.precision())

    def precision(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: bfloat16 arithmetic over float32 weights, if the CPU supports it."""
        return nullcontext() if self._exact else super().precision()

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """See `Engine.states`. Reads each distinct prompt once and reuses cached activations."""
        return self._states(rows, self._cache if torch.is_grad_enabled() else None)

    def _states(self, rows: Rows, cache: ActivationCache | None) -> Tensor:
        if not (self.is_scalar or self.head.is_known) or not self._capabilities.shares_prompts(rows):
            return super().states(rows)
        with self.precision():
            return states_before(self._capabilities, rows, cache)

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """See `Engine.last_states`. Reads each distinct prompt and row once."""
        if not self._capabilities.shares_prompts(rows):
            return super().last_states(rows)
        first, same = distinct(rows)
        if len(first) < len(rows):
            return embedding(same, self.last_states(rows.rows(first)))
        with self.precision():
            packed = pack(rows, with_last=True, common=True)
            return _states_at(packed.last, packed, self._capabilities)

    def score(self, rows: Rows, **options: Any) -> TokenScores:
        """See `Engine.score` for the `options`. Reads equal rows once, unless there is a reference. The first scores
        from cached activations are compared with those of a forward pass."""
        if options.get("reference") is None and len(rows):
            unique, same = distinct(rows)
            if len(unique) < len(rows):
                return self.score(rows.rows(unique), **options).rows(same)
        taken = self._tokens_taken()
        scores = super().score(rows, **options)
        if self._tokens_taken() > taken and not self._verified:
            self._verify(rows, scores.logp, options.get("temperature", 1.0))
        return scores

    @torch.no_grad()
    def _verify(self, rows: Rows, logp: Tensor, temperature: float) -> None:
        """Compare log-probabilities [B, R] from cached activations with those of a forward pass."""
        own = super().score(rows, temperature=temperature).logp
        error = float((own - logp).abs().max())
        if error > TOLERANCE:
            raise TutelageError(
                f"The activations kept from sampling give log-probabilities that differ by {error:.2g} nats from those "
                "of a forward pass. Use --engine plain, and please report the model's architecture."
            )
        self._verified = True

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """See `Engine.logits`."""
        twice = differentiable_twice() if torch.is_grad_enabled() else nullcontext()
        with twice, self.precision():
            return self._head_of_logits().logits(self._states(rows, None)) / temperature

    def _head_of_logits(self) -> Head:
        """The head with unrounded logits, as in `score` (see `head.linear`)."""
        weight, bias = self.head.weight, self.head.bias
        if weight is None or self.head.module is not None:
            return self.head
        linear = differentiable_linear if torch.is_grad_enabled() else self.kernels.linear
        return replace(self.head, module=linear(weight, bias))

    def split(self, batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """See `Engine.split`. Keeps rows of one prompt together if that saves reading it again."""
        rows = batch.both() if isinstance(batch, Pairs) else batch
        if self._capabilities.shares_prompts(rows):
            return by_shared_tokens(shares(batch), tokens, common_tokens(batch))
        return super().split(batch, tokens)

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """See `Engine.backward`. Accumulates gradients of matrices in place."""
        with self._gradients.in_place():
            loss.backward()

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """See `Engine.total_norm`."""
        return total_norm(gradients)

    def metrics(self) -> dict[str, float]:
        """`tokens/kept`: tokens of the last update whose activations were reused from sampling."""
        return {} if self._cache is None else {"tokens/kept": float(self._cache.taken)}

    @contextmanager
    def decoding(self, size: RolloutSize | None = None) -> Iterator[Decoders]:
        """See `Engine.decoding`. The context allows the decoding layout of the weights."""
        self._gradients.release()
        release_fragments()
        cache = None if size is None else self._cache_for(size)
        self._capabilities.try_decoding()
        with decoding_weights(self.model, self.head, self.dtype) as weights:
            self._fits = weights.fits
            decoders = CpuDecoders(self.backbone, self._capabilities, weights, self.cached_decoders)
            self._capabilities.try_decoders(decoders, self.backbone)
            yield replace(decoders, cache=cache)

    def _lines(self, decoders: Decoders, longest: int) -> Iterator[Lines[Any, Any]]:
        """See `PlainEngine._lines`. On the compiled step, or as the reference engine."""
        assert isinstance(decoders, CpuDecoders)
        weights, capabilities = decoders.weights, self._capabilities
        native = decoder_class(capabilities, weights.own_head, longest) is NativeDecoder and weights.fits
        if native and capabilities.compiled_step_agrees:
            yield NativeLines(decoders)
        yield from super()._lines(decoders.cached(), longest)

    def _cache_for(self, size: RolloutSize) -> ActivationCache | None:
        """The emptied activation cache; None if the model does not support it or its activations would not fit."""
        if self._cache is None:
            same = self.dtype == torch.float32 or self._decodes_as_it_scores()  # as those that the update needs
            self._cache = ActivationCache(self.model) if same and self._capabilities.keeps_activations() else None
        if self._cache is None or not self._cache.start(size, half=self.dtype == torch.bfloat16):
            return None
        return self._cache

    def _tokens_taken(self) -> int:
        return 0 if self._cache is None else self._cache.taken


def states_before(capabilities: Capabilities, rows: Rows, cache: ActivationCache | None = None) -> Float[Tensor, "M d"]:
    """The hidden state before each of the M completion tokens of all rows, row by row.

    Distinct prompts and their common prefixes (such as a system prompt) are read once, padding never, which the model
    must support (see `Capabilities.shares_prompts`). Activations of these rows in `cache` are reused.
    """
    half = torch.is_autocast_enabled(rows.prompt.device.type)
    apart = half or products().is_invariant  # separate as in decoding, for bit-identical results
    packed = pack(rows.contexts, with_last=False, apart=apart, common=True)
    activations = None if cache is None else cache.lookup(rows.contexts, packed)
    return _states_at(packed.before[rows.places], packed, capabilities, activations)


def _states_at(
    index: Tensor, packed: PackedRows, capabilities: Capabilities, activations: LayerCache | None = None
) -> Tensor:
    """The states of packed rows at `index`, Int[n], which may contain duplicates. Float[n, d]"""
    model = capabilities.model
    attending = attention_by(model, packed_attention(packed.layout))
    with capabilities.selecting(index) as places, forward_pass(activations=activations), attending:
        return embedding(places, packed_states(model, packed.tokens, packed.positions))
