"""Batches in numbers, against masks that are written out."""

import numpy as np
import pytest

from tutelage.engines.plans.workload import Batch

from .sizes import on_policy


@pytest.mark.parametrize("shared", [True, False])
def test_tokens_and_pairs_are_those_of_the_mask(shared):
    """The mask of a packed sequence: prompts see themselves, responses their prompt and themselves, all causally."""
    prompts, samples, prompt, response = 3, 4, 20, 10
    batch = Batch(prompts, samples, prompt, response, shared)
    count = pairs = 0
    for _ in range(prompts if shared else prompts * samples):
        responses = samples if shared else 1
        owner = np.repeat(np.arange(1 + responses), [prompt, *[response] * responses])
        seen = (owner[:, None] == owner) | (owner[None, :] == 0)
        count += len(owner)
        pairs += int(np.tril(seen).sum())
    assert batch.tokens == count
    assert batch.pairs == pytest.approx(pairs, rel=0.05)  # the closed form counts half of the diagonal
    assert batch.scored == prompts * samples * response


def test_shares_add_up():
    batch = Batch(12, 4, 20, 10)
    for ranks in (1, 2, 3, 12):
        assert ranks * batch.share(ranks).tokens == pytest.approx(batch.tokens)
    assert 24 * batch.share(24).scored == pytest.approx(
        batch.scored
    )  # two rows each, with a prompt of their own
    assert 24 * batch.share(24).tokens > batch.tokens


def test_adapters_alone_are_trained():
    assert on_policy().trainable == on_policy().model.parameters
    assert on_policy(lora=8).trainable == 8 * on_policy().model.adapter
    assert on_policy(trains=False).trainable == 0
