"""PPO with an adaptive penalty instead of the clip (Schulman et al. 2017, arXiv 1707.06347, section 4).

    maximise  mean over tokens of  rho Psi - beta KL(pi_old || pi),  rho = pi / pi_old, several passes
    after each rollout: beta doubles when the KL was above 1.5 target, halves when below target / 1.5

Differs from ppo: a smooth pull back to the sampler from the first step on, where the clip does nothing until a
token leaves the range and then stops its gradient.
Differs from trpo: a price for the KL instead of a bound on it.
Degenerates: this KL is to the sampler, and holds a rollout's steps together; the KL to the reference, the one in the
reward, is another. With one step per rollout it is 0.
Watch: kl/update, measured once all steps of a rollout are taken, around the target; where it stays far below,
surrogate/coef has fallen to nothing and a rollout's steps are no longer held together.
"""

from dataclasses import replace

from tutelage.algorithms.ppo import PPO
from tutelage.core.kl import Doubling
from tutelage.core.surrogates import KlPenalised

PPO_PENALTY = replace(
    PPO,
    name="ppo_penalty",
    surrogate=KlPenalised(coef=1.0, controller=Doubling(target=0.01)),
)
