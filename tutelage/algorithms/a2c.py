"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783; the synchronous form).

    a2c         Psi_t = r_t + gamma V(s_t+1) - V(s_t), the TD error, whitened
    a2c_n_step  Psi_t = r_t + ... + gamma^(n-1) r_t+n-1 + gamma^n V(s_t+n) - V(s_t), whitened
    maximise    mean over tokens of  log pi(a_t | s_t) Psi_t + c H(pi(. | s_t));  critic target: Psi + V

Differs from td_actor_critic: an entropy bonus against premature convergence, and advantages of unit variance.
Differs from vpg: one horizon n instead of an exponential average over all horizons.
Differs from ppo: one gradient step per rollout, so no clipping is needed.
Degenerates: with a score only at the end and an untrained critic, a2c trains only the last token; with n beyond the
length of the completion it is value_baseline.
Watch: entropy, which falls to 0 if the bonus is too small; value/explained_variance above 0.
"""

from dataclasses import replace

from tutelage.algorithms.recipe import Critic, Recipe
from tutelage.core.advantages import NStep, TemporalDifference

A2C = Recipe(
    name="a2c",
    paper="arXiv:1602.01783",
    advantage=TemporalDifference(whiten=True),
    entropy=0.01,
    critic=Critic(coef=0.5, clip=None),
)
A2C_N_STEP = replace(A2C, name="a2c_n_step", advantage=NStep(n=5, whiten=True))
