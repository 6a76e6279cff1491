"""GRPO done right (Liu et al. 2025, "Understanding R1-Zero-like training", arXiv 2503.20783).

    Psi = score - mean of the prompt's G scores
    maximise  sum over tokens of  min(rho Psi, clip(rho) Psi)  /  (completions * limit on tokens)

Differs from grpo: no division by the spread (it overweights prompts that are nearly solved or nearly hopeless), no
division by a completion's own length (it makes wrong completions longer), no KL.
Differs from rloo: (G - 1)/G of its advantage, a clip, and a constant divisor.
Degenerates: the divisor must be the sampling limit; the padded width would change with each batch.
Watch: length/mean, which should stay constant where grpo's grows; kl/reference, which is unconstrained.
"""

from dataclasses import replace

from tutelage.algorithms.grpo import GRPO
from tutelage.core.groups import Group

DR_GRPO = replace(
    GRPO, name="dr_grpo", paper="arXiv:2503.20783", advantage=Group(), penalty=None, reduce="fixed_length"
)
