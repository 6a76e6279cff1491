"""Policy gradient of the best of G samples (Tang et al. 2025, arXiv 2503.19595; for pass@k Walder & Karkhanis 2025).

    Psi = G (max of the G scores - max of the other G - 1): nonzero only for the best completion
    maximise  E[ max of G scores ], not the mean as in all other recipes

Differs from rloo: credits a completion's contribution to the group maximum instead of its difference from the mean;
variety is rewarded as long as one of G samples is good.
Degenerates: if the two best scores are equal, the prompt has no gradient; the mean may fall while the best rises, so
use it for best-of-n inference.
Watch: score/std, the variety being rewarded; score/mean may fall while the best of G rises.
"""

from tutelage.algorithms.recipe import Recipe
from tutelage.core.groups import BestOfGroup

BEST_OF_GROUP = Recipe(
    name="best_of_group", paper="arXiv:2503.19595", samples=4, advantage=BestOfGroup(), reduce="sequence_sum"
)
