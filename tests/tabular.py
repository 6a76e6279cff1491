"""A language small enough to enumerate: three words, of which 0 ends a sentence, and at most two tokens.

There are seven sentences (0, 10, 11, 12, 20, 21, 22) and three states (nothing written, 1 written, 2 written). A policy
is a table of logits, one row per prompt and state, so that every expectation is a finite sum and autograd gives its
exact gradient. Sentences that end by themselves are 0, 10 and 20; the others are cut at the limit.
"""

import torch
from torch import Tensor

WORDS, STATES, LIMIT = 3, 3, 2
SENTENCES = torch.tensor([[0, 0], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]])


def mask_of(response: Tensor) -> Tensor:
    """The first token always, the second unless the first has ended the sentence."""
    return torch.stack((torch.ones(len(response), dtype=torch.bool), response[:, 0] != 0), 1)


MASK = mask_of(SENTENCES)
ENDED = (SENTENCES == 0).any(1)


def states_of(response: Tensor) -> Tensor:
    """The state before each token: the word before it, 0 for the first. Int[B, R]"""
    return torch.nn.functional.pad(response, (1, -1))


def token_logp(table: Tensor, response: Tensor, prompt: Tensor | None = None) -> Tensor:
    """log π of each token, 0 where there is none; `table` is [P, 3, 3]. Float[B, 2]"""
    logp = distributions(table, response, prompt).gather(-1, response.unsqueeze(-1)).squeeze(-1)
    return torch.where(mask_of(response), logp, 0.0)


def distributions(table: Tensor, response: Tensor, prompt: Tensor | None = None) -> Tensor:
    """log π(· | state before each token). Float[B, 2, 3]"""
    prompt = torch.zeros(len(response), dtype=torch.long) if prompt is None else prompt
    return torch.log_softmax(table, -1)[prompt.unsqueeze(1), states_of(response)]


def token_entropy(table: Tensor, response: Tensor, prompt: Tensor | None = None) -> Tensor:
    """Entropy of the distribution that each token was drawn from, 0 where there is none. Float[B, 2]"""
    logp = distributions(table, response, prompt)
    return torch.where(mask_of(response), -(logp.exp() * logp).sum(-1), 0.0)


def probability(table: Tensor) -> Tensor:
    """Probability of every sentence under prompt 0. Float[7]"""
    return token_logp(table, SENTENCES).sum(-1).exp()


def random_table(seed: int, prompts: int = 1) -> Tensor:
    """A policy. Float[P, 3, 3]"""
    return torch.randn(prompts, STATES, WORDS, generator=torch.Generator().manual_seed(seed))


def exact_values(table: Tensor, reward: Tensor) -> Tensor:
    """V of the state before each token of each sentence, for per-token rewards of all seven. Float[7, 2]"""
    p = probability(table).detach()
    out = torch.zeros(len(SENTENCES), LIMIT)
    for row in range(len(SENTENCES)):
        for t in range(LIMIT):
            same = (SENTENCES[:, :t] == SENTENCES[row, :t]).all(1)
            to_go = torch.where(MASK, reward, 0.0)[:, t:].sum(1)
            out[row, t] = (p * same * to_go).sum() / (p * same).sum()
    return torch.where(MASK, out, 0.0)


def gradient(value: Tensor, table: Tensor) -> Tensor:
    """d value / d table; zeros where the value does not depend on it."""
    (found,) = torch.autograd.grad(value, table, retain_graph=True, allow_unused=True)
    return torch.zeros_like(table) if found is None else found


def sentence_gradients(table: Tensor) -> Tensor:
    """∇ log π of every token of every sentence. Float[7, 2, 1, 3, 3]"""
    table = table.clone().requires_grad_()
    logp = token_logp(table, SENTENCES)
    rows = [[gradient(logp[s, t], table) for t in range(LIMIT)] for s in range(len(SENTENCES))]
    return torch.stack([torch.stack(row) for row in rows])
