"""Hidden states of rows: every distinct prompt is read once, and so are the tokens that several prompts begin with (a
system prompt), and no padding, where the model's attention allows it.

Where it does not (see `attention_interface.supports`), every row is read by itself in a padded batch, with the same
result. A warning is logged once for each model.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from tutelage.core.batch import Rows
from tutelage.core.rows import RowList, distinct
from tutelage.engines.cpu.activation_cache import ActivationCache
from tutelage.engines.cpu.attention_interface import attention_by, supports, without_dropout
from tutelage.engines.cpu.fused.layer import FusedLayer, states_at
from tutelage.engines.cpu.fused.layer_cache import LayerCache, using_layer_cache
from tutelage.engines.cpu.packed_attention import packed_attention
from tutelage.engines.cpu.products import products
from tutelage.engines.network import inner, trunk
from tutelage.engines.packing import PackedRows, layout_of, pack

_log = logging.getLogger(__name__)
_warned: WeakSet[nn.Module] = WeakSet()
_selects_states: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def states_before(model: nn.Module, rows: Rows, cache: ActivationCache | None) -> Float[Tensor, "M d"]:
    """The hidden state before each of the M response tokens of all rows, row by row.

    Activations of these rows that `cache` keeps are taken from there. `shares_prompts` must hold.
    """
    half = torch.is_autocast_enabled(rows.prompt.device.type)
    apart = half or products().is_invariant  # as decoding has prompts and answers, for the same bits
    packed = pack(rows, with_last=False, apart=apart, common=True)
    kept = None if cache is None else cache.lookup(rows, packed)
    return _packed_states(model, packed, packed.before[rows.mask], kept)


def states_at_end(model: nn.Module, rows: Rows) -> Float[Tensor, "B d"]:
    """The hidden state at the last token of each row; equal rows are read once. `shares_prompts` must hold."""
    kept, same = distinct(rows)
    if len(kept) < len(rows):
        return embedding(same, states_at_end(model, rows.rows(kept)))
    packed = pack(rows, with_last=True, common=True)
    return _packed_states(model, packed, packed.last, None)


def shares_prompts(model: nn.Module, rows: Rows | RowList) -> bool:
    """Whether the model can read the rows as one packed sequence, with every distinct prompt once."""
    longest = int(rows.lengths().max()) if len(rows) else 0
    if supports(model, longest):
        return True
    if model not in _warned:
        _warned.add(model)
        _log.warning(
            "%s does more than plain attention over %d tokens (a window, a cap, a bias or an attention of its own), so "
            "prompts are read once for each response. Results are the same.",
            type(inner(model)).__name__,
            longest,
        )
    return False


def _packed_states(model: nn.Module, packed: PackedRows, index: Tensor, kept: LayerCache | None) -> Tensor:
    """The states at `index` Int[n] of packed rows; entries of `index` may be equal. Float[n, d]"""
    cache: AbstractContextManager[None] = nullcontext() if kept is None else using_layer_cache(kept)
    with selecting(model, index) as places, attention_by(model, packed_attention(packed.layout)), cache:
        return embedding(places, _states(model, packed.tokens, packed.positions))


@contextmanager
def selecting(model: nn.Module, index: Int[Tensor, " n"]) -> Iterator[Int[Tensor, " n"]]:
    """Inside, a forward pass of a packed sequence returns the states of the tokens at `index` alone, where the last
    layer can compute them alone. Yields their places among the states that it returns; entries of `index` may be
    equal."""
    if not selects_states(model):
        yield index
        return
    wanted, places = index.unique(return_inverse=True)
    with states_at(trunk(model).layers[-1], wanted):
        yield places


def _states(model: nn.Module, tokens: Tensor, positions: Tensor) -> Tensor:
    """Last hidden states of tokens Int[N] at positions Int[N] in their rows: Float[N, d], or of those selected."""
    states: Tensor = trunk(model)(
        input_ids=tokens[None], position_ids=positions[None], use_cache=False
    ).last_hidden_state
    return states.squeeze(0)


def selects_states(model: nn.Module) -> bool:
    """Whether the last layer can compute the states of selected tokens alone and the trunk after it accepts that. Tried
    once for each model, on the layers' own weights."""
    whole = inner(model)
    if whole not in _selects_states:
        with without_dropout(model), torch.autocast(next(model.parameters()).device.type, enabled=False):
            _selects_states[whole] = _try_selecting(model)
    return _selects_states[whole]


@torch.no_grad()
def _try_selecting(model: nn.Module) -> bool:
    """Whether two selected states of five tokens equal those of a whole forward pass."""
    layers = getattr(trunk(model), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not isinstance(layers[-1], FusedLayer):
        return False
    device = next(model.parameters()).device
    tokens = torch.arange(1, 6, device=device) % int(inner(model).config.get_text_config().vocab_size)
    positions, wanted = torch.arange(5, device=device), torch.tensor([1, 4], device=device)
    with attention_by(model, packed_attention(layout_of([0], [5], [0], device=device))):
        expected = _states(model, tokens, positions)[wanted]
        try:
            with states_at(layers[-1], wanted):
                found = _states(model, tokens, positions)
        except (RuntimeError, IndexError, ValueError):
            return False
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
