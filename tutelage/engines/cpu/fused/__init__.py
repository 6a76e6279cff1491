"""Fused layers: common layers with fewer passes over memory and fewer tensors saved for the backward pass.

    RMSNorm    y = w · x · r,  r = (mean x² + ε)^-½     keeps x and r       (Zhang & Sennrich 2019, arXiv 1910.07467)
    SwiGLU     y = W_down (silu(g) · u)                 keeps g and u       (Shazeer 2020, arXiv 2002.05202)
    rotation   y = x · cos + (−x₂, x₁) · sin            keeps nothing of x  (Su et al. 2021, arXiv 2104.09864)
    embedding  y = W[token]                             keeps the tokens
    layer      y = h + SwiGLU(RMSNorm(h)),  h = x + attention(RMSNorm(x)),  in two steps

transformers implements each of them as five to ten operations on whole tensors and saves most of the results for the
backward pass. On a CPU, these operations are a bottleneck of training between large matrix products, and their number
slows decoding.

A module is replaced if a trial shows that its fused form agrees (see `form`); other modules are unchanged. If gradients
are differentiated (see `differentiable_twice`), fused modules run the original code.
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
    """Replace the modules of `model` that have a fused form. Parameters and their names do not change."""
    replace_modules(model, FusedNorm, FusedGate, FusedAttention, FusedEmbedding)
    replace_modules(model, FusedLayer)  # which consists of fused parts


def keep_states_in_float32(model: nn.Module) -> None:
    """Under autocast, keep the states of a language model of fused layers with bfloat16 weights in float32, as with
    float32 weights."""
    stack = trunk(model)
    if consists_of_fused_layers(stack) and isinstance(stack.embed_tokens, FusedEmbedding):
        stack.embed_tokens.widens = stack.embed_tokens.weight.dtype == torch.bfloat16
