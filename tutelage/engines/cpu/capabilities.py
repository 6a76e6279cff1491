"""Features of the CPU engine that a model supports, determined by trial instead of a list of architectures."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from tutelage.core.batch import Rows
from tutelage.core.rows import RowList
from tutelage.engines.cpu.forward_pass import HARMLESS, attention_by, forward_pass, of_one_token, packed_states
from tutelage.engines.cpu.fused.form import TOLERANCE
from tutelage.engines.cpu.fused.layer import FusedLayer
from tutelage.engines.cpu.fused.torch_step import FusedStep, consists_of_fused_layers
from tutelage.engines.cpu.native.bindings import is_available, warn_disabled
from tutelage.engines.cpu.native.compiled_step import NativeStep, can_be_laid_out
from tutelage.engines.cpu.packed_attention import packed_attention
from tutelage.engines.interface import Decoders
from tutelage.engines.lines import ENDLESS
from tutelage.engines.network import Backbone, attention_window, context_of, has_forward_hooks, inner, trunk
from tutelage.engines.packing import layout_of
from tutelage.engines.trials import HALF_TOLERANCE, LONGEST, agree, decodes, passes, tokens_of, without_dropout

STEP_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: HALF_TOLERANCE}
"""Tolerance for rounding between the compiled step and the layers, relative to the largest state."""
_log = logging.getLogger(__name__)


class Capabilities:
    """Capabilities of `model` with arithmetic in `dtype`, each determined by one trial on first access.

    Decoding trials run on the layers' original weights, so they must precede the decoding layout (see `try_decoding`).
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        self.model, self.dtype = model, dtype
        self._compiled: bool | None = None  # whether the compiled step agrees with the layers; None before the trial
        self._warned = False
        self.shares_caches = True
        """Whether the decoders of this engine give the logits of a forward pass; true before the trial."""
        self.lays_out = True
        """The same of the decoders of the reference engine on the decoding layout of the weights."""
        self._tried_decoders = False

    # Attention --------------------------------------------------------------------------------------------------------

    def attends(self, length: int) -> bool:
        """Whether, on up to `length` tokens, the model mixes tokens only by plain attention through the interface:
        softmax(scaling · Q Kᵀ) V over all earlier positions. False with shorter windows, capped scores, a bias, a sink,
        a recurrence or a convolution.

        The trial packs two short sequences into one row, separated only by the attention function, and compares their
        states with those computed separately.
        """
        if any(getattr(part, "gradient_checkpointing", False) for part in inner(self.model).modules()):
            return False  # the second forward pass would run after the function was reset
        return length <= self._reach

    @cached_property
    def _reach(self) -> float:
        """Longest sequence on which the attention is plain; 0 if it is not plain or cannot be replaced."""
        probe = _Probe()
        with without_dropout(self.model), _without_autocast(self.model):
            is_plain = passes(_packs, self.model, probe)
        return min(probe.reach, attention_window(self.model)) if is_plain else 0

    def shares_prompts(self, rows: Rows | RowList) -> bool:
        """Whether the model can read the rows as one packed sequence with every distinct prompt once. Logs one warning
        if it cannot."""
        longest = int(rows.lengths().max()) if len(rows) else 0
        if self.attends(longest):
            return True
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s does more than plain attention over %d tokens (a window, a cap, a bias or an attention of its "
                "own), so prompts are read once for each response. Results are the same.",
                type(inner(self.model)).__name__,
                longest,
            )
        return False

    # Selected states --------------------------------------------------------------------------------------------------

    @cached_property
    def selects_states(self) -> bool:
        """Whether the last layer can compute the states of selected tokens only, and the trunk accepts that."""
        with without_dropout(self.model), _without_autocast(self.model):
            return passes(_selects, self.model)

    @contextmanager
    def selecting(self, index: Int[Tensor, " n"]) -> Iterator[Int[Tensor, " n"]]:
        """Context in which a forward pass of a packed sequence returns only the states of the tokens at `index`, if the
        last layer supports it. Yields their indices in the returned states; `index` may contain duplicates."""
        if not self.selects_states:
            yield index
            return
        selection, places = index.unique(return_inverse=True)
        with forward_pass(selection=(trunk(self.model).layers[-1], selection)):
            yield places

    # Decoding ---------------------------------------------------------------------------------------------------------

    def try_decoding(self) -> None:
        """Run the decoding trials. Call it before the layers run on other weights."""
        if self.attends(1):
            self.has_compiled_step()
            _ = self.selects_states

    def try_decoders(self, decoders: Decoders, backbone: Backbone) -> None:
        """Try once which decoders give the logits of a forward pass: those with the compiled step, those that share
        prompts, or those of the reference engine on the decoding layout or on the original weights.

        An attention layer that is called twice, or reads the keys of another, agrees in a forward pass only.
        """
        if self._tried_decoders:
            return
        self._tried_decoders = True
        while not decodes(decoders, backbone):
            if self.shares_caches and self.attends(LONGEST):
                if self.has_compiled_step():
                    self._compiled = False
                    continue
                self.shares_caches = False
                _log.warning(
                    "The fast decoders of %s differ from its forward pass by more than %s, so the reference engine "
                    "decodes it: slower, and as it scores.",
                    type(inner(self.model)).__name__,
                    "rounding" if self.dtype == torch.float32 else "bf16 explains, unless it chose other experts",
                )
            else:
                self.lays_out = False
                return

    def has_fused_step(self) -> bool:
        """Whether `FusedStep` agrees with the model in float32, and the model has no hooks."""
        return self._has_fused_step and not any(map(has_forward_hooks, trunk(self.model).layers.modules()))

    @cached_property
    def _has_fused_step(self) -> bool:
        return consists_of_fused_layers(trunk(self.model)) and passes(_fused_step_agrees, self.model)

    def has_compiled_step(self) -> bool:
        """Whether the model has both a fused and a compiled step, on this machine and in this precision."""
        if not self.has_fused_step() or self._compiled is False:
            return False
        return can_be_laid_out(self.model, self.dtype) and is_available()

    @property
    def compiled_step_agrees(self) -> bool:
        """Whether the compiled step agreed with the layers in its trial."""
        return self._compiled is True

    @torch.no_grad()
    def try_compiled_step(self, step: NativeStep, tokens: Int[Tensor, " n"], positions: Int[Tensor, " n"]) -> bool:
        """Whether `step` agrees with the layers of the model on these tokens. Tested once.

        The step may be compiled for a CPU on which the tests never ran. Logs a warning if it differs.
        """
        if self._compiled is None:
            half = step.weights.half
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                expected = FusedStep(self.model, {})(tokens, positions, step.cache.attend)
            error = (step(tokens, positions) - expected).abs().max() / expected.abs().max()
            self._compiled = bool(error <= STEP_TOLERANCE[torch.bfloat16 if half else torch.float32])
            if not self._compiled:
                warn_disabled(
                    f"The compiled decoding step is not used: its states differ by {float(error):.1e} of the largest "
                    "from those of the model's layers."
                )
        return self._compiled

    def decodes_as_it_scores(self, precision: AbstractContextManager[Any]) -> bool:
        """Whether the compiled step is bit-identical to the layers in this precision."""
        if not self.attends(ENDLESS) or not self.has_compiled_step():
            return False
        with precision:
            return all(layer.decodes_as_it_scores() for layer in trunk(self.model).layers)

    def keeps_activations(self) -> bool:
        """Whether every layer runs in two steps and the compiled step can decode with shared prompts.

        Excludes models with norms of queries and keys, whose inputs would have to be stored too.
        """
        if not self.has_fused_step() or not self.attends(1):
            return False
        layers = list(trunk(self.model).layers)
        x = next(layers[0].parameters()).new_empty(1, 1, layers[0].self_attn.q_proj.weight.shape[1])
        return all(layer.products_of_steps(x) is not None and not layer.self_attn.norms_of_heads() for layer in layers)


def _without_autocast(model: nn.Module) -> Any:
    return torch.autocast(next(model.parameters()).device.type, enabled=False)


def _packs(model: nn.Module, probe: "_Probe") -> bool:
    """Whether the attention of `probe` keeps two sequences of a row apart, the second at the end of the context, where
    factors may depend on positions."""
    tokens = tokens_of(model, torch.arange(1, 9) * 7)[None]
    end = max(3, context_of(model) or 0)
    positions = torch.tensor([[0, 1, 2, 3, 4, end - 3, end - 2, end - 1]], device=tokens.device)
    run = trunk(model)
    apart = [
        run(input_ids=tokens[:, part], position_ids=positions[:, part], use_cache=False).last_hidden_state
        for part in (slice(0, 5), slice(5, 8))
    ]
    with attention_by(model, probe):
        together = run(input_ids=tokens, position_ids=positions, use_cache=False).last_hidden_state
    return agree(together, torch.cat(apart, 1))


class _Probe:
    """Causal attention within each sequence of a row that records the shortest window and rejects all other options."""

    def __init__(self) -> None:
        sequence = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
        self.seen = (sequence[:, None] == sequence).tril()
        self.reach = 0

    def __call__(
        self, layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
        *, scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None, **more: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        if any(x is not None and x is not False for name, x in more.items() if name not in HARMLESS):
            raise NotImplementedError
        if mask is not None or dropout:
            raise NotImplementedError
        self.reach = min(self.reach or ENDLESS, sliding_window or ENDLESS)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        grouped = query.unflatten(1, (key.shape[1], -1))
        scores = torch.einsum("bkgtw,bksw->bkgts", grouped, key).float() * scale
        probabilities = scores.masked_fill(~self.seen.to(scores.device), -torch.inf).softmax(-1).to(value.dtype)
        return torch.einsum("bkgts,bksw->btkgw", probabilities, value).flatten(2, 3), None


def _selects(model: nn.Module) -> bool:
    """Whether two selected states of five tokens equal those of a whole forward pass."""
    layers = getattr(trunk(model), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not isinstance(layers[-1], FusedLayer):
        return False
    tokens = tokens_of(model, torch.arange(1, 6))
    device = tokens.device
    positions, index = torch.arange(5, device=device), torch.tensor([1, 4], device=device)
    with attention_by(model, packed_attention(layout_of([0], [5], [0], device=device))):
        expected = packed_states(model, tokens, positions)[index]
        with forward_pass(selection=(layers[-1], index)):
            states = packed_states(model, tokens, positions)
    return states.shape == expected.shape and torch.allclose(states, expected, rtol=1e-4, atol=1e-5)


def _fused_step_agrees(model: nn.Module) -> bool:
    """Whether the fused step and the model agree on three lines of one token, one of them at the end of the context,
    with an attention that mixes no lines."""
    tokens = tokens_of(model, torch.tensor([3, 5, 7]))
    positions = torch.tensor([max(4, (context_of(model) or 0) - 1), 0, 2], device=tokens.device)

    def attend(layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        repeats = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
        share = (query * key).mul(scaling or 1.0).sigmoid()
        return share * value + (1 - share) * query

    with without_dropout(model):
        states = FusedStep(model, {})(tokens, positions, attend)
        with attention_by(model, of_one_token(attend)):
            own = trunk(model)(input_ids=tokens[:, None], position_ids=positions[:, None], use_cache=False)
    expected = own.last_hidden_state[:, 0]
    tolerance = TOLERANCE if expected.dtype.itemsize >= 4 else HALF_TOLERANCE
    return bool((states - expected).abs().max() <= tolerance * expected.abs().max())
