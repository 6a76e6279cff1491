"""Off-policy policy gradient by importance weighting (Precup, Sutton & Singh 2000).

    Psi_t = G_t - mean;  maximise  mean over completions of  w sum over tokens of  log pi(a_t | s_t) Psi_t
    w = prod_t pi(a_t | s_t) / pi_old(a_t | s_t), the ratio of the policy to the sampler for the whole completion

Differs from batch_baseline: several steps on one rollout, each corrected for the drift of the policy.
Differs from ppo: a ratio per completion, exact without the cap, instead of a clip per token, which is biased.
Degenerates: the variance of w grows exponentially with the length, so few completions dominate a batch; the cap bounds
w and biases the gradient towards the sampler.
Watch: clip_fraction, the share of tokens whose completion is at the cap, and ratio/max; above a fifth, use fewer
epochs.
"""

from tutelage.algorithms.recipe import GradientSteps, Recipe
from tutelage.core.advantages import RewardToGo
from tutelage.core.baselines import BatchMean
from tutelage.core.surrogates import TrajectoryWeighted

OFF_POLICY = Recipe(
    name="off_policy",
    paper="Precup et al. 2000",
    advantage=RewardToGo(BatchMean()),
    surrogate=TrajectoryWeighted(cap=5.0),
    reduce="sequence_sum",
    update=GradientSteps(epochs=4, minibatches=1),
)
