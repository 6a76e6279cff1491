"""The truncation of a sampler, found in what it says about its tokens."""

from itertools import product

import pytest
import tiny
import torch
import vllm_stub
from offenders import for_each

from tutelage.base import config
from tutelage.engines.token_sampling import truncated
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.probe import Probe, truncation


def reported(sampling: config.Sampling, seed: int, count: int = 24) -> tuple[torch.Tensor, ...]:
    """(log-probabilities as a sampler that truncates reports them, the whole distribution, the tokens)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, 50, generator=generator)
    whole, cut = logits.log_softmax(-1), truncated(logits, sampling).log_softmax(-1)
    tokens = torch.multinomial(cut.exp(), 1, generator=generator)
    return cut.gather(-1, tokens).squeeze(-1), whole, tokens.squeeze(-1)


@for_each(
    [
        (seed, *setting)
        for seed, setting in product(
            range(3),
            [
                (config.Sampling(top_k=7), "top_k 7"),
                (config.Sampling(top_k=1), "top_k 1"),
                (config.Sampling(top_p=0.8), "top_p 0.8"),
                (config.Sampling(min_p=0.1), "min_p 0.1"),
            ],
        )
    ]
)
def test_the_setting_is_named(seed: int, sampling: config.Sampling, named: str) -> None:
    assert truncation(*reported(sampling, seed)).startswith(named)


def test_a_whole_distribution_is_not_truncated() -> None:
    assert truncation(*reported(config.Sampling(), 0)) == ""


def test_log_probabilities_of_another_model_are_not_truncation() -> None:
    _, whole, tokens = reported(config.Sampling(), 0)
    other, _, _ = reported(config.Sampling(), 1)
    assert truncation(other, whole, tokens) == ""


@pytest.fixture
def policy(tiny_model):
    return vllm_stub.load(tiny_model("llama"))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("scale_out", [True, False])
def test_a_server_with_the_policys_weights_passes(serve, policy, temperature, scale_out):
    Probe(policy, temperature).check(serve({"scale_out": scale_out})[0][0])


def test_raw_log_probabilities_are_those_of_temperature_1(serve, policy):
    server = serve({"raw": True})[0][0]
    Probe(policy, 1.0).check(server)
    with pytest.raises(RolloutError, match=r"before the temperature of 0.7.*--logprobs-mode processed_logprobs"):
        Probe(policy, 0.7).check(server)


@pytest.mark.parametrize(
    ("fault", "named"), [({"top_k": 5}, "top_k 5"), ({"top_p": 0.6}, r"top_p 0\.6"), ({"min_p": 0.2}, r"min_p 0\.2")]
)
def test_a_truncation_nobody_asked_for_is_named(serve, policy, fault, named):
    server = serve({"truncated": fault})[0][0]
    with pytest.raises(RolloutError, match=f"truncated distribution .*{named}"):
        Probe(policy, 0.7).check(server)


def test_another_model_is_refused(serve, policy, tmp_path):
    other = vllm_stub.VllmStub(tiny.save("llama", tmp_path, seed=1))
    with pytest.raises(RolloutError, match=r"nats from the policy's, where 0.0001 is allowed. It has other weights"):
        Probe(policy, 1.0).check(serve(other)[0][0])
