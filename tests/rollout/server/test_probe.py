"""The probe: a server with the policy's weights passes, and the cause of every other difference is named."""

import pytest
import tiny
import vllm_stub

from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.probe import Probe


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
    with pytest.raises(
        RolloutError, match=r"before the temperature of 0.7.*--logprobs-mode processed_logprobs"
    ):
        Probe(policy, 0.7).check(server)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"top_k": 5}, "top_k 5"),
        ({"top_p": 0.6}, r"top_p 0\.6"),
        ({"min_p": 0.2}, r"min_p 0\.2"),
    ],
)
def test_a_truncation_nobody_asked_for_is_named(serve, policy, fault, named):
    server = serve({"truncated": fault})[0][0]
    with pytest.raises(RolloutError, match=f"truncated distribution .*{named}"):
        Probe(policy, 0.7).check(server)


def test_another_model_is_refused(serve, policy, tmp_path):
    other = vllm_stub.VllmStub(tiny.save("llama", tmp_path, seed=1))
    with pytest.raises(
        RolloutError, match=r"nats from the policy's, where 0.0001 is allowed. It has other weights"
    ):
        Probe(policy, 1.0).check(serve(other)[0][0])
