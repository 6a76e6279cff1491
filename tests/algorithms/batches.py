"""Batches with everything in them: uneven lengths, an empty response, junk beyond the mask."""

from dataclasses import fields, replace

import torch
from torch import Tensor

from tutelage.algorithms.recipe import Recipe, needs_values
from tutelage.core.batch import ScoredRollout

LIMIT = 6


def scored_for(recipe: Recipe, seed: int = 0, prompts: int = 4) -> ScoredRollout:
    """A scored rollout of at least two rows per prompt, `recipe.samples` where it asks for more. P·G rows"""
    generator = torch.Generator().manual_seed(seed)
    group = max(recipe.samples, 2)
    rows = prompts * group

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    mask = torch.arange(LIMIT) < torch.randint(1, LIMIT + 1, (rows, 1), generator=generator)
    logp = torch.where(mask, -normal(rows, LIMIT).abs(), 0.0)
    return ScoredRollout(
        prompt=torch.zeros(rows, 2, dtype=torch.long),
        prompt_mask=torch.ones(rows, 2, dtype=torch.bool),
        response=torch.zeros(rows, LIMIT, dtype=torch.long),
        mask=mask,
        logp=logp,
        terminated=mask.sum(1) < LIMIT,
        truncated=mask.sum(1) == LIMIT,
        group=group,
        ids=tuple(str(i // group) for i in range(rows)),
        score=normal(rows),
        ref_logp=torch.where(mask, logp + 0.3 * normal(rows, LIMIT), 0.0),
        value=normal(rows, LIMIT) if needs_values(recipe) else None,
    )


def greedy_for(scored: ScoredRollout) -> ScoredRollout:
    """A greedy response to each prompt: the first row of its group with another score."""
    first = scored.rows(torch.arange(0, len(scored), scored.group))
    return replace(first, score=first.score + 0.5, group=1)


def padded(scored: ScoredRollout, columns: int) -> ScoredRollout:
    """The same with columns of padding on the right of every response, filled with junk where that is allowed."""
    wide = {}
    for field in fields(scored):
        x = getattr(scored, field.name)
        if isinstance(x, Tensor) and x.shape == scored.mask.shape:
            wide[field.name] = torch.nn.functional.pad(x, (0, columns), value=7.0 if field.name == "value" else 0)
    return replace(scored, **wide)
