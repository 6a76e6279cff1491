"""Log-probabilities of the tokens of prompts."""

from collections.abc import Sequence

import torch

from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat import pad_token_id
from tutelage.engines.plans.token_budget import CHUNK_ELEMENTS
from tutelage.models.policy import Policy
from tutelage.rollout.serving.jobs import Scoring, TokenLogp


@torch.no_grad()
def score(policy: Policy, jobs: Sequence[Scoring]) -> list[tuple[TokenLogp, ...]]:
    """For each job, the tokens of its prompt after the first, each given the tokens before it, at temperature 1."""
    found: list[tuple[TokenLogp, ...]] = [() for _ in jobs]
    longer = [number for number, job in enumerate(jobs) if len(job.prompt) > 1]
    if not longer:
        return found
    rows = [EncodedRow(jobs[number].prompt[:1], jobs[number].prompt[1:]) for number in longer]
    batch = collate(rows, pad_token_id(policy.tokenizer), policy.device)
    for index in policy.split(batch, max(1, CHUNK_ELEMENTS // policy.vocabulary)):
        part, numbers = batch.rows(index).trimmed(), [longer[place] for place in index.tolist()]
        logp = policy.logits(part).log_softmax(-1)
        own = logp.gather(-1, part.response[part.mask][:, None]).squeeze(-1).tolist()
        most = min(max(jobs[number].top for number in numbers), logp.shape[-1])
        values, tokens = (x.tolist() for x in logp.topk(most, -1))
        start = 0
        for number in numbers:
            job, end = jobs[number], start + len(jobs[number].prompt) - 1
            found[number] = tuple(
                TokenLogp(
                    token, own[at], dict(zip(tokens[at][: job.top], values[at][: job.top], strict=True))
                )
                for token, at in zip(job.prompt[1:], range(start, end), strict=True)
            )
            start = end
    return found
