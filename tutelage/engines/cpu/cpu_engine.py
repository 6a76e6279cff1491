"""The engine for CPUs: fused layers, packed sequences, compiled kernels, and a cache of activations.

It computes what `tutelage.engines.plain` computes, up to rounding. Architectures are not taken from a list: the layers
of a model are tried. A model, or a part of one, that fails its trial is computed by the reference engine's code.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

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
from tutelage.engines.cpu.decoders import CpuDecoders
from tutelage.engines.cpu.decoding_weights import decoding_weights
from tutelage.engines.cpu.forward_pass import differentiable_twice
from tutelage.engines.cpu.fused import fuse, keep_states_in_float32
from tutelage.engines.cpu.head import KERNELS, differentiable_linear
from tutelage.engines.cpu.native.bindings import library
from tutelage.engines.cpu.native.build import multiplies_bf16
from tutelage.engines.cpu.states import states_at_end, states_before
from tutelage.engines.cpu.weight_gradients import Gradients, total_norm
from tutelage.engines.interface import Decoders, RolloutSize
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.plain import PlainEngine

_log = logging.getLogger(__name__)
TOLERANCE = 1e-3
"""Nats by which log-probabilities from kept activations may differ from those of a forward pass: 7e-6 is usual."""


class CpuEngine(PlainEngine):
    """The implementation of `Engine` for CPUs. It replaces the modules that have a fused form.

    With `insist`, raises TutelageError where the compiled kernels are not available. Without, one warning is logged and
    torch's operations are used.
    """

    name = "cpu"
    kernels = KERNELS

    def __init__(self, backbone: Backbone, head: Head | None = None, *, insist: bool = False) -> None:
        if insist:
            library()
        keep_freed_memory()
        release_freed_memory()  # what models before this one left would count in addition
        limit_primitive_caches()
        fuse(backbone.model)
        keep_states_in_float32(backbone.model)
        super().__init__(backbone, head)
        self._capabilities = Capabilities(self.model, self.dtype)
        self._gradients = Gradients(self.model)
        self._cache: ActivationCache | None = None
        self._verified = False  # whether scores from kept activations were compared with a forward pass
        self._fits = True  # whether the weights had room in memory when completions were last decoded
        self._exact = self.dtype == torch.bfloat16 and not multiplies_bf16() and _is_float32(self.model)
        if self._exact:
            _log.warning(
                "This processor has no products of bf16, which would take longer than those of float32: forward and "
                "backward passes compute in float32. Decoding reads its weights in bf16."
            )

    @property
    def is_exact(self) -> bool:
        """See `Engine.is_exact`. In bfloat16 it is where weights fit into memory for the compiled step, which computes
        what the layers compute."""
        return super().is_exact or (self._fits and self._decodes_as_it_scores())

    def _decodes_as_it_scores(self) -> bool:
        """Whether decoding and scoring in bfloat16 both compute in it, on the compiled kernels."""
        if self._exact or self.head.weight is None:
            return False
        return self._capabilities.decodes_as_it_scores(self.precision())

    def precision(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: bfloat16 arithmetic over float32 weights where the CPU has it."""
        return nullcontext() if self._exact else super().precision()

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """See `Engine.states`. Each distinct prompt is read once, and kept activations are not computed again."""
        return self._states(rows, self._cache if torch.is_grad_enabled() else None)

    def _states(self, rows: Rows, cache: ActivationCache | None) -> Tensor:
        if not (self.is_scalar or self.head.is_known) or not self._capabilities.shares_prompts(rows):
            return super().states(rows)
        with self.precision():
            return states_before(self._capabilities, rows, cache)

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """See `Engine.last_states`. Each distinct prompt is read once."""
        if not self._capabilities.shares_prompts(rows):
            return super().last_states(rows)
        with self.precision():
            return states_at_end(self._capabilities, rows)

    def score(self, rows: Rows, **options: Any) -> TokenScores:
        """See `Engine.score`, which has the `options`. Equal rows are read once, unless a reference reads along. The
        first scores from kept activations are compared with those of a forward pass."""
        if options.get("reference") is None and len(rows):
            kept, same = distinct(rows)
            if len(kept) < len(rows):
                return self.score(rows.rows(kept), **options).rows(same)
        taken = self._tokens_taken()
        scores = super().score(rows, **options)
        if self._tokens_taken() > taken and not self._verified:
            self._verify(rows, scores.logp, options.get("temperature", 1.0))
        return scores

    @torch.no_grad()
    def _verify(self, rows: Rows, logp: Tensor, temperature: float) -> None:
        """Compare log-probabilities [B, R] from kept activations with those of a forward pass."""
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
        """The head whose logits are rounded as those of `score`: not at all (see `head.linear`)."""
        weight, bias = self.head.weight, self.head.bias
        if weight is None or self.head.module is not None:
            return self.head
        linear = differentiable_linear if torch.is_grad_enabled() else self.kernels.linear
        return replace(self.head, module=linear(weight, bias))

    def split(self, batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """See `Engine.split`. Rows of one prompt stay together where that saves reading it again."""
        rows = batch.both() if isinstance(batch, Pairs) else batch
        if self._capabilities.shares_prompts(rows):
            return by_shared_tokens(shares(batch), tokens, common_tokens(batch))
        return super().split(batch, tokens)

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """See `Engine.backward`. Gradients of matrices are accumulated in place."""
        with self._gradients.in_place():
            loss.backward()

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """See `Engine.total_norm`."""
        return total_norm(gradients)

    def metrics(self) -> dict[str, float]:
        """`tokens/kept`: tokens of the last update whose activations were taken from sampling."""
        return {} if self._cache is None else {"tokens/kept": float(self._cache.taken)}

    @contextmanager
    def decoding(self, size: RolloutSize | None = None) -> Iterator[Decoders]:
        """See `Engine.decoding`. Inside, the weights can be laid out for decoding."""
        self._gradients.release()
        release_fragments()
        cache = None if size is None else self._cache_for(size)
        self._capabilities.try_decoding()
        with decoding_weights(self.model, self.head, self.dtype) as weights:
            self._fits = weights.fits
            yield CpuDecoders(self.backbone, self._capabilities, weights, cache)

    def _cache_for(self, size: RolloutSize) -> ActivationCache | None:
        """The cache of activations, emptied; None if the model's cannot be kept or would not fit."""
        half = self.dtype == torch.bfloat16
        if self._cache is None and self._keeps_activations():
            self._cache = ActivationCache(self.model)
        if self._cache is None or not self._cache.start(size, half=half):
            return None
        return self._cache

    def _keeps_activations(self) -> bool:
        """Whether the activations of sampling are those that the update needs, and can be kept."""
        same = self.dtype == torch.float32 or self._decodes_as_it_scores()
        return same and self._capabilities.keeps_activations()

    def _tokens_taken(self) -> int:
        return 0 if self._cache is None else self._cache.taken


def _is_float32(model: nn.Module) -> bool:
    """Whether all weights are float32, as they are where they are trained."""
    return all(weight.dtype == torch.float32 for weight in model.parameters())
