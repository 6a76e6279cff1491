"""The reference engine on sharded weights: FSDP2, layer by layer.

Each rank holds its rows of every weight, gradient and moment. The weights of a layer are gathered for its forward pass
and again for its backward pass, which reduces and shards the gradients (Rajbhandari et al. 2020, arXiv 1910.02054,
stage 3; `torch.distributed.fsdp.fully_shard`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout, Rows, TokenScores
from tutelage.engines.interface import Reference
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone, head_of, inner, layers
from tutelage.engines.plain import PlainEngine
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.sharded_tensors import mesh_of, total_norm, whole


class Computation(nn.Module):
    """Root module of FSDP that runs functions of a model with the weights outside of layers gathered."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[], Any]) -> Any:
        """The result of the function: a tensor, or a tuple of tensors and None."""
        return function()


@dataclass(frozen=True)
class KnownReference:
    """A reference with precomputed states Float[M, d] of some rows and a gathered head."""

    known: Float[Tensor, "M d"]
    head: Head

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """The precomputed states; `rows` must be the same."""
        return self.known


class ShardedEngine(PlainEngine):
    """The implementation of `Engine` on shards. Every forward and backward pass is collective.

    The constructor shards the weights of `backbone.model`, except those in `whole`, over the ranks of `passes`. Raises
    TutelageError if the architecture does not declare its layers.
    """

    def __init__(
        self, backbone: Backbone, head: Head | None, passes: Passes, whole: Collection[nn.Parameter] = ()
    ) -> None:
        super().__init__(backbone, head)
        self.passes = passes
        mesh = mesh_of(backbone.device.type, passes.ranks.size, passes.in_shards)
        self.root: Any = _sharded(self.model, mesh, backbone.dtype, set(whole))
        self._forward = {grad: passes.add(partial(self._idle_forward, grad=grad)) for grad in (False, True)}
        self._backward = passes.add(self._idle_backward)
        self._whole_head = passes.add(self._gathered_head)
        self._inside = False

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        states: Tensor = self._together(lambda: super(ShardedEngine, self).states(rows))
        return states

    def last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        states: Tensor = self._together(lambda: super(ShardedEngine, self).last_states(rows))
        return states

    def score(
        self, rows: Rows, *, reference: Callable[[], AbstractContextManager[Reference]] | None = None, **requested: Any
    ) -> TokenScores:
        """See `Engine.score`. For a divergence, the reference runs in a separate pass beforehand."""
        known = None if reference is None else self._known(reference, rows)

        def tensors() -> tuple[Tensor | None, ...]:
            scores = super(ShardedEngine, self).score(rows, reference=known, **requested)
            return scores.logp, scores.entropy, scores.value, scores.divergence

        logp, entropies, values, divergence = self._together(tensors)
        return TokenScores(logp=logp, entropy=entropies, value=values, divergence=divergence)

    def _known(
        self, reference: Callable[[], AbstractContextManager[Reference]], rows: Rows
    ) -> Callable[[], AbstractContextManager[Reference]]:
        """The reference with precomputed states of the rows, since passes cannot be nested.

        The head of another model is gathered and stays so until the backward pass. A reference that shares the policy's
        weights (with the adapter disabled) uses the policy's head.
        """
        with reference() as model:
            states = model.states(rows)
            other = model.whole_head() if isinstance(model, ShardedEngine) and model is not self else None

        @contextmanager
        def known() -> Iterator[Reference]:
            with reference():
                yield KnownReference(states, other or self.head)

        return known

    def whole_head(self) -> Head:
        """The output head with weights gathered from all ranks. Collective.

        Raises TutelageError if the head is more than one matrix.
        """
        if self.head.module is not None:
            raise TutelageError(
                f"The output head of {type(inner(self.model)).__name__} is more than one matrix, so that "
                "penalty.kind=exact cannot be computed in shards: use penalty.kind=k3, or omit --shard."
            )
        with self.passes.take(self._whole_head):
            return self._gathered_head()

    def _gathered_head(self) -> Head:
        head = head_of(self.model) if self.head.is_known else self.head
        weight, bias = (None if part is None else whole(part) for part in (head.weight, head.bias))
        return replace(head, weight=weight, bias=bias)

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """See `Engine.logits`; second derivatives are not supported."""
        logits: Tensor = self._together(lambda: super(ShardedEngine, self).logits(rows, temperature=temperature))
        return logits

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """See `Engine.backward`. Gradients are summed over the ranks."""
        with self.passes.take(self._backward):
            loss.backward()

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """See `Engine.total_norm`. Collective."""
        return total_norm(gradients, self.passes.ranks)

    def generate(self, *arguments: Any, **named: Any) -> Rollout:
        """Raises RuntimeError; gather the weights to decode."""
        raise RuntimeError("decoding token by token through shards: use gathered() of the model around it")

    def _together(self, function: Callable[[], Any]) -> Any:
        """The result of a forward pass, synchronised over all ranks."""
        if self._inside:
            return function()
        with self.passes.take(self._forward[torch.is_grad_enabled()]):
            return self._computed(function)

    def _computed(self, function: Callable[[], Any]) -> Any:
        """The result of a function of the model, with weights gathered as needed.

        Weights outside of layers, including the head, stay gathered until the backward pass, if any.
        """

        def inside() -> Any:
            if self.head.is_known:
                self.head = head_of(self.model)
            return function()

        self._inside = True
        try:
            return self.root(inside)
        finally:
            self._inside = False
            if not torch.is_grad_enabled():
                self.root.reshard()

    def _idle_forward(self, *, grad: bool) -> None:
        """Take part in a forward pass of another rank with a single dummy token."""
        token = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        mask = torch.ones_like(token, dtype=torch.bool)
        rows = Rows(prompt=token, prompt_mask=mask, response=token, mask=mask)
        with torch.set_grad_enabled(grad):
            states = self._computed(lambda: PlainEngine.states(self, rows))
        if grad:
            self.passes.pending.append(states)

    def _idle_backward(self) -> None:
        """Take part in a backward pass of another rank with zero gradients."""
        torch.stack([states.sum() for states in self.passes.pending]).sum().mul(0.0).backward()
        self.passes.pending.clear()


def _sharded(model: nn.Module, mesh: DeviceMesh, dtype: torch.dtype, whole: set[nn.Parameter]) -> FSDPModule:
    """The model sharded by FSDP. Gradients are summed over ranks, not averaged; gradients of weights unused on a rank
    are 0.

    Layers are gathered in `dtype`, the dtype of the arithmetic; otherwise autocast would keep a copy of every gathered
    layer.
    """
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    units = [fully_shard(layer, mesh=mesh, mp_policy=precision) for layer in layers(model)]
    root = fully_shard(Computation(model), mesh=mesh, ignored_params=whole)
    for unit in (*units, root):
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    root.set_reduce_scatter_unused_params(True)
    return root
