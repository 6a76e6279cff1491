"""Basic actor-critics: the critic's estimate replaces the remaining return.

    q_actor_critic   Psi_t = Q(s_t, a_t) = r_t + gamma V(s_t+1)                (Sutton et al. 2000)
    td_actor_critic  Psi_t = r_t + gamma V(s_t+1) - V(s_t), the TD error       (Barto, Sutton & Anderson 1983)
    vpg              Psi_t = GAE(lambda) of the TD errors                      (Schulman et al. 2016, arXiv 1506.02438)
    maximise  mean over tokens of  log pi(a_t | s_t) Psi_t;  one step on fresh samples

Differs from value_baseline: bootstraps instead of using the full return, with less variance but the critic's bias.
q_actor_critic differs from the others: no state baseline, so a good state makes all its tokens more likely.
td_actor_critic differs from vpg: lambda = 0; vpg with lambda = 1 is value_baseline.
Degenerates: with an untrained critic, q_actor_critic and td_actor_critic train only the last token.
Watch: value/explained_variance; below 0 the critic is misleading. The advantage/mean of q_actor_critic need not be near
0.
"""

from tutelage.algorithms.recipe import Critic, Recipe
from tutelage.core.advantages import ActionValue, Gae, TemporalDifference

Q_ACTOR_CRITIC = Recipe(
    name="q_actor_critic", paper="Sutton et al. 2000", advantage=ActionValue(), critic=Critic(coef=0.5, clip=None)
)
TD_ACTOR_CRITIC = Recipe(
    name="td_actor_critic",
    paper="Barto et al. 1983",
    advantage=TemporalDifference(),
    critic=Critic(coef=0.5, clip=None),
)
VPG = Recipe(
    name="vpg",
    paper="arXiv:1506.02438",
    advantage=Gae(lam=0.97, whiten=True),  # 0.97 as Spinning Up's vpg
    critic=Critic(coef=0.5, clip=None),
)
