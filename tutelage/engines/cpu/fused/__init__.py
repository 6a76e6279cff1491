"""Fused layers: the layers that most models share, with fewer passes over memory and less kept for the backward pass.

    RMSNorm    y = w · x · r,  r = (mean x² + ε)^-½     keeps x and r       (Zhang & Sennrich 2019, arXiv 1910.07467)
    SwiGLU     y = W_down (silu(g) · u)                 keeps g and u       (Shazeer 2020, arXiv 2002.05202)
    rotation   y = x · cos + (−x₂, x₁) · sin            keeps nothing of x  (Su et al. 2021, arXiv 2104.09864)
    embedding  y = W[token]                             keeps the tokens
    layer      y = h + SwiGLU(RMSNorm(h)),  h = x + attention(RMSNorm(x)),  in two steps

transformers writes each of them as five to ten operations on whole tensors and keeps most of the results for the
backward pass. Between large matrix products, a training step on a CPU waits for these operations; in a decoding
step, their number costs.

Modules are replaced where a trial shows that a fused form computes the same (see `form`). A module that computes
anything else stays as it is; where gradients are differentiated (see `differentiable_twice`), fused ones compute as the
modules that they replaced.
"""

import torch
from torch import nn

from tutelage.engines.cpu.fused.attention import FusedAttention
from tutelage.engines.cpu.fused.embedding import FusedEmbedding
from tutelage.engines.cpu.fused.form import replace_modules
from tutelage.engines.cpu.fused.gate import FusedGate
from tutelage.engines.cpu.fused.layer import FusedLayer
from tutelage.engines.cpu.fused.norm import FusedNorm
from tutelage.engines.cpu.fused.torch_step import consists_of_fused_layers
from tutelage.engines.network import trunk


def fuse(model: nn.Module) -> None:
    """Replace the modules of `model` that have a fused form. Parameters and their names stay."""
    replace_modules(model, FusedNorm, FusedGate, FusedAttention, FusedEmbedding)
    replace_modules(model, FusedLayer)  # which consists of fused parts


def keep_states_in_float32(model: nn.Module) -> None:
    """Give a language model of fused layers whose weights are bfloat16 states in float32 under autocast, as one with
    float32 weights has."""
    stack = trunk(model)
    if consists_of_fused_layers(stack) and isinstance(stack.embed_tokens, FusedEmbedding):
        stack.embed_tokens.widens = stack.embed_tokens.weight.dtype == torch.bfloat16
