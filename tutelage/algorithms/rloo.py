"""REINFORCE leave-one-out (Kool et al. 2019; for language models Ahmadian et al. 2024, arXiv 2402.14740).

    Psi = R - mean return of the prompt's other G - 1 responses, the same for every token;  R = score - beta sum k1
    maximise  mean over responses of  log pi(response) Psi

Differs from reinforce: a baseline of the prompt's own, from siblings that the response had no part in:
unbiased. Differs from grpo: no division by the spread, no length normalisation, no clip; the KL is in the
reward. Degenerates: with G = 2, Psi is the difference of the pair; when all returns agree the prompt
teaches nothing.
"""

from tutelage.algorithms.recipe import Penalty, Recipe
from tutelage.core.groups import Group

RLOO = Recipe(
    name="rloo",
    paper="arXiv:2402.14740",
    samples=4,
    advantage=Group(leave_one_out=True),
    penalty=Penalty(kind="k1", coef=0.05, where="reward"),
    reduce="sequence_sum",  # the response is one action
)
