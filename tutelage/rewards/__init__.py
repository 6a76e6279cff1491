"""Rewards: scores of the completions of a policy.

reward        the protocol: (completions) -> one score each; the completions of a rollout as one sequence
scores        the scores of a reward as a checked tensor, and its counts as metrics
names         the names of rewards on the command line, with their weights
factory       rewards made from these names, and the columns that they read
model_reward  a reward model
function      a function of your own
rules         length, form, exact match, tags, JSON, repetition; math_rules has numbers and formulas
sandbox       limits of what a rule computes on a completion, and the process in which it does; formulas, schemas: what
              is computed there with libraries of their own
judge         a language model behind an endpoint, which rates or compares
composite     a weighted sum, a cap, a cautious ensemble, and a reward whose completions are shared among ranks
single_score  the reward of a run as other trainers call it
"""
