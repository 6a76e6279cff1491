"""The truncation of a sampler, found in what it says about its tokens."""

import pytest
import torch

from tutelage.base import config
from tutelage.engines.token_sampling import truncated
from tutelage.rollout.server.truncation import truncation


def reported(sampling: config.Sampling, seed: int, count: int = 24) -> tuple[torch.Tensor, ...]:
    """(log-probabilities as a sampler that truncates reports them, the whole distribution, the tokens)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, 50, generator=generator)
    whole, cut = logits.log_softmax(-1), truncated(logits, sampling).log_softmax(-1)
    tokens = torch.multinomial(cut.exp(), 1, generator=generator)
    return cut.gather(-1, tokens).squeeze(-1), whole, tokens.squeeze(-1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        (config.Sampling(top_k=7), "top_k 7"),
        (config.Sampling(top_k=1), "top_k 1"),
        (config.Sampling(top_p=0.8), "top_p 0.8"),
        (config.Sampling(min_p=0.1), "min_p 0.1"),
    ],
)
def test_the_setting_is_named(sampling: config.Sampling, named: str, seed: int) -> None:
    assert truncation(*reported(sampling, seed)).startswith(named)


def test_a_whole_distribution_is_not_truncated() -> None:
    assert truncation(*reported(config.Sampling(), 0)) == ""


def test_log_probabilities_of_another_model_are_not_truncation() -> None:
    _, whole, tokens = reported(config.Sampling(), 0)
    other, _, _ = reported(config.Sampling(), 1)
    assert truncation(other, whole, tokens) == ""
