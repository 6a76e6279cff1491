"""Group Relative Policy Optimization (Shao et al. 2024, arXiv 2402.03300).

    Psi = (score - mean of the prompt's G scores) / their standard deviation, the same for every token
    maximise  mean over completions of  mean over tokens of  min(rho Psi, clip(rho, 1-e, 1+e) Psi) - beta KL

Differs from ppo: no critic (the group is the baseline); the KL is in the loss, not in the reward.
Differs from rloo: divides by the group's spread, which weights prompts by 1/std and biases the gradient.
Degenerates: a group whose scores are all equal contributes nothing; with one gradient step the clip is inert.
Watch: groups/dead; length/mean, which grows if wrong completions may be long; kl/reference.
"""

from tutelage.algorithms.recipe import GradientSteps, Penalty, Recipe
from tutelage.core.groups import Group
from tutelage.core.surrogates import Clipped

GRPO = Recipe(
    name="grpo",
    paper="arXiv:2402.03300",
    samples=8,  # G: below 4 the spread is mostly noise
    advantage=Group(standardise=True),
    surrogate=Clipped(low=0.2, high=0.2),
    penalty=Penalty(kind="k3", coef=0.04, where="loss"),
    reduce="sequence_mean",  # length bias: short when right, long when wrong; see dr_grpo
    update=GradientSteps(epochs=1, minibatches=2),  # the paper's single step would leave the clip inert
)
