"""REINFORCE leave-one-out (Kool et al. 2019; for language models Ahmadian et al. 2024, arXiv 2402.14740).

    Psi = R - mean R of the prompt's other G - 1 completions, the same for every token;  R = score - beta sum k1
    rloo          maximise  mean over completions of  log pi(completion) Psi
    rloo_clipped  maximise  mean over completions of  min(s Psi, clip(s, 1-e, 1+e) Psi),  s = pi / pi_old (completion)

Differs from reinforce: a baseline per prompt, from the other completions only: unbiased.
Differs from grpo: no division by the spread, no length normalisation; the KL is in the reward.
Degenerates: with G = 2, Psi is the difference of the pair; if all returns are equal the prompt has no gradient.
Watch: groups/dead, the share of prompts without a gradient, and advantage/std, which shrinks as returns become equal.
"""

from dataclasses import replace

from tutelage.algorithms.recipe import GradientSteps, Penalty, Recipe
from tutelage.core.groups import Group
from tutelage.core.surrogates import SequenceClipped

RLOO = Recipe(
    name="rloo",
    paper="arXiv:2402.14740",
    samples=4,
    advantage=Group(leave_one_out=True),
    penalty=Penalty(kind="k1", coef=0.05, where="reward"),
    reduce="sequence_sum",  # the completion is one action
)
RLOO_CLIPPED = replace(
    RLOO,
    name="rloo_clipped",
    surrogate=SequenceClipped(low=0.2, high=0.2, length_normalised=False),
    reduce="sequence_mean",  # the value is equal at every token of a completion, so its mean is the completion's
    update=GradientSteps(epochs=2, minibatches=2),
)
