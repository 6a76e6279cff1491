"""Policy gradient of the best of G samples (Tang et al. 2025, arXiv 2503.19595; for pass@k Walder & Karkhanis 2025).

    Psi = G (max of the G scores - max of the other G - 1): only the best completion has one, its lead over the second
    maximise  E[ max of G scores ], where every other recipe maximises the mean

Differs from rloo: credits what a completion adds to the group instead of how it compares with the average; a policy is
rewarded for variety as long as one of G samples is good.
Degenerates: when the two best scores are equal the prompt teaches nothing; the mean may fall while the best rises,
so it is for use with best-of-n at inference.
Watch: score/std, the variety that is being paid for; score/mean may fall while the best of G rises.
"""

from tutelage.algorithms.recipe import Recipe
from tutelage.core.groups import BestOfGroup

BEST_OF_GROUP = Recipe(
    name="best_of_group",
    paper="arXiv:2503.19595",
    samples=4,
    advantage=BestOfGroup(),
    reduce="sequence_sum",
)
