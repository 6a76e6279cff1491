"""Hidden states of rows: every distinct prompt read once and no padding, where the model's attention allows it.

Where it does not (see `attention_interface.supports`), every row is read by itself in a padded batch, with the same
result. That is said once for each model.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from tutelage.core.batch import Rows
from tutelage.core.rows import distinct
from tutelage.engines.cpu.activation_cache import ActivationCache
from tutelage.engines.cpu.attention_interface import attention_by, supports, without_dropout
from tutelage.engines.cpu.fused.exchange import Exchange, exchanging
from tutelage.engines.cpu.fused.layer import LeanLayer, states_at
from tutelage.engines.cpu.tree_attention import tree_attention
from tutelage.engines.network import inner, trunk
from tutelage.engines.packing import Packed, pack, shape_of

_log = logging.getLogger(__name__)
_told: WeakSet[nn.Module] = WeakSet()
_narrow: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def states_before(model: nn.Module, rows: Rows, cache: ActivationCache | None) -> Tensor:
    """The state before each of the M response tokens of all rows, row by row. Float[M, d]

    Activations that `cache` holds of these rows are taken from there. Ask `shares_prompts` first.
    """
    packed = pack(rows, ends=False)
    line = None if cache is None else cache.line(rows, packed)
    return _line(model, packed, packed.before[rows.mask], line)


def states_at_end(model: nn.Module, rows: Rows) -> Tensor:
    """The state at the last token of each row; rows that are equal are read once. Float[B, d]

    Ask `shares_prompts` first.
    """
    kept, same = distinct(rows)
    if len(kept) < len(rows):
        return embedding(same, states_at_end(model, rows.rows(kept)))
    packed = pack(rows, ends=True)
    return _line(model, packed, packed.last, None)


def shares_prompts(model: nn.Module, rows: Rows) -> bool:
    """Whether the rows can be read with every prompt once."""
    longest = int(rows.lengths().max()) if len(rows) else 0
    if supports(model, longest):
        return True
    if model not in _told:
        _told.add(model)
        _log.warning(
            "%s does more than plain attention over %d tokens (a window, a cap, a bias or an attention of its own), so "
            "prompts are read once for each response. Results are the same.",
            type(inner(model)).__name__,
            longest,
        )
    return False


def _line(model: nn.Module, packed: Packed, places: Tensor, kept: Exchange | None) -> Tensor:
    """The states at `places` Int[n] of a line, some of which may be the same. Float[n, d]"""
    narrow: AbstractContextManager[None] = nullcontext()
    if (last := _last_layer(model)) is not None:
        wanted, places = places.unique(return_inverse=True)
        narrow = states_at(last, wanted)
    known: AbstractContextManager[None] = nullcontext() if kept is None else exchanging(kept)
    with attention_by(model, tree_attention(packed.shape)), narrow, known:
        return embedding(places, _states(model, packed.tokens, packed.places))


def _states(model: nn.Module, tokens: Tensor, places: Tensor) -> Tensor:
    """What the trunk says about tokens Int[N] at places Int[N] in their rows. Float[N, d], or of those asked for"""
    states: Tensor = trunk(model)(
        input_ids=tokens[None], position_ids=places[None], use_cache=False
    ).last_hidden_state
    return states.squeeze(0)


def _last_layer(model: nn.Module) -> LeanLayer | None:
    """The last layer, where it can give the states of some tokens alone and what follows it is content with them."""
    whole = inner(model)
    if whole not in _narrow:
        with without_dropout(model), torch.autocast(next(model.parameters()).device.type, enabled=False):
            _narrow[whole] = _last_can_be_narrow(model)
    return trunk(model).layers[-1] if _narrow[whole] else None


@torch.no_grad()
def _last_can_be_narrow(model: nn.Module) -> bool:
    """Tried on five tokens of which two are asked for."""
    layers = getattr(trunk(model), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not isinstance(layers[-1], LeanLayer):
        return False
    device = next(model.parameters()).device
    tokens = torch.arange(1, 6, device=device) % int(inner(model).config.get_text_config().vocab_size)
    places, wanted = torch.arange(5, device=device), torch.tensor([1, 4], device=device)
    with attention_by(model, tree_attention(shape_of([0], [5], [0], device=device))):
        expected = _states(model, tokens, places)[wanted]
        try:
            with states_at(layers[-1], wanted):
                found = _states(model, tokens, places)
        except (RuntimeError, IndexError, ValueError):
            return False
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
