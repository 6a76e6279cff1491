"""Rewards: scores of the completions of a policy.

reward        the protocol: (completions) -> one score each; the completions of a rollout as one sequence
scores        the scores of a reward as a checked tensor, and its counts as metrics
names         parsing of rewards on the command line, with their weights
factory       creation of rewards from these names, and the columns that they read
model_reward  a reward model
function      a user-defined function
rules         length, form, exact match, tags, JSON, repetition; math_rules: numbers and formulas
sandbox       process with resource limits for computation on completions; formulas, schemas: the parts
              that need additional libraries
judge         a language model behind an endpoint, which rates or compares
composite     a weighted sum, a cap, a conservative ensemble, and a reward distributed over ranks
single_score  the reward of a run in the form that other trainers call
"""
