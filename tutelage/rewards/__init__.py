"""Rewards: what the completions of a policy are worth.

reward      the protocol: (completions) -> one score each
completions the completions of a rollout as one sequence
scores      the scores of a reward as a checked tensor
model       a reward model
function    a function of your own
rules       length, format, exact match with a column
judge       a language model behind an endpoint
weighted    Σ weight · score
ensemble    several rewards as one cautious one
named       rewards from the words of the command line
"""
