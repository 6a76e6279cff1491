"""REINFORCE with reward-to-go (Sutton et al. 2000, the policy gradient theorem).

    Psi_t = r_t + gamma r_t+1 + ... : only rewards after the token
    maximise  mean over completions of  sum over tokens of  log pi(a_t | s_t) Psi_t

Differs from reinforce: rewards before a token cannot depend on it, so omitting them only removes variance.
Degenerates: with a score on the last token only and no KL in the reward, both are the same.
Watch: advantage/mean far from 0 suggests using a baseline; grad_norm, which should be below that of reinforce.
"""

from tutelage.algorithms.recipe import Recipe
from tutelage.core.advantages import RewardToGo

REWARD_TO_GO = Recipe(name="reward_to_go", paper="Sutton et al. 2000", advantage=RewardToGo(), reduce="sequence_sum")
