"""The context of a forward pass: state that layers read besides their inputs and weights.

    with attention_by(model, function):
        trunk(model)(input_ids=..., position_ids=...)

In this context, each attention layer of `model` passes its queries, keys and values to `function`, in every
architecture that uses transformers' attention interface. transformers builds no mask: `function` alone decides which
tokens attend to which. Fused layers also read the other fields of `ForwardPass`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, PreTrainedConfig

from tutelage.engines.network import CACHE_NAMES, inner, trunk

Attention = Callable[..., tuple[Float[Tensor, "B T H v"], Float[Tensor, "T H"] | None]]
"""Signature of an attention function:

    (layer, query [B, H, T, w], key [B, K, S, w], value [B, K, S, w'], mask, *, scaling, **more)
    → ([B, T, H, w'], the log-sum-exp of the scores [T, H] of a single row, or None if it is not known)

With grouped queries, keys and values have fewer heads (K < H). `scaling` None is 1/√w.
"""

Attend = Callable[
    [nn.Module, Float[Tensor, "n H w"], Float[Tensor, "n K w"], Float[Tensor, "n K v"], float | None],
    Float[Tensor, "n H v"],
]
"""Signature of the attention of one token per line:

    (layer, query [n, H, w], key [n, K, w], value [n, K, w'], scaling) → [n, H, w']
"""

NAME = "tutelage"
"""Name under which `attend` is registered with transformers."""
HARMLESS = frozenset({"position_ids", "cache_position", "layer_idx", "use_cache", *CACHE_NAMES})
"""Arguments of the attention interface that do not change the result. `sliding_window` is checked separately."""


class LayerActivations(NamedTuple):
    """Activations of a layer for N tokens, in the order in which the compiled step stores them.

    All are float32 if products are. If products are bfloat16, so are their operands and results: all except `lse`, `h`
    and `y`.
    """

    query: Float[Tensor, "N H w"]  # rotated
    key: Float[Tensor, "N K w"]  # rotated
    value: Float[Tensor, "N K w"]
    attended: Float[Tensor, "N H w"]
    lse: Float[Tensor, "N H"]  # the log-sum-exp of the scores
    h: Float[Tensor, "N d"]
    gate: Float[Tensor, "N m"]
    up: Float[Tensor, "N m"]
    y: Float[Tensor, "N d"]

    def map(self, change: Callable[[Float[Tensor, "..."]], Float[Tensor, "..."]]) -> Self:
        """A copy with `change` applied to each activation."""
        return type(self)(*map(change, self))


@runtime_checkable
class LayerCache(Protocol):
    """Cache of activations from another forward pass over the same tokens."""

    def lookup(self, layer: Any) -> LayerActivations | None:
        """The activations of `layer` for the tokens of this forward pass; None if they are not cached."""
        ...

    def record(self, layer: Any, activations: LayerActivations) -> None:
        """Store the activations of `layer`. Called without gradients, with a known log-sum-exp."""
        ...


@dataclass(frozen=True)
class ForwardPass:
    """The context of one forward pass."""

    attention: Attention | None = None
    """The attention function set by `attention_by`."""
    twice: bool = False
    """Whether gradients are differentiated, so that layers must use twice-differentiable operations."""
    selection: tuple[nn.Module | None, Int[Tensor, " n"] | None] = (None, None)
    """A layer that returns only the states of some tokens, and their index. It must be the last layer, since later ones
    would lack the other states."""
    activations: LayerCache | None = None
    """The cache from which layers in two steps take their activations, or in which they record them."""
    panels: Mapping[int, Any] = field(default_factory=dict)
    """The `PanelLinear` of linear layers laid out in bfloat16, keyed by the address of their first weight. The weights
    must not change during the pass."""


_current: ContextVar[ForwardPass | None] = ContextVar("forward_pass", default=None)
_PLAIN = ForwardPass()


def current() -> ForwardPass:
    """The context of the innermost `forward_pass`."""
    return _current.get() or _PLAIN


@contextmanager
def forward_pass(**changes: Any) -> Iterator[None]:
    """Override fields of the context inside the block, in this thread only."""
    token = _current.set(replace(current(), **changes))
    try:
        yield
    finally:
        _current.reset(token)


def attend(
    layer: nn.Module, *tensors: Float[Tensor, "..."] | None, **more: Any
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."] | None]:
    """Call the function of the innermost `attention_by`; the attention implementation registered with transformers."""
    function = current().attention
    assert function is not None
    return function(layer, *tensors, **more)


AttentionInterface.register(NAME, attend)  # no mask function is registered, so transformers builds no mask


def of_one_token(attend: Attend) -> Attention:
    """`attend` as an attention function for lines of one token."""

    def attention(
        layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, *, scaling: Any = None, **more: Any
    ) -> tuple[Tensor, None]:  # fmt: skip
        return attend(layer, query[:, :, 0], key[:, :, 0], value[:, :, 0], scaling)[:, None], None

    return attention


@contextmanager
def attention_by(model: nn.Module, function: Attention) -> Iterator[None]:
    """Context in which the attention layers of `model` (with or without a PEFT wrapper) call `function`.

    May be nested. Other threads are affected only if they run the same model at the same time. The model must support
    it (see `Capabilities.attends`): unsupported layers are not detected here.
    """
    with attention_under(_configurations(inner(model).config), function):
        yield


@contextmanager
def attention_under(settings: Sequence[PreTrainedConfig], function: Attention) -> Iterator[None]:
    """`attention_by` for the layers that read these configurations."""
    before = [each._attn_implementation for each in settings]
    try:
        for each in settings:
            each._attn_implementation = NAME
        with forward_pass(attention=function):
            yield
    finally:
        for each, name in zip(settings, before, strict=True):
            each._attn_implementation = name


def _configurations(settings: PreTrainedConfig) -> list[PreTrainedConfig]:
    """A configuration and its nested ones, outermost first, since setting an outer one also sets the inner ones."""
    configurations = [settings]
    for key in settings.sub_configs:
        if getattr(settings, key, None) is not None:
            configurations += _configurations(getattr(settings, key))
    return configurations


def is_replaced(settings: PreTrainedConfig) -> bool:
    """Whether the layers that read this configuration are inside `attention_by`."""
    return bool(settings._attn_implementation == NAME)


def reads_cache(arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a forward pass include a key/value cache."""
    return any(arguments.get(name) is not None for name in CACHE_NAMES)


def gradients_are_differentiated() -> bool:
    """Whether layers must support double-backward (see `differentiable_twice`) or forward-mode differentiation, for
    which compiled kernels lack derivatives."""
    return current().twice or forward_ad._current_level >= 0


@contextmanager
def differentiable_twice() -> Iterator[None]:
    """Context in which layers use twice-differentiable operations."""
    with forward_pass(twice=True), sdpa_kernel(SDPBackend.MATH):
        yield


def packed_states(model: nn.Module, tokens: Int[Tensor, " N"], positions: Int[Tensor, " N"]) -> Float[Tensor, "n d"]:
    """Last hidden states of a packed sequence, with positions counted in each row; only those of the selected tokens if
    the pass has a selection."""
    states: Tensor = trunk(model)(
        input_ids=tokens[None], position_ids=positions[None], use_cache=False
    ).last_hidden_state
    return states.squeeze(0)
