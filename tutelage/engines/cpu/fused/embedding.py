"""An embedding:  y_t = W[a_t]. Its gradient is stored as one row per token."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from tutelage.engines.cpu.forward_pass import gradients_are_differentiated
from tutelage.engines.cpu.weight_gradients import add_rows


class FusedEmbedding:
    """Mixin for an embedding that only looks up rows.

    With `widens`, bfloat16 rows are returned in float32 under autocast, the dtype of the residual stream.
    """

    weight: Tensor
    padding_idx: int | None
    widens: bool = False

    def forward(self, tokens: Int[Tensor, "*tokens"]) -> Float[Tensor, "*tokens d"]:
        """The rows of the weight at `tokens`."""
        needs_grad = self.weight.requires_grad and torch.is_grad_enabled()
        if not needs_grad or gradients_are_differentiated():
            out: Tensor = super().forward(tokens)  # type: ignore[misc]
            return out.float() if self.widens and torch.is_autocast_enabled(out.device.type) else out
        rows: Tensor = _Lookup.apply(self.weight, tokens, self.padding_idx)
        return rows

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether `module` is a candidate for the trial."""
        if type(module) is not nn.Embedding:
            return False
        return module.max_norm is None and not (module.sparse or module.scale_grad_by_freq)

    @staticmethod
    def trial(module: Any) -> list[Float[Tensor, "..."]]:
        """The output of `module` for three tokens."""
        tokens = torch.arange(3, device=module.weight.device)[None] % module.num_embeddings
        return [module(tokens)]


class _Lookup(torch.autograd.Function):
    """Float[V, d], Int[...] → Float[..., d]. The row `padding` gets no gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, tokens: Tensor, padding: int | None) -> Tensor:
        ctx.save_for_backward(weight, tokens)
        ctx.padding = padding
        return embedding(tokens, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, tokens = ctx.saved_tensors
        index, rows = tokens.flatten(), grad.flatten(0, -2)
        if ctx.padding is not None:
            learning = index != ctx.padding
            index, rows = index[learning], rows[learning]
        return add_rows(weight, index, rows), None, None
