"""ReMax (Li et al. 2023, arXiv 2310.10505).

    Psi = R - score of the greedy completion to the same prompt;
    maximise  mean over completions of  log pi(completion) Psi

Differs from rloo: one greedy completion instead of G - 1 siblings; half the sampling of G = 4, and a baseline that is
not an average.
Differs from reinforce: a baseline per prompt that depends on the policy but not on samples: unbiased.
Degenerates: for a policy that is nearly greedy, sample and baseline are the same completion and Psi is 0.
Watch: advantage/mean; far below 0, the greedy completion is much better than the samples, so the temperature is too
high.
"""

from tutelage.algorithms.recipe import Recipe
from tutelage.core.groups import Greedy

REMAX = Recipe(name="remax", paper="arXiv:2310.10505", advantage=Greedy(), reduce="sequence_sum")
