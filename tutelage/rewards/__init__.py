"""Rewards: what the completions of a policy are worth.

names       the names of rewards on the command line, with their weights
reward      the protocol: (completions) -> one score each
completions the completions of a rollout as one sequence
scores      the scores of a reward as a checked tensor
model       a reward model
function    a function of your own
rules       length, form, exact match; math_rules has numbers and formulas, text_rules tags, JSON, repetition
limits      what a rule computes about an answer at most, and the process in which it does; patterns, formulas, schemas:
            what is computed there
metrics     what rewards count beside their scores
judge       a language model behind an endpoint, which rates or compares; matches: who is compared with whom
weighted    Σ weight · score, and caps
ensemble    several rewards as one cautious one
named       rewards from the words of the command line; named_rules and named_judge: two kinds of them
columns     whether all rows have the columns that rewards read
"""
