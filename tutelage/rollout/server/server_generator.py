"""Generator that distributes the prompts of a rollout over servers and assembles their completions."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Rollout
from tutelage.data.chat_tokens import pad_token_id
from tutelage.engines.interface import PromptTokens
from tutelage.engines.sampling import StopCondition, TextVocabulary, check_room, plain_text, text_of
from tutelage.engines.token_sampling import row_seed
from tutelage.rollout.generator import RolloutError, SampledCompletion, assemble
from tutelage.rollout.server.api import TokenRequest, TokenResponse
from tutelage.rollout.server.fleet import Fleet
from tutelage.rollout.server.rollout_servers import RolloutServer
from tutelage.rollout.server.weight_sync import WeightSync


class ServerGenerator:
    """Generator with one server request per prompt.

    Completions end as those of a local generator: at an end token of the vocabulary, with the token that completes a
    stop string, or at the limit. Without `sync` the servers keep their weights.
    """

    def __init__(
        self,
        servers: Sequence[RolloutServer],
        vocabulary: TextVocabulary,
        sync: WeightSync | None = None,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.fleet, self.vocabulary, self.weights, self.device = Fleet(servers), vocabulary, sync, device
        self.version = 0

    @property
    def context(self) -> int | None:
        """The shortest context of a server in tokens; None if unreported."""
        return min((one.context for one in self.fleet.live if one.context is not None), default=None)

    @property
    def width(self) -> int:
        """Requests that the servers take at once; `generate` may be called by as many threads."""
        return self.fleet.width

    @phase("hand over weights")
    def sync(self, version: int) -> None:
        """Make the servers load the policy's weights as version `version`, and test each server on them.

        Raises RolloutError if a server cannot load them, or differs from the policy afterwards.
        """
        with _reasons():
            if self.weights is not None:
                self.weights.push(self.fleet, version)
        self.version = version

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """`n` completions of each prompt, see `Generator`. Prompts of a failed server go to the others.

        Raises RolloutError if no server is left, one refuses, or one has weights of another run.
        """
        with _reasons():
            return self._rollout(prompts, n, sampling, seed)

    def _rollout(self, prompts: PromptTokens, n: int, sampling: config.Sampling, seed: int) -> Rollout:
        for server in self.fleet.live:
            flag = f" ({server.kind.context_flag})" if server.kind.context_flag else ""
            place = f"the server {server.url} has {{}}{flag}"
            check_room(prompts, sampling.max_new_tokens, server.context, place)
        ends = StopCondition(self.vocabulary.tokenizer, self.vocabulary.end_ids, sampling.stop, torch.device("cpu"))
        adapter = "" if self.weights is None else self.weights.adapter
        requests = token_requests(prompts, n, sampling, seed, self.vocabulary, adapter)
        pool = ThreadPoolExecutor(max(1, min(len(requests), self.fleet.width)))
        try:
            with phase("generate", len(requests)) as generating:
                answers = list(generating.counted(pool.map(self.fleet.ask, requests)))
        finally:
            pool.shutdown(cancel_futures=True)
        responses = [
            completion(one, request, self.vocabulary, ends, self._versions(server, one, request))
            for request, (server, group) in zip(requests, answers, strict=True)
            for one in group * (n // request.n)
        ]
        return assemble(prompts, responses, pad=pad_token_id(self.vocabulary.tokenizer), device=self.device)

    def _versions(
        self, server: RolloutServer, response: TokenResponse, request: TokenRequest
    ) -> tuple[int, ...] | None:
        """Version of each token. Adapters are requested by label; for a whole model it is the reported version, or
        the last one transferred."""
        if self.weights is None:
            return None
        versions = self.weights.versions
        if request.adapter:
            return (versions[request.adapter],) * len(response.tokens)
        if response.labels is None:
            return (self.version,) * len(response.tokens)
        for label in set(response.labels) - set(versions):
            raise RolloutError(
                f"The server {server.url} wrote a response with the weights {label!r}, which this run did not put "
                "there. Was it restarted, or does another run use it?"
            )
        return tuple(versions[label] for label in response.labels)


def token_requests(
    prompts: PromptTokens, n: int, sampling: config.Sampling, seed: int, vocabulary: TextVocabulary, adapter: str = ""
) -> list[TokenRequest]:
    """Request of each prompt, for `n` completions, or for one if they are greedy and therefore equal."""
    samples = n if sampling.temperature else 1
    seeds = [row_seed(seed, name, 0) % (2**31 - n) for name in prompts.ids]  # 32 bits, as servers expect
    return [
        TokenRequest(tokens, samples, own, sampling, tuple(vocabulary.end_ids), "", adapter)
        for tokens, own in zip(prompts.tokens, seeds, strict=True)
    ]


def completion(
    response: TokenResponse,
    request: TokenRequest,
    vocabulary: TextVocabulary,
    ends: StopCondition,
    version: tuple[int, ...] | None,
) -> SampledCompletion:
    """Completion up to its end; `version` is that of the weights per token of the response."""
    sampling = request.sampling
    length, ended = _end(response, ends, sampling.max_new_tokens)
    tokens = response.tokens[:length]
    logp = response.logp[:length] if sampling.temperature else (0.0,) * length
    text = text_of(tokens, vocabulary.tokenizer, vocabulary.end_ids, sampling.stop)
    return SampledCompletion(tokens, logp, ended, text, None if version is None else version[:length])


@contextmanager
def _reasons() -> Iterator[None]:
    """Errors that a user can fix become a RolloutError, so that the run can be saved and resumed."""
    try:
        yield
    except RolloutError:
        raise
    except TutelageError as error:
        raise RolloutError(str(error)) from error


def _end(response: TokenResponse, ends: StopCondition, limit: int) -> tuple[int, bool]:
    """Number of tokens to keep, and whether the completion terminated.

    Servers match stop strings on their own text, which may be some tokens later than in a local generator.
    """
    tokens = list(response.tokens[:limit])
    last = set(ends.end_ids.tolist())
    ended = next((place + 1 for place, token in enumerate(tokens) if token in last), None)
    tokens = tokens[:ended]
    if any(stop in plain_text(tokens, ends.tokenizer) for stop in ends.stop):
        row, first = torch.tensor([tokens]), torch.zeros(1, dtype=torch.long)
        lengths = range(1, len(tokens) + 1)
        ended = next((length for length in lengths if bool(ends.reached(row, first, length))), ended)
    if ended is not None:
        return ended, True
    return len(tokens), response.stopped and len(response.tokens) <= limit
