"""`LeanStep` as torch.compile makes it: what happens between two attentions becomes one or two kernels.

It works on plain copies of the weights, in the precision of the arithmetic and with the adapters folded in, since a
compiler cannot look into the layouts of oneDNN and MKL. On a processor these gain more than it does.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch.nn.functional import linear, silu

from tutelage.errors import TutelageError
from tutelage.models.attention_interface import Attend
from tutelage.models.backbone import trunk
from tutelage.models.decoding_weights import Matrix, matrix_in
from tutelage.models.lean.attention import rotated
from tutelage.models.lean.norm import epsilon_of


class CompiledStep:
    """Tokens Int[n] at positions Int[n] → their last hidden states Float[n, d].

    With the weights as they are when it is made. Raises TutelageError where there is no compiler.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        stack = trunk(model)
        self.embed, self.angles, self.norm = stack.embed_tokens, stack.rotary_emb, stack.norm
        self.layers = [_Layer(layer, dtype) for layer in stack.layers]

    def __call__(self, tokens: Tensor, where: Tensor, attend: Attend) -> Tensor:
        x = self.embed(tokens)
        cos, sin = self.angles(x, where[:, None])
        before, after = _compiled()
        try:
            for layer in self.layers:
                query, key, value = before(x, cos, sin, *layer.before)
                out = attend(layer.attention, query, key, value, layer.attention.scaling)
                x = after(x, out, *layer.after)
        except TorchDynamoException as error:
            raise TutelageError(
                f"The decoding step could not be compiled: {str(error).splitlines()[0]} torch.compile needs a C++ "
                "compiler (g++, for example) on this machine: install one, or set --sampling.compile false."
            ) from error
        normed: Tensor = self.norm(x)
        return normed


class _Layer:
    """The tensors of a layer, in the order in which the two functions take them."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        self.attention, gate = layer.self_attn, layer.mlp
        queries, keys, values = (
            matrix_in(part, dtype)
            for part in (self.attention.q_proj, self.attention.k_proj, self.attention.v_proj)
        )
        norms = (_norm(getattr(self.attention, name, None)) for name in ("q_norm", "k_norm"))
        self.before = (_norm(layer.input_layernorm), queries, keys, values, *norms, self.attention.head_dim)
        self.after = (
            matrix_in(self.attention.o_proj, dtype),
            _norm(layer.post_attention_layernorm),
            *(matrix_in(part, dtype) for part in (gate.gate_proj, gate.up_proj, gate.down_proj)),
        )


Norm = tuple[Tensor, float]


def _norm(module: Any) -> Norm | None:
    return None if module is None else (module.weight, float(epsilon_of(module)))


@cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return torch.compile(_before, dynamic=True), torch.compile(_after, dynamic=True)


def _before(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    norm: Norm,
    queries: Matrix,
    keys: Matrix,
    values: Matrix,
    query_norm: Norm | None,
    key_norm: Norm | None,
    width: int,
) -> tuple[Tensor, ...]:
    """Queries, keys and values [n, ·, w] of one token of each line."""
    x = _normed(x, norm)
    query, key, value = (_product(x, each).unflatten(-1, (-1, width)) for each in (queries, keys, values))
    if query_norm is not None and key_norm is not None:
        query, key = _normed(query, query_norm), _normed(key, key_norm)
    return rotated(query, cos, sin), rotated(key, cos, sin), value


def _after(
    x: Tensor, out: Tensor, mixed: Matrix, norm: Norm, gate: Matrix, up: Matrix, down: Matrix
) -> Tensor:
    """The residual stream behind a layer whose attention gave `out` [n, H, w]."""
    x = x + _product(out.flatten(1), mixed)
    normed = _normed(x, norm)
    return x + _product(silu(_product(normed, gate)) * _product(normed, up), down)


def _product(x: Tensor, by: Matrix) -> Tensor:
    weight, bias = by
    return linear(x.to(weight.dtype), weight, bias)


def _normed(x: Tensor, by: Norm) -> Tensor:
    weight, epsilon = by
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)
