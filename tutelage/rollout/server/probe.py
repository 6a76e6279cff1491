"""The test of a server's weights and settings: what it says about a few tokens, against the policy.

    sampler:  log π_server(v | x), as the server reports it of tokens v that it drew
    trainer:  log π(v | x) of the same tokens

Both are equal where the server has the policy's weights and draws from the distribution it was asked for. Where they
differ, the policy's whole distribution tells which setting of the server is the cause.
"""

from dataclasses import dataclass

import torch

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.data.records import Prompt, user
from tutelage.engines.interface import PromptTokens
from tutelage.models.policy import Policy
from tutelage.rollout.assembly import Response, assemble
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.prompts import encode_prompts
from tutelage.rollout.server.api import TokenRequest
from tutelage.rollout.server.connect import Server
from tutelage.rollout.server.truncation import truncation

QUESTION = "What is rain?"
TOKENS = 8
"""Tokens of the prompt and of each response, at most."""
EXACT, COARSE = 1e-4, 0.1
"""Largest difference of a log-probability in nats: in float32, where 5e-6 is usual, and in bfloat16."""


@dataclass(frozen=True)
class Probe:
    """A few tokens at the run's temperature, from servers of the policy's model."""

    policy: Policy
    temperature: float

    @property
    def tolerance(self) -> float:
        """How far two log-probabilities of a token may be apart, in nats."""
        return EXACT if self.policy.dtype.itemsize >= 4 else COARSE

    def check(self, server: Server, adapter: str = "") -> None:
        """Raise RolloutError where the server and the policy disagree about tokens of the server's, saying why."""
        rollout = self._answers(server, adapter)
        with torch.no_grad():
            ours = self.policy.scores(rollout, temperature=self.temperature).logp
        nats = float((rollout.logp - ours)[rollout.mask].abs().max())
        if nats > self.tolerance:
            raise RolloutError(
                f"The server {server.url} gives its tokens log-probabilities that are up to {nats:.2g} nats from the "
                f"policy's, where {self.tolerance:g} is allowed. {self._cause(rollout)}"
            )

    def _answers(self, server: Server, adapter: str) -> Rollout:
        prompt = encode_prompts([Prompt("probe", user(QUESTION))], self.policy.tokenizer)[0].tokens[-TOKENS:]
        sampling = config.Sampling(temperature=self.temperature, max_new_tokens=TOKENS)
        asked = TokenRequest(prompt, 2, 0, sampling, self.policy.end_ids, server.model, adapter)
        found = server.api.generate(server.connection, asked)
        responses = [Response(one.tokens, one.logp, one.stopped, "") for one in found]
        return assemble(PromptTokens((prompt,), ("probe",)), responses, pad=0, device=self.policy.device)

    @torch.no_grad()
    def _cause(self, rollout: Rollout) -> str:
        logp, tokens = rollout.logp[rollout.mask], rollout.response[rollout.mask]
        raw = self.policy.logits(rollout, temperature=1.0).float().log_softmax(-1)
        if float((raw.gather(-1, tokens[:, None]).squeeze(-1) - logp).abs().max()) <= self.tolerance:
            return (
                f"They are those before the temperature of {self.temperature:g} (raw ones). Start the server with "
                "--logprobs-mode processed_logprobs."
            )
        whole = self.policy.logits(rollout, temperature=self.temperature).float().log_softmax(-1)
        if cut := truncation(logp.cpu(), whole.cpu(), tokens.cpu()):
            return (
                f"It draws from a truncated distribution ({cut}), although all tokens were asked for. Look for a "
                "default of the server, a logits processor or a proxy that sets it."
            )
        return (
            "It has other weights: another model, a handover that did not arrive, or another precision. Start it with "
            "the policy's model and precision (--dtype float32), and check that it reads the folder of the handover."
        )
