"""Rollouts from vLLM in this process, on the device of the policy, which hands over its weights as tensors.

    sync       wake the engine, load the tensors, forget the cached prompts, compare a few tokens with the policy's
    generate   all prompts in one batch, then sleep: the cache is freed, and the weights leave the GPU

vLLM's CPU build keeps its memory while it sleeps.
"""

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Rollout
from tutelage.data.chat_tokens import pad_token_id
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import inner
from tutelage.engines.sampling import StopCondition, check_room
from tutelage.models.policy import Policy
from tutelage.rollout.generator import RolloutError, assemble
from tutelage.rollout.server.api import TokenRequest, TokenResponse
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.server_generator import completion, token_requests
from tutelage.rollout.server.vllm import sampling_params

MEMORY = 0.3
"""Share of the device's memory for the weights and the cache of the engine."""
READ_AT_ONCE = 16_384
"""Tokens of prompts per forward pass of the CPU build, which cannot split the prompt of a seeded request."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the model in this process, where tensors need no copy
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class ColocatedGenerator:
    """Generator on an engine of vLLM that shares the process and the device of `policy`.

    `temperature` is that of the tokens which are compared after every handover. The first `sync` brings the weights.
    """

    def __init__(self, policy: Policy, temperature: float) -> None:
        self.policy, self.probe, self.version = policy, Probe(policy, temperature), 0
        self.engine = _engine(policy)
        self.asleep = False

    @phase("hand over weights")
    def sync(self, version: int) -> None:
        """Load the policy's weights as version `version`. Raises RolloutError if the log-probabilities of a few
        tokens differ from the policy's afterwards."""
        weights = ((name, tensor.to(self.policy.dtype)) for name, tensor in self.policy.weights().items())
        with _failures():
            self._wake()
            self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
            self.engine.reset_prefix_cache()
        self.probe.compare("vLLM in this process", lambda request: self._responses([request])[0])
        self.version = version

    @property
    def context(self) -> int:
        """Tokens of a prompt and its completion for which vLLM has room."""
        return int(self.engine.model_config.max_model_len)

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """`n` completions of each prompt, see `Generator`. The engine sleeps afterwards."""
        policy = self.policy
        check_room(prompts, sampling.max_new_tokens, self.context, "vLLM has room for {}")
        requests = token_requests(prompts, n, sampling, seed, policy)
        ends = StopCondition(policy.tokenizer, policy.end_ids, sampling.stop, torch.device("cpu"))
        with phase("generate"):
            answers = self._responses(requests)
        with _failures():
            self.engine.sleep(level=1)
        self.asleep = True
        completions = [
            completion(one, request, policy, ends, (self.version,) * len(one.tokens))
            for request, group in zip(requests, answers, strict=True)
            for one in group * (n // request.n)
        ]
        return assemble(prompts, completions, pad=pad_token_id(policy.tokenizer), device=policy.device)

    def _responses(self, requests: Sequence[TokenRequest]) -> list[list[TokenResponse]]:
        from vllm import SamplingParams  # type: ignore[import-not-found]

        params = [
            SamplingParams(**sampling_params(request), detokenize=bool(request.sampling.stop)) for request in requests
        ]
        with _failures():
            self._wake()
            prompts = [{"prompt_token_ids": list(request.tokens)} for request in requests]
            answers = self.engine.generate(prompts, params, use_tqdm=False)
        return [[_response(one) for one in answer.outputs] for answer in answers]

    def _wake(self) -> None:
        if self.asleep:
            self.engine.wake_up()
        self.asleep = False


def _response(output: Any) -> TokenResponse:
    tokens = tuple(output.token_ids)
    logp = tuple(float(place[token].logprob) for token, place in zip(tokens, output.logprobs, strict=True))
    return TokenResponse(tokens, logp, output.finish_reason == "stop")


def _engine(policy: Policy) -> Any:
    """vLLM's `LLM` with the configuration of a policy and without its weights. Raises TutelageError without vLLM, and
    for a model or a memory that it cannot serve."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import LLM
    except ImportError as error:
        raise TutelageError(
            f"--rollouts vllm runs vLLM in this process, and it cannot be imported ({error}): pip install "
            "vllm==0.32.0, or omit --rollouts."
        ) from error
    on_cpu = policy.device.type == "cpu"
    settings: dict[str, Any] = {
        "dtype": str(policy.dtype).removeprefix("torch."),
        "load_format": "dummy",
        "max_model_len": -1,  # as much as fits
        "gpu_memory_utilization": MEMORY,
        "logprobs_mode": "processed_logprobs",
        "enable_sleep_mode": not on_cpu,
        "enforce_eager": on_cpu,
    }
    if on_cpu:
        batched = max(READ_AT_ONCE, policy.context or 0)
        settings |= {"enable_chunked_prefill": False, "max_num_batched_tokens": batched}
    with tempfile.TemporaryDirectory() as folder, _unchanged_process():
        inner(policy.model).config.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
        try:
            return LLM(folder, **settings)
        except (RuntimeError, ValueError, OSError) as error:
            raise TutelageError(
                f"vLLM cannot start in this process: {error} Omit --rollouts, or give the address of a server."
            ) from error


@contextmanager
def _unchanged_process() -> Iterator[None]:
    """The random state and torch's `set_num_threads`, which the engine replaces, are restored afterwards."""
    state, set_num_threads, threads = random.getstate(), torch.set_num_threads, torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(state)
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(threads)


@contextmanager
def _failures() -> Iterator[None]:
    """Failures of the engine, such as a lack of memory, become a RolloutError, so that the run can be saved."""
    try:
        yield
    except RuntimeError as error:
        raise RolloutError(f"vLLM failed in this process: {error}") from error
