"""Trust Region Policy Optimization (Schulman et al. 2015, arXiv 1502.05477) and the natural gradient (Kakade 2001).

    maximise  mean over tokens of  rho Psi   subject to  mean over tokens of  KL(pi_old || pi) <= delta
    step d = sqrt(2 delta / (x^T F x)) x  with  F x = g  by conjugate gradient, F the Fisher matrix, used via products
    trpo shortens d by 0.8 until rho Psi improves within the KL bound; natural_gradient uses d unchanged

Differs from ppo: the bound applies to the whole policy after every step, at the cost of products with F.
Differs from vpg: F^-1 measures a step by its effect on the distribution, not on the parameters.
Degenerates: with damping much larger than F it is the plain gradient, scaled.
Watch: time. A product with F takes two passes through the whole model, whichever weights are trained: with ten of them
a step took 10 s on the demonstration's model where PPO's took 2.5 s, and 11 s and 3.2 s with LoRA of rank 16. LoRA
shrinks the vectors, not the products. kl/old at or below the bound. Steps rejected by the line search (kl/old of 0)
indicate a noisy gradient, or too little damping for the curvature estimated from few samples.
"""

from dataclasses import replace

from tutelage.algorithms.ppo import PPO
from tutelage.algorithms.recipe import NaturalStep
from tutelage.core.surrogates import ImportanceWeighted

TRPO = replace(
    PPO,
    name="trpo",
    paper="arXiv:1502.05477",
    surrogate=ImportanceWeighted(),
    update=NaturalStep(max_kl=0.01, damping=0.1, cg=10, backtracks=10, decay=0.8),
)
NATURAL_GRADIENT = replace(
    TRPO, name="natural_gradient", paper="Kakade 2001", update=NaturalStep(max_kl=0.01, search=False)
)
