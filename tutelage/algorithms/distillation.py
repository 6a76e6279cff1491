"""On-policy distillation (reverse_kl: MiniLLM, Gu et al. 2024, arXiv 2306.08543; gkd: Agarwal et al. 2024, arXiv
2306.13649).

With the teacher p as the reference, and no score:

    reverse_kl   maximise  - KL(pi || p) = E_pi[log p(y) - log pi(y)],  y a whole completion,  Psi_t = - sum_{u >= t} k1
    gkd          minimise  mean over tokens of  D(p, pi),  from the whole distributions of the next token
                 D = b KL(p || m) + (1 - b) KL(pi || m),  m = b p + (1 - b) pi,  b = penalty.mixture

Distillation is KL-regularised RL with the reward r = log p. The objective of reverse_kl is the mean of log p(y) plus
the entropy of pi. For any reference q it is also E_pi[r] - beta KL(pi || q) with r = log p(y) - log q(y) and beta = 1,
whose optimum q exp(r / beta) / Z is p itself; another beta leads to q^(1 - 1/beta) p^(1/beta) / Z, between q and p or
beyond p. No separate training loop is needed: `tutelage distill` is `tutelage improve` with the teacher as the
reference and 0 as the score of every completion, and accepts every recipe with a penalty and no critic.

Differs from reinforce: the coefficient of the KL is 1, there is a baseline, and the reference is another model.
gkd differs from reverse_kl: it compares whole distributions, so sampling of the token adds no variance, and it ignores
the effect of a token on later states (like gamma = 0).
Degenerates: with b = 1 gkd is the mean of reverse_kl with gamma = 0; with b = 0 on fixed completions it is supervised
distillation, and with a deterministic teacher plain fine-tuning.
Watch: divergence (gkd) and kl/reference (reverse_kl), which fall towards 0; length/mean; entropy, which KL(pi || p)
pushes below the teacher's if the student lacks capacity.
"""

from tutelage.algorithms.recipe import Penalty, Recipe
from tutelage.core.advantages import RewardToGo
from tutelage.core.baselines import LeaveOneOut
from tutelage.core.shaping import ScoreShaping

REVERSE_KL = Recipe(
    name="reverse_kl",
    paper="arXiv:2306.08543",
    shaping=ScoreShaping(missing_end=None),
    penalty=Penalty(kind="k1", coef=1.0, where="reward"),
    advantage=RewardToGo(baseline=LeaveOneOut()),
    reduce="sequence_sum",  # the gradient of the KL of whole completions, as derived
)
GKD = Recipe(
    name="gkd",
    paper="arXiv:2306.13649",
    shaping=ScoreShaping(missing_end=None),
    penalty=Penalty(kind="exact", coef=1.0, where="loss", mixture=0.5),
    advantage=RewardToGo(baseline=LeaveOneOut()),
)
