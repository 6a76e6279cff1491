"""Decoupled clip and dynamic sampling policy optimization (Yu et al. 2025, arXiv 2503.14476).

    Psi as in grpo;  maximise  mean over tokens of  min(rho Psi, clip(rho, 1 - 0.2, 1 + 0.28) Psi)

Differs from grpo in five things: the clip is wider above (rare tokens may grow), tokens are averaged over the batch
instead of within completions, prompts whose completions all score the same are replaced by new ones, scores are reduced
gradually near the length limit, and there is no KL.
Degenerates: if every prompt of a batch is dead, the batch is kept but has no gradient.
Watch: groups/dead, before replacement; ended and length/mean against the limit; entropy, which the wider clip keeps up.
"""

from dataclasses import replace

from tutelage.algorithms.grpo import GRPO
from tutelage.algorithms.recipe import GradientSteps
from tutelage.core.shaping import Overlong, ScoreShaping
from tutelage.core.surrogates import Clipped

DAPO = replace(
    GRPO,
    name="dapo",
    paper="arXiv:2503.14476",
    dynamic_sampling=3,
    shaping=ScoreShaping(missing_end=None, overlong=Overlong(buffer=0.2, penalty=1.0)),
    surrogate=Clipped(low=0.2, high=0.28),
    penalty=None,
    reduce="token_mean",
    update=GradientSteps(epochs=1, minibatches=4),  # 16 in the paper, of 512 prompts
)
