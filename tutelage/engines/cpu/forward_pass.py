"""The context of a forward pass: what the layers of a model use besides their inputs and weights.

    with attention_by(model, function):
        trunk(model)(input_ids=..., position_ids=...)

Inside, each attention layer of `model` passes its queries, keys and values to `function` instead of attending itself,
in every architecture that uses transformers' attention interface. transformers builds no mask: the function alone
decides which tokens attend to which. Fused layers read the other fields of `ForwardPass` too.
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
"""The type of an attention function:

    (layer, query [B, H, T, w], key [B, K, S, w], value [B, K, S, w'], mask, *, scaling, **more)
    → ([B, T, H, w'], the log-sum-exp of the scores [T, H] of a single row, or None if it is not known)

Keys and values have a smaller number of heads K where several queries share them. `scaling` None is 1/√w.
"""

Attend = Callable[
    [nn.Module, Float[Tensor, "n H w"], Float[Tensor, "n K w"], Float[Tensor, "n K v"], float | None],
    Float[Tensor, "n H v"],
]
"""The type of an attention of one token of each line:

    (layer, query [n, H, w], key [n, K, w], value [n, K, w'], scaling) → [n, H, w']
"""

NAME = "tutelage"
"""The name under which `attend` is registered with transformers."""
HARMLESS = frozenset({"position_ids", "cache_position", "layer_idx", "use_cache", *CACHE_NAMES})
"""Arguments of the attention interface that do not change the result. `sliding_window` is checked separately."""


class LayerActivations(NamedTuple):
    """The activations of a layer for N tokens, in the order in which the compiled step stores them.

    All are float32 where products are. Where those are bfloat16, so are their operands and results: all but `lse`, `h`
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
        """The activations with `change` applied to each of them."""
        return type(self)(*map(change, self))


@runtime_checkable
class LayerCache(Protocol):
    """Cache of activations kept from another forward pass over the same tokens."""

    def lookup(self, layer: Any) -> LayerActivations | None:
        """The activations of `layer` for the tokens of this forward pass; None if they are not kept."""
        ...

    def record(self, layer: Any, activations: LayerActivations) -> None:
        """Keep the activations of `layer`. Called where no gradient is wanted and the log-sum-exp is known."""
        ...


@dataclass(frozen=True)
class ForwardPass:
    """The context of one forward pass."""

    attention: Attention | None = None
    """The function that attention layers call, inside `attention_by`."""
    twice: bool = False
    """Whether gradients are differentiated, so that layers compute with operations whose gradient has a gradient."""
    selection: tuple[nn.Module | None, Int[Tensor, " n"] | None] = (None, None)
    """A layer that returns the states of some tokens alone, and the index of these. It has to be the last: a layer
    after it would miss the other states."""
    activations: LayerCache | None = None
    """The cache that layers in two steps take their activations from, or record them in."""
    panels: Mapping[int, Any] = field(default_factory=dict)
    """The `PanelLinear` of linear layers that are laid out in bfloat16, by the address of the first weight of each. The
    weights do not change during the pass."""


_current: ContextVar[ForwardPass | None] = ContextVar("forward_pass", default=None)
_PLAIN = ForwardPass()


def current() -> ForwardPass:
    """The context of the innermost `forward_pass`."""
    return _current.get() or _PLAIN


@contextmanager
def forward_pass(**changes: Any) -> Iterator[None]:
    """Context in which fields of the context have other values. Other threads are not affected."""
    token = _current.set(replace(current(), **changes))
    try:
        yield
    finally:
        _current.reset(token)


def attend(
    layer: nn.Module, *tensors: Float[Tensor, "..."] | None, **more: Any
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."] | None]:
    """Call the function of the innermost `attention_by`. This is what attention layers call inside it."""
    function = current().attention
    assert function is not None
    return function(layer, *tensors, **more)


AttentionInterface.register(NAME, attend)  # a name without a mask function: transformers makes no mask for it


def of_one_token(attend: Attend) -> Attention:
    """`attend` as an attention function, for layers that read lines of one token."""

    def attention(
        layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, *, scaling: Any = None, **more: Any
    ) -> tuple[Tensor, None]:  # fmt: skip
        return attend(layer, query[:, :, 0], key[:, :, 0], value[:, :, 0], scaling)[:, None], None

    return attention


@contextmanager
def attention_by(model: nn.Module, function: Attention) -> Iterator[None]:
    """Context in which the attention layers of `model` (with or without a PEFT wrapper) call `function`.

    It may be nested. Other threads are not affected unless they run the same model at the same time. The model must
    support it (see `Capabilities.attends`): a layer that does not use the interface, or that needs more than the
    function does, is not detected here.
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
    """A configuration and those inside it, outermost first, since setting an outer one sets the inner ones too."""
    found = [settings]
    for key in settings.sub_configs:
        if getattr(settings, key, None) is not None:
            found += _configurations(getattr(settings, key))
    return found


def is_replaced(settings: PreTrainedConfig) -> bool:
    """Whether the layers that read this configuration are inside `attention_by`."""
    return bool(settings._attn_implementation == NAME)


def reads_cache(arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a forward pass hold a cache of keys and values."""
    return any(arguments.get(name) is not None for name in CACHE_NAMES)


def gradients_are_differentiated() -> bool:
    """Whether layers must use operations that torch can differentiate twice (see `differentiable_twice`), or forwards:
    compiled kernels would lose the tangents."""
    return current().twice or forward_ad._current_level >= 0


@contextmanager
def differentiable_twice() -> Iterator[None]:
    """Context in which layers compute with operations whose gradient has a gradient."""
    with forward_pass(twice=True), sdpa_kernel(SDPBackend.MATH):
        yield


def packed_states(
    model: nn.Module, tokens: Int[Tensor, " N"], positions: Int[Tensor, " N"]
) -> Float[Tensor, "n d"]:
    """Last hidden states of a packed sequence of tokens at positions in their rows; of the selected tokens alone where
    the pass has a selection."""
    states: Tensor = trunk(model)(
        input_ids=tokens[None], position_ids=positions[None], use_cache=False
    ).last_hidden_state
    return states.squeeze(0)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Context in which `model` is in evaluation mode: a trial must be repeatable, and must draw no random number."""
    training = [part for part in model.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
