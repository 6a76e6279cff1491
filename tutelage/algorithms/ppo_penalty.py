"""PPO with an adaptive penalty instead of the clip (Schulman et al. 2017, arXiv 1707.06347, section 4).

    maximise  mean over tokens of  rho Psi - beta KL(pi_old || pi),  rho = pi / pi_old, several passes
    after each rollout: beta doubles when the KL was above 1.5 target, halves when below target / 1.5

Differs from ppo: a smooth pull towards the sampler from the first step, whereas the clip acts only once a token leaves
the range, by stopping its gradient.
Differs from trpo: a penalty on the KL instead of a bound.
Degenerates: this KL is to the sampler, not to the reference (which is in the reward). With one step per rollout it is
0.
Watch: kl/update, measured after all steps of a rollout, should be near the target; if it stays far below,
surrogate/coef has fallen to 0 and no longer constrains the steps.
"""

from dataclasses import replace

from tutelage.algorithms.ppo import PPO
from tutelage.core.kl import Doubling
from tutelage.core.surrogates import KlPenalised

PPO_PENALTY = replace(PPO, name="ppo_penalty", surrogate=KlPenalised(coef=1.0, controller=Doubling(target=0.01)))
