"""Hidden states of rows. Distinct prompts and their common prefixes (such as a system prompt) are read once, padding
never.

The model must support it (see `Capabilities.shares_prompts`).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tutelage.core.batch import Rows
from tutelage.core.rows import distinct
from tutelage.engines.cpu.activation_cache import ActivationCache
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.forward_pass import LayerCache, attention_by, forward_pass, packed_states
from tutelage.engines.cpu.fused.embedding import rows_at
from tutelage.engines.cpu.packed_attention import packed_attention
from tutelage.engines.cpu.products import products
from tutelage.engines.packing import PackedRows, pack


def states_before(capabilities: Capabilities, rows: Rows, cache: ActivationCache | None = None) -> Float[Tensor, "M d"]:
    """The hidden state before each of the M completion tokens of all rows, row by row.

    Activations of these rows in `cache` are reused.
    """
    half = torch.is_autocast_enabled(rows.prompt.device.type)
    apart = half or products().is_invariant  # separate as in decoding, for bit-identical results
    packed = pack(rows.contexts, with_last=False, apart=apart, common=True)
    activations = None if cache is None else cache.lookup(rows.contexts, packed)
    return _states(capabilities, packed, packed.before[rows.places], activations)


def states_at_end(capabilities: Capabilities, rows: Rows) -> Float[Tensor, "B d"]:
    """The hidden state at the last token of each row. Equal rows are read once."""
    unique, same = distinct(rows)
    if len(unique) < len(rows):
        return rows_at(states_at_end(capabilities, rows.rows(unique)), same)
    packed = pack(rows, with_last=True, common=True)
    return _states(capabilities, packed, packed.last, None)


def _states(
    capabilities: Capabilities, packed: PackedRows, index: Int[Tensor, " n"], kept: LayerCache | None
) -> Float[Tensor, "n d"]:
    """The states at `index` of packed rows; `index` may contain duplicates."""
    model = capabilities.model
    attending = attention_by(model, packed_attention(packed.layout))
    with capabilities.selecting(index) as places, forward_pass(activations=kept), attending:
        return rows_at(packed_states(model, packed.tokens, packed.positions), places)
