"""Clipped importance-sampling policy optimization (MiniMax-M1, Chen et al. 2025, arXiv 2506.13585).

    Psi as in grpo;  maximise  mean over tokens of  stop_gradient(min(rho, cap)) log pi(a_t | s_t) Psi

Differs from grpo and dapo: a token outside the range keeps a bounded gradient, so rare words that redirect reasoning
("however", "wait") are still trained. No KL.
Differs from off_policy: a weight per token, not per completion.
Degenerates: with one step per rollout the weight is 1, and this is the score function.
Watch: clip_fraction, here the share of tokens at the cap, and ratio/max.
"""

from dataclasses import replace

from tutelage.algorithms.grpo import GRPO
from tutelage.algorithms.recipe import GradientSteps
from tutelage.core.surrogates import Cispo

CISPO = replace(
    GRPO,
    name="cispo",
    paper="arXiv:2506.13585",
    surrogate=Cispo(cap=5.0),
    penalty=None,
    reduce="token_mean",
    update=GradientSteps(epochs=1, minibatches=4),
)
