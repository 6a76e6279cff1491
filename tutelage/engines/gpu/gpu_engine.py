"""The engine for one GPU: compiled layers on packed rows, a head in chunks of the vocabulary, decoding in one graph.

Rows with a common prompt are packed into one sequence without padding (see `span_attention`), layers are two compiled
functions on plain tensors (see `transformer`), and the head never holds all logits (see `chunked_head`). Completions
are sampled in fixed slots by one captured graph (see `slots`). All but the capture and the kernels of decoding runs on
a CPU by the same code.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.core.rows import RowList, by_shared_tokens, shares
from tutelage.engines.gpu.chunked_head import head_scores
from tutelage.engines.gpu.decoding_copy import TensorModel
from tutelage.engines.gpu.model_tensors import agreeing_form, detached, network_of
from tutelage.engines.gpu.sampler import SlotSampler, on_device
from tutelage.engines.gpu.span_attention import Spans
from tutelage.engines.gpu.transformer import (
    EAGER,
    LayerSteps,
    Network,
    NetworkForm,
    attention_inputs,
    forward,
    layer_output,
)
from tutelage.engines.interface import Decoders, Reference, SamplingJob
from tutelage.engines.lines import Lines
from tutelage.engines.logprobs import Head, ValueHead
from tutelage.engines.network import Backbone, UnsupportedModel, attention_window, inner, trunk
from tutelage.engines.packing import PackedRows, pack
from tutelage.engines.plain import PlainEngine, scores_in_columns
from tutelage.engines.plans.token_budget import SLOTS
from tutelage.engines.sampling import check_job

GRAPHS = 64
"""Maximum graphs of a compiled function: adapters, gradients and precisions of several models in one process."""
_log = logging.getLogger(__name__)


class GpuEngine(PlainEngine):
    """An `Engine` for one GPU.

    The reference engine computes models of another form, and rows beyond an attention window, with one warning for each
    reason. With `insist`, they raise TutelageError.
    """

    name = "gpu"

    def __init__(self, backbone: Backbone, head: Head | None = None, *, insist: bool = False) -> None:
        super().__init__(backbone, head)
        self._insist = insist
        self._form: NetworkForm | None = None
        self._reach = -1.0  # longest row that the engine computes; −1 before the trial
        self._frozen = [weight for weight in self.model.parameters() if not weight.requires_grad]
        self.sampler = SlotSampler(backbone)
        self._reasons: set[str] = set()  # of warnings
        self.steps = compiled_steps() if self.device.type == "cuda" else EAGER
        """The steps of a layer, compiled on a GPU."""
        if insist:
            self._reaches(1)

    # Rows -------------------------------------------------------------------------------------------------------------

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """See `Engine.states`. Reads each distinct prompt once, without padding."""
        network = self._network_for(rows)
        if network is None or not (self.is_scalar or self.head.is_known):
            return super().states(rows)
        return self._states(network, rows)

    def _states(self, network: Network, rows: Rows) -> Float[Tensor, "M d"]:
        packed = pack(rows.contexts, with_last=False)
        return self._packed_states(network, packed)[packed.before[rows.places]]

    def _last_states(self, rows: Rows) -> Float[Tensor, "B d"]:
        """See `PlainEngine._last_states`. Reads each distinct prompt once."""
        network = self._network_for(rows)
        if network is None:
            return super()._last_states(rows)
        packed = pack(rows, with_last=True)
        return self._packed_states(network, packed)[packed.last]

    def _packed_states(self, network: Network, packed: PackedRows) -> Float[Tensor, "N d"]:
        """Last hidden states of a packed sequence and its padding."""
        assert self._form is not None
        layout = packed.layout
        spans = Spans.padded(layout.sequence, layout.prefix, is_one=layout.count == 1)
        return forward(
            self._form,
            network,
            spans.pad(packed.tokens),
            *self._rotary(spans.pad(packed.positions)),
            spans.attention(self._form.scaling, self._form.width),
            self.steps,
            checkpointing=self.backbone.checkpointing and torch.is_grad_enabled(),
        )

    def _rotary(self, positions: Int[Tensor, " N"]) -> tuple[Float[Tensor, "N w"], Float[Tensor, "N w"]]:
        like = torch.zeros(1, device=self.device)
        with torch.autocast(self.device.type, enabled=False):
            cos, sin = trunk(self.model).rotary_emb(like, positions[None])
        return cos[0], sin[0]

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
        """See `Engine.score`. The divergence KL(π‖reference) comes from the same chunks of logits."""
        options: dict[str, Any] = {"temperature": temperature, "entropy": entropy}
        network = self._network_for(rows) if self.head.is_matrix else None
        if network is None:
            return super().score(rows, value_head=value_head, reference=reference, mixture=mixture, **options)
        states, apart, beside = self._states(network, rows), None, None
        if reference is not None:
            with reference() as other:
                if mixture == 1.0 and other.head.is_matrix:
                    beside = (self._operand(other.states(rows)), other.head)
            if beside is None:
                apart = self._divergence(rows, states, temperature, reference, mixture)
        with on_device(self.device):
            logp, entropies, same = head_scores(
                self._operand(states), self.head, rows.contexts.response[rows.places], reference=beside, **options
            )
        values = None if value_head is None else value_head(states.float()).squeeze(-1)
        return scores_in_columns(rows, logp, entropies, values, apart if beside is None else same)

    def _operand(self, states: Tensor) -> Tensor:
        return states.to(self.dtype)

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """See `Engine.logits`. Computed by the reference engine, whose operations are differentiable twice."""
        return self._plain.logits(rows, temperature=temperature)

    @cached_property
    def _plain(self) -> PlainEngine:
        return PlainEngine(self.backbone, None if self.is_scalar else self.head)

    def split(self, batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """See `Engine.split`. Counts distinct prompts once and no padding."""
        rows = batch.both() if isinstance(batch, Pairs) else batch
        if len(rows) and self._network_for(rows) is not None:
            return by_shared_tokens(shares(batch), tokens)
        return super().split(batch, tokens)

    # Sampling ---------------------------------------------------------------------------------------------------------

    def _lines(self, decoders: Decoders, longest: int) -> Iterator[Lines[Any, Any]]:
        """See `PlainEngine._lines`. None: the slots of the captured graph start together."""
        return iter(())

    def generate(self, job: SamplingJob) -> Rollout:
        """See `Engine.generate`. Rows are sampled in slots by a captured graph."""
        check_job(job, self.backbone)
        network = self._network(max(map(len, job.prompts.tokens)) + job.limit)
        crowded = job.on_token is not None and job.rows > SLOTS[-1]  # a step would not be one of all rows
        if network is None or not self.head.is_matrix or crowded:
            return super().generate(job)
        assert self._form is not None
        return self.sampler.sample(TensorModel(self._form, network, self.head, self._rotary, self.steps), job)

    # The model --------------------------------------------------------------------------------------------------------

    def _network_for(self, rows: Rows | RowList) -> Network | None:
        return self._network(int(rows.lengths().max()) if len(rows) else 0)

    def _network(self, longest: int) -> Network | None:
        """The tensors of the model with its adapter; None if the reference engine must compute rows of that length."""
        if not self._reaches(longest):
            if self._form is not None:
                self._refuse(f"a row has {longest} tokens and its attention window {int(self._reach)}")
            return None
        try:
            network = network_of(self.model)
        except UnsupportedModel as error:
            self._refuse(str(error))
            return None
        # without gradients as tensors: a compiled step is another graph for parameters
        return network if torch.is_grad_enabled() else detached(network)

    def _refuse(self, reason: str) -> None:
        """Warn once that the reference engine computes the model; raise TutelageError if this one must."""
        sentence = f"{type(inner(self.model)).__name__} is not computed by the gpu engine, since {reason}"
        if self._insist:
            raise TutelageError(f"{sentence}. Use --engine plain.")
        kind = reason.translate(str.maketrans("", "", "0123456789"))
        if kind not in self._reasons:
            self._reasons.add(kind)
            _log.warning("%s; the reference engine computes it.", sentence)

    def _reaches(self, longest: int) -> bool:
        if self._reach < 0:
            self._reach = self._try()
        return longest <= self._reach

    def _try(self) -> float:
        """The longest row for which the engine agrees with the model; 0 if it does not. Rounds the frozen matrices of a
        model with which it agrees."""
        try:
            if not (self.is_scalar or self.head.is_matrix):
                raise UnsupportedModel("its head is more than a matrix")
            self._form = agreeing_form(self.backbone, self._rotary)
        except UnsupportedModel as error:
            self._refuse(str(error))
            return 0
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # architectures raise various types
            self._refuse(f"its modules have another form ({type(error).__name__}: {error})".splitlines()[0])
            return 0
        if self.dtype == torch.bfloat16:
            round_matrices(self._frozen)
        return attention_window(self.model)


@cache
def compiled_steps() -> LayerSteps:
    """The steps of a layer, compiled once per process for any number of tokens."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, GRAPHS)
    return LayerSteps(_of_any_length(torch.compile(attention_inputs)), _of_any_length(torch.compile(layer_output)))


def _of_any_length(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose graph takes any number of tokens: the first dimension of all tensors after the layer."""

    def run(form: NetworkForm, layer: Any, *tensors: Tensor) -> Any:
        for x in tensors:
            torch._dynamo.maybe_mark_dynamic(x, 0)
        return step(form, layer, *tensors)

    return run


def round_matrices(frozen: Sequence[Float[Tensor, "..."]]) -> None:
    """Store frozen matrices in bf16, to which the arithmetic rounds them anyway. Norms and biases remain float32.

    `frozen` are those of the construction of the model: a reference freezes adapters for its pass.
    """
    for weight in frozen:
        if weight.dim() == 2 and weight.dtype == torch.float32:
            weight.data = weight.data.to(torch.bfloat16)
