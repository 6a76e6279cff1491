"""A goal that every algorithm must reach for, and whose expectation can be computed: tokens of a low number."""

import torch

from tutelage.models.rows import Encoded, collate

HALF = 150


def low_tokens(rows, prompts, texts):
    """A reward: the share of an answer's tokens that stand in the first half of the vocabulary."""
    return ((rows.response < HALF) & rows.mask).sum(1) / rows.mask.sum(1).clamp(min=1)


@torch.no_grad()
def expected(policy, questions):
    """The probability that the first token of an answer is such a token, exactly, over all questions."""
    rows = [Encoded(question.tokens, (0,)) for question in questions]
    logits = policy.logits(collate(rows, 0, policy.device))
    return float(logits.softmax(-1)[:, :HALF].sum(-1).mean())
