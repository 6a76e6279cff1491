"""Reward-to-go with the baselines of the literature: five recipes that differ only in the baseline.

    Psi_t = G_t - b        and  E[ grad log pi(a_t | s_t) b ] = 0  for every b independent of a_t

    batch_baseline    b = mean of G over the batch: nearly free; shrinks the gradient by about 1/B
    moving_baseline   b = exponential average of earlier batches' returns (Williams 1992): unbiased, but delayed
    minimum_variance  b = sum n G / sum n, n = |grad log pi|^2 (Weaver & Tao 2001, arXiv 1301.2315): the best constant
    time_baseline     b_t = mean of G_t over the completions that reach token t (Peters & Schaal 2008)
    value_baseline    b(s_t) = V(s_t), learned (Sutton et al. 2000): depends on the prompt and the text so far

Differs from reward_to_go: only by b.
Differs from rloo: b is the same for all prompts (except in value_baseline).
Differs from vpg: value_baseline uses the full return, GAE increasingly relies on the critic.
Degenerates: a constant b, or an untrained critic, does not account for prompts of different difficulty.
Watch: advantage/mean near 0 means that the baseline is right on average; for value_baseline, value/explained_variance
above 0 means that it is better than a constant.
"""

from dataclasses import replace

from tutelage.algorithms.recipe import Critic
from tutelage.algorithms.reward_to_go import REWARD_TO_GO
from tutelage.core.advantages import RewardToGo, ValueBaseline
from tutelage.core.baselines import BatchMean, MinimumVariance, MovingAverage, TimeDependent

BATCH_BASELINE = replace(REWARD_TO_GO, name="batch_baseline", advantage=RewardToGo(BatchMean()))
MOVING_BASELINE = replace(
    REWARD_TO_GO, name="moving_baseline", paper="Williams 1992", advantage=RewardToGo(MovingAverage(decay=0.9))
)
MINIMUM_VARIANCE = replace(
    REWARD_TO_GO, name="minimum_variance", paper="arXiv:1301.2315", advantage=RewardToGo(MinimumVariance())
)
TIME_BASELINE = replace(
    REWARD_TO_GO, name="time_baseline", paper="Peters & Schaal 2008", advantage=RewardToGo(TimeDependent())
)
VALUE_BASELINE = replace(
    REWARD_TO_GO, name="value_baseline", advantage=ValueBaseline(), critic=Critic(coef=0.5, clip=None)
)
