"""Group Sequence Policy Optimization (Zheng et al. 2025, arXiv 2507.18071).

    Psi as in grpo;  maximise  mean over completions of  min(s Psi, clip(s, 1 - 3e-4, 1 + 4e-4) Psi)
    s = (prod_t pi(a_t | s_t) / pi_old(a_t | s_t))^(1/length), one ratio for the whole completion

Differs from grpo: the unit of the reward is the unit of the ratio; a completion is clipped as a whole.
Differs from rloo: the geometric mean of the tokens' ratios instead of their product, hence the narrow range.
Degenerates: the range suits long completions; for short ones, or with large steps, it clips nearly everything.
Watch: clip_fraction; a tenth or more is normal for whole completions, nearly all of them means too narrow a range.
"""

from dataclasses import replace

from tutelage.algorithms.grpo import GRPO
from tutelage.algorithms.recipe import GradientSteps
from tutelage.core.surrogates import SequenceClipped

GSPO = replace(
    GRPO,
    name="gspo",
    paper="arXiv:2507.18071",
    surrogate=SequenceClipped(low=3e-4, high=4e-4),
    penalty=None,
    reduce="sequence_mean",
    update=GradientSteps(epochs=1, minibatches=4),
)
