"""REINFORCE++ (Hu et al. 2025, arXiv 2501.03262).

    reinforce_pp           Psi_t = reward-to-go of (score - beta k1), whitened over the batch; one completion per prompt
    reinforce_pp_baseline  Psi = score - mean of the prompt's G scores, whitened over the batch; k2 in the loss
    maximise  mean over tokens of  min(rho Psi, clip(rho, 1-e, 1+e) Psi)

Differs from ppo: no critic; the batch mean is the baseline.
Differs from grpo: one standard deviation for the whole batch, so prompts are not weighted by their own spread.
Degenerates: in a batch of few prompts the standard deviation is noisy again; without the baseline, all completions of a
hard prompt have negative advantages.
Watch: clip_fraction and kl/old as for ppo; score/std, the divisor of all advantages.
"""

from dataclasses import replace

from tutelage.algorithms.recipe import GradientSteps, Penalty, Recipe
from tutelage.core.advantages import RewardToGo
from tutelage.core.groups import Group
from tutelage.core.surrogates import Clipped

REINFORCE_PP = Recipe(
    name="reinforce_pp",
    paper="arXiv:2501.03262",
    advantage=RewardToGo(whiten=True),
    surrogate=Clipped(low=0.2, high=0.2),
    penalty=Penalty(kind="k1", coef=0.05, where="reward"),
    update=GradientSteps(epochs=1, minibatches=4),
)
REINFORCE_PP_BASELINE = replace(
    REINFORCE_PP,
    name="reinforce_pp_baseline",
    samples=4,
    advantage=Group(whiten=True),
    penalty=Penalty(kind="k2", coef=0.05, where="loss"),
)
