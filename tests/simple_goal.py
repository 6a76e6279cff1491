"""A goal that every algorithm must reach for, and whose expectation can be computed: tokens of a low number."""

import torch

from tutelage.core.rows import EncodedRow, collate
from tutelage.rewards.reward import rows_of

HALF = 150
LIMIT = 2  # tokens of an answer


def low_tokens(completions):
    """A reward: the share of an answer's tokens that stand in the first half of the vocabulary."""
    return share_of_low(rows_of(completions))


async def two_turns(row, episode):
    """An environment of two turns, which pays for the length of the second."""
    await episode.chat()
    return len((await episode.chat({"role": "user", "content": "more"})).content) / 10


def share_of_low(rows):
    """The same of rows. Float[B]"""
    return ((rows.response < HALF) & rows.mask).sum(1) / rows.mask.sum(1).clamp(min=1)


@torch.no_grad()
def expected(policy, questions):
    """The mean of that reward over all answers of at most two tokens there are, by their probabilities."""
    vocabulary = torch.arange(policy.vocabulary)
    low = (vocabulary < HALF).float()
    ends = torch.isin(vocabulary, torch.tensor(policy.end_ids))
    total = 0.0
    for question in questions:
        rows = collate([EncodedRow(question.tokens, (first, 0)) for first in vocabulary.tolist()], 0, policy.device)
        p = policy.logits(rows).softmax(-1).reshape(len(vocabulary), LIMIT, -1)
        after = torch.where(ends, low, (low + p[:, 1] @ low) / 2)
        total += float(p[0, 0] @ after)
    return total / len(questions)
