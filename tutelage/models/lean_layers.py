"""The layers that most models share, computed with fewer passes over memory and less kept for the backward pass.

    RMSNorm    y = w · x · r,  r = (mean x² + ε)^-½     keeps x and r       (Zhang & Sennrich 2019, arXiv 1910.07467)
    SwiGLU     y = W_down (silu(g) · u)                 keeps g and u       (Shazeer 2020, arXiv 2002.05202)
    rotation   y = x · cos + (−x₂, x₁) · sin            keeps nothing of x  (Su et al. 2021, arXiv 2104.09864)

transformers writes each of them as five to ten operations on whole tensors, of which it keeps most for the backward
pass. Between large products these are what a step on a processor waits for, and while decoding their number costs.

Which layers of a model are these is not taken from a list: it is tried on each kind of layer. One that computes
anything else stays as it is, and all do where derivatives of derivatives are taken (see `twice_differentiable`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import linear, silu

from tutelage.models.attention_interface import (
    HARMLESS,
    attend,
    attention_under,
    gradients_are_differentiated,
    is_replaced,
)

TOLERANCE = 1e-5
"""How far a trial may be from the layer's own result, relative to its largest number."""


def make_lean(model: nn.Module) -> None:
    """Let the layers of `model` that are among the three compute as described. Weights and their names stay."""
    same: dict[tuple[type, str], bool] = {}
    for module in model.modules():
        kind: Any = type(module)
        lean = next((lean for lean in _FORMS if lean.fits(module)), None)
        if lean is None or issubclass(kind, lean):
            continue
        alike = (kind, _settings(module))
        if alike not in same:
            same[alike] = _computes_the_same(module, _joined(kind, lean), lean)
        if same[alike]:
            module.__class__ = _joined(kind, lean)


def _settings(module: nn.Module) -> str:
    """What layers of one kind may differ in besides their weights, such as a window."""
    told = {name: value for name, value in vars(module).items() if name != "layer_idx"}
    return repr([(name, x) for name, x in told.items() if isinstance(x, int | float | str | None)])


@cache
def _joined(kind: type, lean: type) -> type:
    """The layer's own class, with the leaner way before it."""
    return type(kind.__name__, (lean, kind), {"__module__": kind.__module__})


@torch.no_grad()
def _computes_the_same(module: nn.Module, joined: type, lean: Any) -> bool:
    own = type(module)
    try:
        expected = lean.trial(module)
        module.__class__ = joined
        found = lean.trial(module)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return False
    finally:
        module.__class__ = own
    return all(
        a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * b.abs().max())
        for a, b in zip(found, expected, strict=True)
    )


def _wave(*shape: int, of: Tensor) -> Tensor:
    """Numbers like those of a hidden state, the same every time."""
    count = torch.Size(shape).numel()
    return torch.arange(1.0, count + 1, device=of.device).mul(0.7).sin().mul(2).view(shape).to(of.dtype)


# Norms ----------------------------------------------------------------------------------------------------------------


class LeanNorm:
    """Mixed into a module that normalises by the root mean square and has one weight for each feature."""

    weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if gradients_are_differentiated() or x.dtype != self.weight.dtype or x.dtype.itemsize < 4:
            normed: Tensor = super().forward(x)  # type: ignore[misc]
            return normed
        if torch.is_grad_enabled():
            scaled, r = _RmsNorm.apply(x, self.weight, epsilon_of(self))
            scaled.made_from = (x.detach(), r, self.weight)  # see `_made_again`
            return cast(Tensor, scaled)
        return rms_norm(x, self.weight, epsilon_of(self))[0]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one."""
        weights = list(module.named_parameters())
        lonely = len(weights) == 1 and not any(module.children()) and not any(module.buffers())
        return (
            lonely
            and weights[0][0] == "weight"
            and weights[0][1].dim() == 1
            and epsilon_of(module) is not None
        )

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it makes of two vectors, also with weights that are not all one."""
        weight, x = module.weight, _wave(2, len(module.weight), of=module.weight)
        kept = weight.clone()
        try:
            return [module(x), module(x * weight.copy_(_wave(len(weight), of=weight)))]
        finally:
            weight.copy_(kept)


def epsilon_of(module: Any) -> Any:
    """The ε of a norm, by whatever name; None where there is none."""
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """(y, r). Float[..., d], Float[d] → Float[..., d], Float[..., 1]"""
    r = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    r = r.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return (x * r).mul_(weight), r


class _RmsNorm(torch.autograd.Function):
    """With n = x · r and g the gradient of y:  ∂w = Σ g · n,  ∂x = r · (g · w − n · mean(g · w · n))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        y, r = rms_norm(x, weight, epsilon)
        ctx.save_for_backward(x, weight, r)
        ctx.mark_non_differentiable(r)
        return y, r

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight, r = ctx.saved_tensors
        normed = x * r
        product = grad * normed
        to_weight = product.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        along = (product @ weight).div_(len(weight)).unsqueeze(-1)
        to_x = torch.mul(grad, weight, out=product).addcmul_(normed, along, value=-1).mul_(r)
        return to_x, to_weight, None


@contextmanager
def _made_again(y: Tensor) -> Iterator[None]:
    """Inside, who wants to keep y, which came of a norm, keeps how to make it: the norm has kept what that takes."""
    made_from = getattr(y, "made_from", None)
    if made_from is None or not torch.is_grad_enabled():
        yield
        return
    again = _Again(made_from)

    def pack(x: Tensor) -> object:
        same = x.numel() == y.numel() and x.data_ptr() == y.data_ptr() and x.is_contiguous()
        return again.kept(x.shape) if same else x

    with saved_tensors_hooks(pack, lambda held: held if isinstance(held, Tensor) else held()):
        yield


class _Again:
    """The output of a norm, made for the first who asks for it in the backward pass and held until the last has."""

    def __init__(self, made_from: tuple[Tensor, Tensor, Tensor]) -> None:
        self.made_from, self.waiting = made_from, 0
        self.y: Tensor | None = None

    def kept(self, shape: torch.Size) -> Callable[[], Tensor]:
        """What to call for it, in a shape."""
        self.waiting += 1
        return lambda: self._given().view(shape)

    def _given(self) -> Tensor:
        x, r, weight = self.made_from
        y = (x * r).mul_(weight) if self.y is None else self.y
        self.waiting -= 1
        self.y = y if self.waiting > 0 else None
        return y


# Gated layers ---------------------------------------------------------------------------------------------------------


class LeanGate:
    """Mixed into a feed-forward module with a gate through SiLU."""

    gate_proj: Callable[[Tensor], Tensor]
    up_proj: Callable[[Tensor], Tensor]
    down_proj: Any

    def forward(self, x: Tensor) -> Tensor:
        if gradients_are_differentiated():
            out: Tensor = super().forward(x)  # type: ignore[misc]
            return out
        with _made_again(x):
            gate, up = self.gate_proj(x), self.up_proj(x)
        if not torch.is_grad_enabled():
            return self.down_proj(silu(gate).mul_(up))
        down = self.down_proj
        if _is_one_matrix(down) and down.weight.dtype == gate.dtype:
            lowered: Tensor = _LoweredSwiGlu.apply(gate, up, down.weight, down.bias)
            return lowered
        return down(_SwiGlu.apply(gate, up))

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one."""
        return {name for name, _ in module.named_children()} == {
            "gate_proj",
            "up_proj",
            "down_proj",
            "act_fn",
        }

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it makes of two vectors."""
        weight = next(module.gate_proj.parameters())
        return [module(_wave(2, _features(module.gate_proj), of=weight))]


def _features(layer: Any) -> int:
    return int(layer.in_features)


def _is_one_matrix(layer: nn.Module) -> bool:
    """Whether x Wᵀ + b is all that happens when it is called."""
    return type(layer) is nn.Linear and not (
        "forward" in vars(layer) or layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
    )


class _LoweredSwiGlu(torch.autograd.Function):
    """p Wᵀ + b with p = silu(g) · u, of which W would keep a third copy: it is computed again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        return linear(silu(gate).mul_(up), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight = ctx.saved_tensors
        wants_weight, wants_bias = ctx.needs_input_grad[2:]
        through = silu(gate)
        flat = grad.flatten(0, -2)
        to_weight = flat.T @ (through * up).flatten(0, -2) if wants_weight else None
        inner = grad @ weight
        to_up = through.mul_(inner)
        inner.mul_(up)
        to_gate = torch.ops.aten.silu_backward.grad_input(inner, gate, grad_input=inner)
        return to_gate, to_up, to_weight, flat.sum(0) if wants_bias else None


class _SwiGlu(torch.autograd.Function):
    """silu(g) · u, with silu(g) computed again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        to_up = silu(gate).mul_(grad)
        inner = grad * up
        return torch.ops.aten.silu_backward.grad_input(inner, gate, grad_input=inner), to_up


# Attention with rotary positions --------------------------------------------------------------------------------------


class LeanAttention:
    """Mixed into an attention module: projections, norms of heads if there are any, rotation, attention, projection.

    It is used where the attention itself was replaced (see `attention_by`); elsewhere the module's own way stays.
    """

    config: Any
    scaling: float
    head_dim: int
    q_proj: Callable[[Tensor], Tensor]
    k_proj: Callable[[Tensor], Tensor]
    v_proj: Callable[[Tensor], Tensor]
    o_proj: Callable[[Tensor], Tensor]

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **more: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if (
            gradients_are_differentiated()
            or position_embeddings is None
            or past_key_values is not None
            or not is_replaced(self.config)
        ):
            result: tuple[Tensor, Tensor | None] = super().forward(  # type: ignore[misc]
                hidden_states,
                position_embeddings=position_embeddings,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                **more,
            )
            return result
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        with _made_again(hidden_states):
            query, key, value = (
                p(hidden_states).view(shape) for p in (self.q_proj, self.k_proj, self.v_proj)
            )
        query, key = (norm(x) for norm, x in zip(self._norms(), (query, key), strict=True))
        cos, sin = (x.unsqueeze(2) for x in position_embeddings)
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        heads = (x.transpose(1, 2) for x in (query, key, value))
        out, shares = attend(cast(nn.Module, self), *heads, attention_mask, scaling=self.scaling, **more)
        return self.o_proj(out.reshape(*shape[:-2], -1)), shares

    def _norms(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        return getattr(self, "q_norm", _as_it_is), getattr(self, "k_norm", _as_it_is)

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one."""
        names = {name for name, _ in module.named_children()}
        parts = {"q_proj", "k_proj", "v_proj", "o_proj"}
        plain = parts in (names, names - {"q_norm", "k_norm"})
        return plain and all(hasattr(module, name) for name in ("scaling", "head_dim", "config"))

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it hands to the attention for three tokens, and what it makes of the answer."""
        weight = next(module.q_proj.parameters())
        angle = _wave(1, 3, module.head_dim // 2, of=weight).repeat(1, 1, 2)
        seen: list[Tensor] = []

        def note(layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any) -> Any:
            seen.extend((query, key, value))
            asked = {name for name, value in more.items() if value is not None and name not in HARMLESS}
            if asked - {"scaling", "dropout"} or more["scaling"] != module.scaling or more.get("dropout"):
                raise ValueError  # it wants something of the attention that would not be told
            return query.transpose(1, 2).contiguous(), None

        with attention_under((module.config,), note):
            x = _wave(1, 3, _features(module.q_proj), of=weight)
            out, _ = module(x, position_embeddings=(angle.cos(), angle.sin()), attention_mask=None)
        return [*seen, out]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Every pair (x[i], x[i + w/2]) turned by its angle. Float[..., w]; both halves of `cos` and `sin` are the same."""
    if x.dtype != cos.dtype:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin
    turned: Tensor = _Rotated.apply(x, cos, sin) if torch.is_grad_enabled() else _turned(x, cos, sin, 1.0)
    return turned


def _turned(x: Tensor, cos: Tensor, sin: Tensor, way: float) -> Tensor:
    y, sin = x * cos, sin.chunk(2, -1)[0]
    (first, second), (x_first, x_second) = y.chunk(2, -1), x.chunk(2, -1)
    first.addcmul_(x_second, sin, value=-way)
    second.addcmul_(x_first, sin, value=way)
    return y


class _Rotated(torch.autograd.Function):
    """The gradient is turned back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, sin, -1.0), None, None


_FORMS: tuple[Any, ...] = (LeanNorm, LeanGate, LeanAttention)
