"""REINFORCE (Williams 1992, "Simple statistical gradient-following algorithms").

    Psi_t = R, the whole return, the same for every token of the completion
    maximise  mean over completions of  sum over tokens of  log pi(a_t | s_t) R

Differs from reward_to_go: a token is also credited with rewards before it, which is noise.
Differs from batch_baseline: no baseline, so a reward that is always positive makes every sample more likely.
Degenerates: a constant added to all scores changes the variance, and with few samples the direction of the gradient.
Watch: grad_norm, which varies with the magnitude of scores; an advantage/mean far from 0 suggests using a baseline.
"""

from tutelage.algorithms.recipe import Recipe
from tutelage.core.advantages import TotalReturn

REINFORCE = Recipe(
    name="reinforce",
    paper="Williams 1992",
    advantage=TotalReturn(),
    reduce="sequence_sum",  # the gradient as derived: log π of a completion is the sum over its tokens
)
