"""A table of tokens' vectors:  y_t = W[a_t]. Its gradient is as sparse as the tokens are few."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from tutelage.engines.cpu.attention_interface import gradients_are_differentiated
from tutelage.engines.cpu.gradients import add_rows


class LeanEmbedding:
    """Mixed into an embedding that looks up rows and does nothing else."""

    weight: Tensor
    padding_idx: int | None

    def forward(self, tokens: Tensor) -> Tensor:
        wanted = self.weight.requires_grad and torch.is_grad_enabled()
        if not wanted or gradients_are_differentiated():
            out: Tensor = super().forward(tokens)  # type: ignore[misc]
            return out
        looked_up: Tensor = _LookUp.apply(self.weight, tokens, self.padding_idx)
        return looked_up

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one."""
        if type(module) is not nn.Embedding:
            return False
        return module.max_norm is None and not (module.sparse or module.scale_grad_by_freq)

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it makes of three tokens."""
        tokens = torch.arange(3, device=module.weight.device)[None] % module.num_embeddings
        return [module(tokens)]


class _LookUp(torch.autograd.Function):
    """Float[V, d], Int[...] → Float[..., d]. The row `padding` learns nothing."""

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
