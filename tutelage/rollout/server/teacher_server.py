"""Teacher over HTTP: log-probabilities by a served model of tokens that another model wrote.

POST /v1/completions with `echo`, `max_tokens` 0 and `logprobs` 0: vLLM, `tutelage serve`, and servers compatible
with OpenAI's completions API. They return the log-probability of each prompt token at temperature 1, but not the
rest of its distribution.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import Rows
from tutelage.core.rows import spread
from tutelage.data.tokenizer import encode_text, facts
from tutelage.data.transport import InvalidAddress, Transport, check_key
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.api import Connection
from tutelage.rollout.server.rollout_servers import TIMEOUT, base_card
from tutelage.rollout.server.vllm import COMPLETIONS

AT_ONCE = 32
"""Requests in flight."""
PROBED = 256
"""Maximum number of vocabulary tokens whose text is sent to the server to compare tokenisation."""
TOKEN = "token_id:"
"""Prefix of token names under `return_tokens_as_token_ids`."""


@dataclass(frozen=True)
class TeacherServer:
    """Served model that scores tokens. `context` is its context in tokens, None if unreported."""

    connection: Connection
    model: str
    context: int | None = None

    def __call__(self, rows: Rows) -> Float[Tensor, "B R"]:
        """Log-probability of every response token at temperature 1; 0 for padding.

        Raises RolloutError if the server fails, refuses, or sends another format.
        """
        sequences = [
            (prompt[in_prompt].tolist(), response[in_response].tolist())
            for prompt, in_prompt, response, in_response in zip(
                rows.prompt, rows.prompt_mask, rows.response, rows.mask, strict=True
            )
        ]
        with ThreadPoolExecutor(max(1, min(AT_ONCE, len(sequences)))) as pool:
            logps = list(pool.map(self._response, sequences))
        values = [logp for own in logps for logp in own]
        return spread(torch.tensor(values, device=rows.mask.device, dtype=torch.float32), rows.mask)

    def check_vocabulary(self, tokenizer: Any) -> None:
        """Raise TutelageError if the server tokenises a text differently from this tokenizer."""
        text, own = _probe(tokenizer, PROBED if self.context is None else min(PROBED, self.context - 1))
        theirs, _ = self._scored(text, {"add_special_tokens": False})
        if theirs != own:
            raise TutelageError(
                f"The teacher at {self.connection.url} has another vocabulary than the model: it reads {text[:30]!r}… "
                f"as the tokens {theirs[:6]}…, and the model as {own[:6]}…. Distillation compares the probabilities of "
                "the same tokens: give a teacher of the model's own family, or train on its completions with "
                "tutelage sft."
            )

    def _response(self, sequence: tuple[list[int], list[int]]) -> list[float]:
        prompt, response = sequence
        if self.context is not None and len(prompt) + len(response) > self.context:
            raise RolloutError(
                f"A prompt and its response have {counted(len(prompt) + len(response), 'token')}, but the teacher at "
                f"{self.connection.url} has {counted(self.context, 'position')}. Shorten the prompts or set a smaller "
                "--sampling.max-new-tokens."
            )
        try:
            tokens, logp = self._scored([*prompt, *response])
        except RolloutError:
            raise
        except TutelageError as error:  # no weight has changed, so the run can resume later
            raise RolloutError(str(error)) from error
        if tokens != [*prompt, *response]:
            raise RolloutError(f"The teacher at {self.connection.url} scored other tokens than it was sent.")
        return logp[len(prompt) :]

    def _scored(
        self, prompt: str | Sequence[int], more: dict[str, object] | None = None
    ) -> tuple[list[int], list[float]]:
        """Tokens of a prompt and their log-probabilities; the first is 0."""
        body: dict[str, object] = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": 0,
            "echo": True,
            "logprobs": 0,
            "temperature": 1.0,
            "return_tokens_as_token_ids": True,
        }
        answer = self.connection.post(COMPLETIONS, body | (more or {}))
        try:
            logprobs = answer["choices"][0]["logprobs"]
            tokens = [int(name.removeprefix(TOKEN)) for name in logprobs["tokens"]]
            logp = [0.0, *map(float, logprobs["token_logprobs"][1:])]
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            tokens, logp = [], []
        if not tokens or len(tokens) != len(logp) or not all(map(math.isfinite, logp)):
            raise TutelageError(
                f"The server {self.connection.url} did not answer {COMPLETIONS} with the token ids and the finite "
                f"log-probabilities of the prompt, as vLLM and tutelage serve do: {str(answer)[:200]}."
            )
        return tokens, logp


def connect_teacher(address: str, tokenizer: Any, *, key: str = "", retries: int = 3) -> TeacherServer:
    """Connect to a teacher, whose vocabulary must be that of `tokenizer`.

    Raises TutelageError if nothing responds, nothing is served, or the vocabulary differs.
    """
    check_key(key, "the teacher")
    url = address.rstrip("/").removesuffix("/v1")
    connection = Connection(url, Transport(f"The teacher at {url}", key, TIMEOUT, retries))
    try:
        card = base_card(connection)
    except InvalidAddress as error:
        raise TutelageError(
            f"{address!r} is no address: give --teacher as http://localhost:8000, or a folder."
        ) from error
    teacher = TeacherServer(connection, str(card["id"]), card.get("max_model_len"))
    teacher.check_vocabulary(tokenizer)
    return teacher


def _probe(tokenizer: Any, most: int) -> tuple[str, list[int]]:
    """Text of tokens from the whole vocabulary, and its tokenisation, at most `most` tokens."""
    control = facts(tokenizer).control
    known = sorted(place for place in tokenizer.get_vocab().values() if place not in control)
    count = most
    while True:
        chosen = known[:: max(1, len(known) // count)][:count]
        text = tokenizer.decode(chosen, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        tokens = encode_text(text, tokenizer)
        if len(tokens) <= most or count == 1:
            return text, tokens
        count //= 2
