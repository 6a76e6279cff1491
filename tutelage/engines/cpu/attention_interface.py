"""Replaces the attention of every architecture that uses transformers' attention interface.

    with attention_by(model, function):
        trunk(model)(input_ids=..., position_ids=...)

Inside, each attention layer of `model` passes its queries, keys and values to `function` instead of attending itself.
transformers builds no mask: the function alone decides which tokens attend to which.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, PreTrainedConfig

from tutelage.engines.network import CACHE_NAMES, attention_window, inner, trunk

Attention = Callable[..., tuple[Float[Tensor, "B T H v"], Float[Tensor, "T H"] | None]]
"""The type of an attention function:

    (layer, query [B, H, T, w], key [B, K, S, w], value [B, K, S, w'], mask, *, scaling, **more)
    → ([B, T, H, w'], the log-sum-exp of the scores [T, H] of a single row, or None where it is not known)

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

_function: ContextVar[Attention] = ContextVar("attention")
_twice: ContextVar[bool] = ContextVar("twice", default=False)
_reach: WeakKeyDictionary[nn.Module, float] = WeakKeyDictionary()
_ENDLESS = 1 << 62


def attend(
    layer: nn.Module, *tensors: Float[Tensor, "..."] | None, **more: Any
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."] | None]:
    """Call the function of the innermost `attention_by`. This is what attention layers call inside it."""
    return _function.get()(layer, *tensors, **more)


AttentionInterface.register(NAME, attend)  # a name without a mask function: transformers makes no mask for it


def of_one_token(attend: Attend) -> Attention:
    """`attend` as an attention function, for layers that read lines of one token."""

    def attention(
        layer: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float | None = None,
        **more: Any,
    ) -> tuple[Tensor, None]:
        return attend(layer, query[:, :, 0], key[:, :, 0], value[:, :, 0], scaling)[:, None], None

    return attention


@contextmanager
def attention_by(model: nn.Module, function: Attention) -> Iterator[None]:
    """Inside, the attention layers of `model` (with or without a PEFT wrapper) call `function`.

    It may be nested. Other threads are not affected unless they run the same model at the same time. `supports` must
    hold: a layer that does not use the interface, or that needs more than the function does, is not detected here.
    """
    with attention_under(_configurations(inner(model).config), function):
        yield


@contextmanager
def attention_under(settings: Sequence[PreTrainedConfig], function: Attention) -> Iterator[None]:
    """`attention_by` for the layers that read these configurations."""
    before = [each._attn_implementation for each in settings]
    token = _function.set(function)
    try:
        for each in settings:
            each._attn_implementation = NAME
        yield
    finally:
        _function.reset(token)
        for each, name in zip(settings, before, strict=True):
            each._attn_implementation = name


def is_replaced(settings: PreTrainedConfig) -> bool:
    """Whether the layers that read this configuration are inside `attention_by`."""
    return bool(settings._attn_implementation == NAME)


def reads_cache(arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a forward pass hold a cache of keys and values."""
    return any(arguments.get(name) is not None for name in CACHE_NAMES)


def gradients_are_differentiated() -> bool:
    """Whether layers must use operations that torch can differentiate twice (see `differentiable_twice`), or forwards:
    compiled kernels would lose the tangents."""
    return _twice.get() or forward_ad._current_level >= 0


@contextmanager
def differentiable_twice() -> Iterator[None]:
    """Inside, layers compute with operations whose gradient has a gradient."""
    token = _twice.set(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        _twice.reset(token)


def supports(model: nn.Module, length: int) -> bool:
    """Whether the only token mixing of `model` on up to `length` tokens is plain attention through the interface:
    softmax(scaling · Q Kᵀ) V over all earlier positions. It is not where a window is shorter, scores are capped, or
    there is a bias, a sink, a recurrence or a convolution.

    Architectures are not taken from a list. Each model is tried once: two short sequences are put into one row and kept
    apart by the function alone, and must give the states that they give by themselves.
    """
    whole = inner(model)
    if any(getattr(part, "gradient_checkpointing", False) for part in whole.modules()):
        return False  # the second forward pass would happen after the function was reset
    if whole not in _reach:
        with without_dropout(model), torch.autocast(next(model.parameters()).device.type, enabled=False):
            _reach[whole] = _tried_reach(model)
    return length <= _reach[whole]


def grouped(query: Float[Tensor, "B H T w"], key: Float[Tensor, "B K S w"]) -> Float[Tensor, "B K r T w"]:
    """Queries grouped by the head of keys that r = H/K of them share."""
    return query.unflatten(1, (key.shape[1], -1))


def _configurations(settings: PreTrainedConfig) -> list[PreTrainedConfig]:
    """A configuration and those inside it, outermost first, since setting an outer one sets the inner ones too."""
    found = [settings]
    for key in settings.sub_configs:
        if getattr(settings, key, None) is not None:
            found += _configurations(getattr(settings, key))
    return found


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Inside, `model` is in evaluation mode: a trial must be repeatable, and must draw no random number."""
    training = [part for part in model.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@torch.no_grad()
def _tried_reach(model: nn.Module) -> float:
    """The longest sequence on which the attention of `model` is plain, 0 where it is not or cannot be replaced."""
    vocabulary = int(inner(model).config.get_text_config().vocab_size)
    device = next(model.parameters()).device
    tokens = (torch.arange(1, 9, device=device) * 7 % vocabulary)[None]
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2]], device=device)
    probe = _Probe(torch.tensor([0, 0, 0, 0, 0, 1, 1, 1], device=device))
    run = trunk(model)
    try:
        apart = [
            run(input_ids=tokens[:, part], position_ids=positions[:, part], use_cache=False).last_hidden_state
            for part in (slice(0, 5), slice(5, 8))
        ]
        with attention_by(model, probe):
            together = run(input_ids=tokens, position_ids=positions, use_cache=False).last_hidden_state
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        return 0
    expected = torch.cat(apart, 1).float()
    tolerance = 1e-4 if together.dtype in (torch.float32, torch.float64) else 0.1
    if not (together.float() - expected).abs().max() <= tolerance * expected.abs().max():
        return 0
    return min(probe.reach, attention_window(model))


class _Probe:
    """Causal attention within each sequence of a row, which notes the shortest window and refuses all other options."""

    def __init__(self, sequence: Tensor) -> None:
        self.seen = (sequence[:, None] == sequence).tril()
        self.reach = 0

    def __call__(
        self,
        layer: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        **more: Any,
    ) -> tuple[Tensor, None]:
        if any(x is not None and x is not False for name, x in more.items() if name not in HARMLESS):
            raise NotImplementedError
        if mask is not None or dropout:
            raise NotImplementedError
        self.reach = min(self.reach or _ENDLESS, sliding_window or _ENDLESS)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = torch.einsum("bkgtw,bksw->bkgts", grouped(query, key), key).float() * scale
        probabilities = scores.masked_fill(~self.seen, -torch.inf).softmax(-1).to(value.dtype)
        return torch.einsum("bkgts,bksw->btkgw", probabilities, value).flatten(2, 3), None
