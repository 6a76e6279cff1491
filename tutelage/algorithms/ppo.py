"""Proximal Policy Optimization, clipped (Schulman et al. 2017, arXiv 1707.06347).

Applied to preferences: Ziegler et al. 2019 (arXiv 1909.08593), and the N+ implementation details (Huang et al. 2024,
arXiv 2403.17031), whose defaults these are.

    Psi = GAE(lambda) of (score on the last token - beta k1 on every token), whitened over the batch
    maximise  mean over tokens of  min(rho Psi, clip(rho, 1-e, 1+e) Psi),  rho = pi / pi_old, several passes

Differs from a2c: reuses a rollout for several steps, and stops the gradient of a token once its ratio has left the
range.
Differs from trpo: the range is per token and free of cost, whereas TRPO bounds the KL of the whole step.
Differs from grpo: a critic gives every token its own advantage.
ppo_kl_stop ends the passes over a rollout early once the KL exceeds a limit.
Degenerates: with one step per rollout the clip is inert and this is a2c with GAE; with lambda = 1 and an untrained
critic, reward-to-go.
Watch: clip_fraction (.05 to .2 is usual), kl/old below .02, kl/reference beside score/shaped, ended near 1, and
value/explained_variance above 0; for ppo_kl_stop the number of updates per rollout.
"""

from dataclasses import replace

from tutelage.algorithms.recipe import Critic, GradientSteps, Penalty, Recipe
from tutelage.core.advantages import Gae
from tutelage.core.surrogates import Clipped

PPO = Recipe(
    name="ppo",
    paper="arXiv:1707.06347",
    advantage=Gae(lam=0.95, gamma=1.0, whiten=True),
    surrogate=Clipped(low=0.2, high=0.2),
    penalty=Penalty(kind="k1", coef=0.05, where="reward"),
    critic=Critic(coef=0.1, clip=0.2),
    update=GradientSteps(epochs=4, minibatches=1),
)
PPO_KL_STOP = replace(
    PPO,
    name="ppo_kl_stop",
    update=GradientSteps(epochs=4, minibatches=4, max_kl=0.015),  # Spinning Up: 1.5 times a target of .01
)
