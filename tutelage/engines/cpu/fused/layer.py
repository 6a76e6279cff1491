"""A transformer layer in two steps around its attention (see `layer_steps`).

The layer is three nodes of the autograd graph instead of about fifty. If only the states of some tokens are needed, the
last layer skips the second step for the others, which provide only keys and values. Cached activations of the layer
from another forward pass (see `ForwardPass.activations`) are reused.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tutelage.engines.cpu import products
from tutelage.engines.cpu.forward_pass import LayerActivations, attention_under, current, reads_cache
from tutelage.engines.cpu.fused.arithmetic import EXACT, MIXED, Arithmetic, can_be_mixed
from tutelage.engines.cpu.fused.attention import Angles, FusedAttention, Mask, States
from tutelage.engines.cpu.fused.form import features, wave
from tutelage.engines.cpu.fused.gate import FusedGate
from tutelage.engines.cpu.fused.layer_steps import AttentionInputs, LayerOutputs, layer_outputs
from tutelage.engines.cpu.fused.linears import AdaptedLinear, adapted_linears, all_of_type, is_decoded
from tutelage.engines.cpu.fused.norm import FusedNorm
from tutelage.engines.cpu.native import elementwise
from tutelage.engines.network import epsilon_of, is_unmodified

KINDS: dict[str, type] = {
    "input_layernorm": FusedNorm,
    "self_attn": FusedAttention,
    "post_attention_layernorm": FusedNorm,
    "mlp": FusedGate,
}
"""Submodules of a fused layer."""
HEADS = 3
"""The products of the first step: q, k and v. Those of the second are o, gate, up and down."""


class FusedLayer:
    """Mixin for a layer of two norms, attention with rotary positions and a gated feed-forward, both added to x."""

    input_layernorm: Any
    self_attn: Any
    post_attention_layernorm: Any
    mlp: Any

    def forward(
        self, hidden_states: States, attention_mask: Mask = None, position_embeddings: Angles | None = None, **more: Any
    ) -> Float[Tensor, "B t d"]:
        """States after the layer: of all T tokens, or of the t tokens in `ForwardPass.selection`."""
        layer, index = current().selection
        index = index if layer is cast(nn.Module, self) else None
        fused = self.self_attn.is_fused() and is_unmodified(self.self_attn)
        if position_embeddings is None or reads_cache(more) or not fused:
            more |= {"attention_mask": attention_mask, "position_embeddings": position_embeddings}
            x: Tensor = super().forward(hidden_states, **more)  # type: ignore[misc]
            return _select(x, index)
        layers, arithmetic = self.products_of_steps(hidden_states), self.arithmetic(hidden_states)
        if layers is not None and arithmetic is not None:
            return self._in_steps(arithmetic, hidden_states, position_embeddings, index, layers)
        normed = self.input_layernorm(hidden_states)
        out, _ = self.self_attn.attended(normed, position_embeddings, attention_mask, **more)
        x = _select(hidden_states, index) + self.self_attn.o_proj(_select(out, index))
        return x + self.mlp(self.post_attention_layernorm(x))

    def products_of_steps(self, x: Float[Tensor, "B T d"]) -> list[AdaptedLinear] | None:
        """The tensors of q, k, v, o, gate, up and down; None if the layer cannot be computed in two steps for `x`.

        Its parts must be linear layers, with or without an adapter, and norms, of one dtype and without hooks, since
        the steps do not call the modules. The dtype is that of `x`, or bfloat16 under autocast without gradients.
        """
        attention, gate, norms = self.self_attn, self.mlp, _norms_of(self)
        products = (
            *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
            *(gate.gate_proj, gate.up_proj, gate.down_proj),
        )
        linears, kind = adapted_linears(products), norms[0].weight.dtype
        frozen = torch.is_autocast_enabled(x.device.type) and not torch.is_grad_enabled()
        fits = (
            linears is not None
            and len(x) == 1
            and x.dtype.itemsize >= 4
            and (kind == x.dtype or (kind == torch.bfloat16 and frozen))
            and all_of_type(linears, kind)
            and all(norm.weight.dtype == kind for norm in norms)
            and all(is_unmodified(part) for part in (gate, *norms))
        )
        return linears if fits else None

    @torch.no_grad()
    def decodes_as_it_scores(self) -> bool:
        """Whether a decoding step is bit-identical to the layer: in two steps on the compiled kernels, with all
        adapters beside W."""
        weight = self.input_layernorm.weight
        x = weight.new_zeros(1, 1, len(weight), dtype=torch.float32)
        linears = self.products_of_steps(x)
        if linears is None:
            return False
        if torch.is_autocast_enabled("cpu"):
            return self.arithmetic(x) is MIXED and all(map(is_decoded, linears))
        sizes = (x.shape[-1], self.mlp.up_proj.out_features, self.self_attn.head_dim // 2)
        whole = all(elementwise.supports(x.new_empty(1, size), small=True) for size in sizes)
        return whole and self.self_attn.head_dim % 2 == 0 and products.products().is_invariant

    def arithmetic(self, x: Float[Tensor, "B T d"]) -> Arithmetic | None:
        """The arithmetic of the steps: MIXED if autocast requests bfloat16; None if the kernels do not support it."""
        if not torch.is_autocast_enabled(x.device.type):
            return EXACT
        sizes = (x.shape[-1], self.mlp.up_proj.out_features, self.self_attn.head_dim)
        half = torch.get_autocast_dtype(x.device.type) == torch.bfloat16
        served = x.device.type == "cpu" and x.dtype == torch.float32 and half and can_be_mixed(*sizes)
        return MIXED if served else None

    def _in_steps(
        self, arithmetic: Arithmetic, x: Tensor, angles: Angles, index: Tensor | None, layers: Sequence[Any]
    ) -> Tensor:
        """The layer in two steps around its attention, with activations from the current cache, if any."""
        attention, cache = self.self_attn, current().activations
        kept = None if cache is None else cache.lookup(self)
        norms, x = _norms_of(self), x.squeeze(0)
        cos, sin = (angle[0].to(x.dtype).unsqueeze(1) for angle in angles)
        before, after, *of_heads = (norm.weight.to(x.dtype) for norm in norms)
        epsilon, epsilon_after, *of_heads_epsilons = map(epsilon_of, norms)
        heads = AttentionInputs.apply(
            *(x, arithmetic, kept, attention.head_dim, (epsilon, *of_heads_epsilons), cos, sin),
            *(before, *_flat(layers[:HEADS]), *of_heads),
        )
        known = None if kept is None else (kept.attended, kept.lse)
        out, lse = attention.attend(*(part[None] for part in heads), known=known)
        out = out.squeeze(0)
        if cache is not None and kept is None and lse is not None and not torch.is_grad_enabled():
            found = layer_outputs(arithmetic, x, out, epsilon_after, after, layers[HEADS:])
            activations = LayerActivations._make((*heads, out.view_as(heads[0]), lse, *found[:4]))
            cache.record(self, activations)
            return _select(activations.y[None], index)
        result: Tensor = LayerOutputs.apply(
            *(x, out, arithmetic, index, kept, epsilon_after, after), *_flat(layers[HEADS:])
        )
        return result[None]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether `module` may be tried: its parts must already be fused."""
        parts = dict(module.named_children())
        return parts.keys() == KINDS.keys() and all(isinstance(part, KINDS[name]) for name, part in parts.items())

    @staticmethod
    def trial(module: Any) -> list[Float[Tensor, "..."]]:
        """The output of `module` for three tokens, with an attention that does not mix tokens."""
        attention = module.self_attn
        weight = module.input_layernorm.weight
        angle = wave(1, 3, attention.head_dim // 2, like=weight).repeat(1, 1, 2)

        def alone(layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any) -> Any:
            repeats = query.shape[1] // key.shape[1]
            key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
            return (query * key).sigmoid().mul(value).transpose(1, 2).contiguous(), None

        with attention_under((attention.config,), alone):
            x = wave(1, 3, features(attention.q_proj), like=weight)
            return [module(x, position_embeddings=(angle.cos(), angle.sin()), attention_mask=None)]


def _select(x: Tensor, index: Tensor | None) -> Tensor:
    """The tokens at `index` of [B, T, ·]; all of them if it is None."""
    return x if index is None else x.index_select(1, index)


def _norms_of(layer: Any) -> list[Any]:
    """The norms before attention and gate, then those of queries and keys, if any."""
    return [layer.input_layernorm, layer.post_attention_layernorm, *layer.self_attn.norms_of_heads()]


def _flat(products: Sequence[AdaptedLinear]) -> list[Any]:
    """The scales of linear layers as one tuple, then all their tensors."""
    return [tuple(product.scale for product in products), *(x for product in products for x in product.tensors())]
