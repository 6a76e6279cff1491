"""PPO for long completions: the critic is trained before the policy uses it.

    vc_ppo  Value-calibrated PPO (Yuan et al. 2025, arXiv 2503.01491)
            the critic fits G_t (lambda = 1) and is trained alone for the first steps; the policy uses GAE(lambda < 1)
    vapo    (Yue et al. 2025, arXiv 2504.05118)
            further lambda = 1 - 1/(alpha length) per completion, several completions per prompt, clip-higher

Differs from ppo: the critic's target is free of its own bias, and an untrained critic cannot mislead the policy.
Left out: vapo's language-modelling loss on correct completions, which requires scores that identify these.
Degenerates: for completions shorter than 1/alpha = 20 tokens, vapo's lambda is 0.
Watch: value/explained_variance at the end of the warm-up: it should be above 0 before the policy moves.
"""

from dataclasses import replace

from tutelage.algorithms.ppo import PPO
from tutelage.algorithms.recipe import Critic
from tutelage.core.advantages import Gae, LengthAdaptive
from tutelage.core.surrogates import Clipped

VC_PPO = replace(
    PPO,
    name="vc_ppo",
    paper="arXiv:2503.01491",
    advantage=Gae(lam=0.95, value_lam=1.0),
    critic=Critic(coef=0.1, clip=0.2, warmup=10),
)
VAPO = replace(
    VC_PPO,
    name="vapo",
    paper="arXiv:2504.05118",
    samples=4,
    advantage=Gae(lam=LengthAdaptive(alpha=0.05), value_lam=1.0),
    surrogate=Clipped(low=0.2, high=0.28),
)
