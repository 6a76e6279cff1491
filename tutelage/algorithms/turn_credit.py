"""Credit of turns, for episodes of several turns with rewards between them.

With one turn, each of these is the recipe in brackets:

    turn_rloo [rloo]      Psi_k = return from turn k on - mean of the others' from turn k, or their last turn, on
    turn_ppo  [ppo]       Psi = GAE(lambda) whose gamma and lambda count turns, not tokens
    mt_grpo   [grpo]      Psi_k = sum from turn k on of rewards less their mean at the turn index (Zeng et al. 2025)
    turn_samples [rloo]   Psi = return - mean return over all turns of the group, each turn a sample of its own

Differs from rloo: a turn is not credited with rewards before it, which removes their noise; without bias either way.
Degenerates: with all reward at the end turn_rloo is rloo. With one turn mt_grpo does not divide by the spread as grpo
does, and turn_samples has rloo's advantage times (G - 1)/G.
Bias: turn_ppo as its critic, for lambda below 1. mt_grpo and turn_samples if the number of turns varies: mt_grpo does
not credit the decision to go on (its expected gradient is 0 where a second turn always pays the same), turn_samples
weighs long episodes more. `tutelage lab credit` measures both exactly.
Watch: groups/dead, length/mean, and the number of turns, which mt_grpo leaves to chance.
"""

from dataclasses import replace

from tutelage.algorithms.grpo import GRPO
from tutelage.algorithms.ppo import PPO
from tutelage.algorithms.rloo import RLOO
from tutelage.core.advantages import Gae
from tutelage.core.turns import TurnGroup, TurnRewardGroup, TurnSamples

TURN_RLOO = replace(RLOO, name="turn_rloo", advantage=TurnGroup())
TURN_PPO = replace(PPO, name="turn_ppo", advantage=Gae(lam=0.95, gamma=1.0, per="turn", whiten=True))
MT_GRPO = replace(GRPO, name="mt_grpo", paper="arXiv:2505.11821", advantage=TurnRewardGroup())
TURN_SAMPLES = replace(RLOO, name="turn_samples", advantage=TurnSamples())
