"""Rollouts of a server: what `Generator` promises is enough to learn from another process.

The server is a stub that speaks vLLM's `/inference/v1/generate`: token ids in; token ids, log-probabilities and the
versions of the weights out. It computes with the very weights that are trained, so that every step must be, bit for
bit, the step of a generator in this process.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import httpx
import pytest
from served import serving
from tiny_training import World, assert_identical, letters, policy_of, recipe_of

from tutelage import config
from tutelage.data.chat import decode_response
from tutelage.errors import TutelageError
from tutelage.models.policy import Policy
from tutelage.rollout.assembly import Response, assemble, concatenate
from tutelage.rollout.generator import PromptTokens
from tutelage.rollout.local import LocalGenerator


class Engine:
    """What a server does with its requests: it samples from `policy`, under the newest version that it was told of.

    `forgets` is a version that never arrives.
    """

    def __init__(self, policy: Policy, forgets: int | None = None) -> None:
        self.local, self.forgets, self.busy = LocalGenerator(policy), forgets, Lock()

    def __call__(self, body, number):
        if "new_version" in body:
            if body["new_version"] != self.forgets:
                self.local.sync(body["new_version"])
            return {}
        with self.busy:
            return self.generate(body["request_id"], body["token_ids"], body["sampling_params"])

    def generate(self, name, tokens, params):
        sampling = config.Sampling(temperature=params["temperature"], max_new_tokens=params["max_tokens"])
        prompts = PromptTokens((tuple(tokens),), (name,))
        rollout = self.local.generate(prompts, params["n"], sampling, seed=params["seed"])
        rows = [(rollout.response[b][m], rollout.logp[b][m]) for b, m in enumerate(rollout.mask)]
        return {
            "choices": [
                {
                    "token_ids": said.tolist(),
                    "finish_reason": "stop" if ended else "length",
                    "logprobs": {
                        "content": [
                            {"token_id": token, "logprob": logp}
                            for token, logp in zip(said.tolist(), logps.tolist(), strict=True)
                        ]
                    },
                    "weight_versions": [{"version": self.local.version, "start": 0, "end": len(said)}],
                }
                for (said, logps), ended in zip(rows, rollout.terminated.tolist(), strict=True)
            ]
        }


@dataclass(frozen=True)
class Client:
    """A generator that asks a server, one request for each prompt."""

    url: str
    policy: Policy  # for its tokenizer

    def post(self, path, body):
        return httpx.post(f"{self.url}/{path}", json=body).raise_for_status().json()

    def sync(self, version: int) -> None:
        self.post("update_weight_version", {"new_version": version})

    def generate(self, prompts, n, sampling, *, seed, on_policy=False):
        params = {
            "n": n,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_new_tokens,
            "seed": seed,
            "logprobs": 0,
            "detokenize": False,
        }

        def ask(named):
            name, tokens = named
            body = {"request_id": name, "token_ids": list(tokens), "sampling_params": params}
            return self.post("inference/v1/generate", body)["choices"]

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(ask, zip(prompts.ids, prompts.tokens, strict=True)))
        responses = [self.response(choice) for choices in answers for choice in choices]
        return assemble(prompts, responses, pad=0)

    def response(self, choice) -> Response:
        tokens = tuple(choice["token_ids"])
        versions = [
            part["version"] for part in choice["weight_versions"] for _ in range(part["start"], part["end"])
        ]
        return Response(
            tokens,
            tuple(token["logprob"] for token in choice["logprobs"]["content"]),
            choice["finish_reason"] == "stop",
            decode_response(list(tokens), self.policy.tokenizer, self.policy.end_ids),
            tuple(versions),
        )


class OneByOne(LocalGenerator):
    """The generator in this process, given one prompt at a time as the server is: other company, other last bits."""

    def generate(self, prompts, n, sampling, *, seed, on_policy=False):
        each = zip(prompts.tokens, prompts.ids, strict=True)
        parts = [PromptTokens((tokens,), (name,)) for tokens, name in each]
        return concatenate([super(OneByOne, self).generate(part, n, sampling, seed=seed) for part in parts])


def world(tiny_model, **more):
    policy = policy_of(tiny_model("llama"))
    policy.end_ids = tuple(range(100, 180))
    recipe = recipe_of("shaping.missing_end=none", "samples=2", name=more.pop("name"))
    return World(policy, recipe, steps=3, lr=1e-2, reward=letters("e"), tokens=6, **more)


def learned(told):
    """All metrics that do not measure time, and the texts."""
    return [({k: v for k, v in s.metrics.items() if k != "tokens_per_second"}, s.texts) for s in told]


@pytest.mark.parametrize("name", ["ppo", "grpo", "remax"])
def test_a_step_on_rollouts_of_a_server_is_the_step_on_local_ones(tiny_model, name):
    here, there, usual = (world(tiny_model, name=name) for _ in range(3))
    here.generator = OneByOne(here.policy)
    steps = list(here.train())
    with serving(Engine(there.policy)) as served:
        there.generator = Client(served.url, there.policy)
        remote = list(there.train())
    assert learned(remote) == learned(steps)
    assert_identical(there.everything(), here.everything())
    assert next(usual.train()).texts == steps[0].texts
    for number, step in enumerate(remote):
        assert set(step.sample.version[step.sample.mask].tolist()) == {number}
    asked = {request["path"].removeprefix("/v1/") for request in served.asked}
    assert asked == {"inference/v1/generate", "update_weight_version"}


def test_responses_of_other_weights_are_refused(tiny_model):
    made = world(tiny_model, name="grpo")
    with serving(Engine(made.policy, forgets=1)) as served:
        made.generator = Client(served.url, made.policy)
        steps = made.train()
        next(steps)
        before = made.everything()
        with pytest.raises(TutelageError, match="version 0 of the weights in step 2, where version 1"):
            next(steps)
    assert_identical(made.everything(), before)


def test_log_probabilities_of_other_weights_are_noticed(tiny_model):
    """A server that claims the newest version and computes with an older one."""
    made = world(tiny_model, name="grpo")
    local = LocalGenerator(policy_of(tiny_model("llama")))
    local.policy.end_ids = made.policy.end_ids
    made.generator = local
    steps = made.train()
    next(steps)
    with pytest.raises(TutelageError, match="the policy and the sampler disagree"):
        next(steps)
