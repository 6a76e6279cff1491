"""Detection of truncated sampling from the reported log-probabilities of sampled tokens.

If top-k, top-p or min-p keeps the set K of a distribution p, a token v in K has the probability p(v) / p(K). The
reported log-probabilities thus exceed those of p by −log p(K) ≥ 0, and p(K) identifies the number of most likely
tokens kept at every position. A setting is reported only if it explains all positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.data.records import Prompt, user
from tutelage.engines.interface import PromptTokens
from tutelage.models.policy import Policy
from tutelage.rollout.generator import RolloutError, SampledCompletion, assemble, encode_prompts
from tutelage.rollout.server.api import TokenRequest, TokenResponse
from tutelage.rollout.server.rollout_servers import RolloutServer

TOLERANCE = 1e-3
"""Tolerance between p(K) and the probability of a set of most likely tokens."""


def truncation(logp: Float[Tensor, " M"], whole: Float[Tensor, "M V"], tokens: Int[Tensor, " M"]) -> str:
    """Settings that explain the reported `logp` of `tokens` sampled from `whole`, the log-probabilities of all
    tokens; "" if there are none."""
    mass = (whole.gather(-1, tokens[:, None]).squeeze(-1) - logp).exp()  # p(K)
    p = whole.exp().sort(-1, descending=True).values
    reached = p.cumsum(-1)
    last = (reached - mass[:, None]).abs().argmin(-1)  # index of the last kept token
    rows = torch.arange(len(last))
    if ((reached[rows, last] - mass).abs() > TOLERANCE).any() or (mass > 1 - TOLERANCE).all():
        return ""
    least, after = p[rows, last], p.roll(-1, -1)
    after[:, -1] = 0.0
    settings = []
    if (last == last[0]).all():
        settings.append(f"top_k {int(last[0]) + 1}")
    if (highest := float(mass.min())) > float((mass - least).max()):
        settings.append(f"top_p {highest:.2f}")
    if (share := float((least / p[:, 0]).min())) > float((after[rows, last] / p[:, 0]).max()):
        settings.append(f"min_p {share:.2f}")
    return " or ".join(settings)


QUESTION = "What is rain?"
TOKENS = 8
"""Maximum number of tokens of the prompt and of each completion."""
EXACT, COARSE = 1e-4, 0.1
"""Largest difference of a log-probability in nats: in float32 (5e-6 is usual), and in bfloat16."""


@dataclass(frozen=True)
class Probe:
    """A few tokens at the run's temperature, from servers of the policy's model."""

    policy: Policy
    temperature: float

    @property
    def tolerance(self) -> float:
        """Allowed difference between two log-probabilities of a token, in nats."""
        return EXACT if self.policy.dtype.itemsize >= 4 else COARSE

    def check(self, server: RolloutServer, adapter: str = "") -> None:
        """Raise RolloutError, with the cause, if the server and the policy disagree about the server's tokens."""

        def generate(request: TokenRequest) -> list[TokenResponse]:
            return server.api.generate(server.connection, replace(request, model=server.model, adapter=adapter))

        self.compare(f"The server {server.url}", generate, server.kind.logprobs_flag)

    def compare(
        self, sampler: str, generate: Callable[[TokenRequest], list[TokenResponse]], logprobs_flag: str = ""
    ) -> None:
        """`check` of any sampler; `sampler` is the subject of the message, `logprobs_flag` its flag for the
        log-probabilities of sampling."""
        rollout = self._rollout(generate)
        with torch.no_grad():
            ours = self.policy.scores(rollout, temperature=self.temperature).logp
        nats = float((rollout.logp - ours)[rollout.mask].abs().max())
        if nats > self.tolerance:
            raise RolloutError(
                f"{sampler} gives its tokens log-probabilities that are up to {nats:.2g} nats from the "
                f"policy's, where {self.tolerance:g} is allowed. {self._cause(rollout, logprobs_flag)}"
            )

    def _rollout(self, generate: Callable[[TokenRequest], list[TokenResponse]]) -> Rollout:
        prompt = encode_prompts([Prompt("probe", user(QUESTION))], self.policy.tokenizer)[0].tokens[-TOKENS:]
        sampling = config.Sampling(temperature=self.temperature, max_new_tokens=TOKENS)
        request = TokenRequest(prompt, 2, 0, sampling, self.policy.end_ids, "")
        responses = [SampledCompletion(one.tokens, one.logp, one.stopped, "") for one in generate(request)]
        return assemble(PromptTokens((prompt,), ("probe",)), responses, pad=0, device=self.policy.device)

    @torch.no_grad()
    def _cause(self, rollout: Rollout, logprobs_flag: str) -> str:
        logp, tokens = rollout.logp[rollout.mask], rollout.response[rollout.mask]
        raw = self.policy.logits(rollout, temperature=1.0).float().log_softmax(-1)
        if float((raw.gather(-1, tokens[:, None]).squeeze(-1) - logp).abs().max()) <= self.tolerance:
            remedy = f"Start the server with {logprobs_flag}" if logprobs_flag else "Ask it for those of sampling"
            return f"They are those before the temperature of {self.temperature:g} (raw ones). {remedy}."
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
