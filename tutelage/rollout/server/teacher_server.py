"""A teacher behind HTTP: the log-probabilities that a served model gives to tokens that another model wrote.

POST /v1/completions with `echo`, `max_tokens` 0 and `logprobs` 0: vLLM, `tutelage serve`, and servers that follow
OpenAI's first API. They tell the log-probability of each token of the prompt at temperature 1, and nothing about the
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
from tutelage.data.transport import HttpRefusal, InvalidAddress, Transport, Unanswered, check_key
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.api import Connection
from tutelage.rollout.server.rollout_servers import TIMEOUT
from tutelage.rollout.server.vllm import COMPLETIONS

AT_ONCE = 32
"""Requests in flight."""
PROBED = 256
"""Tokens of the vocabulary whose text is sent to the server, at most, to see whether it reads the same tokens."""
TOKEN = "token_id:"
"""What the name of a token begins with under `return_tokens_as_token_ids`."""


@dataclass(frozen=True)
class TeacherServer:
    """A served model that scores tokens. `context` is how many it attends to, None where the server does not say."""

    connection: Connection
    model: str
    context: int | None = None

    def __call__(self, rows: Rows) -> Float[Tensor, "B R"]:
        """The log-probability of every response token, at temperature 1; 0 where there is none.

        Raises RolloutError where the server fails, refuses, or answers in another form.
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
        """Raise TutelageError where the server reads a text as other tokens than this tokenizer does."""
        text, own = _probe(tokenizer, PROBED if self.context is None else min(PROBED, self.context - 1))
        theirs, _ = self._scored(text, {"add_special_tokens": False})
        if theirs != own:
            raise TutelageError(
                f"The teacher at {self.connection.url} has another vocabulary than the model: it reads {text[:30]!r}… "
                f"as the tokens {theirs[:6]}…, and the model as {own[:6]}…. Distillation compares the probabilities of "
                "the same tokens: give a teacher of the model's own family, or learn from its answers with "
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
        except TutelageError as error:  # no weight has moved, so the run can go on later
            raise RolloutError(str(error)) from error
        if tokens != [*prompt, *response]:
            raise RolloutError(f"The teacher at {self.connection.url} scored other tokens than it was sent.")
        return logp[len(prompt) :]

    def _scored(
        self, prompt: str | Sequence[int], more: dict[str, object] | None = None
    ) -> tuple[list[int], list[float]]:
        """The tokens of a prompt and their log-probabilities; that of the first is 0."""
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


def connect_teacher(
    address: str, tokenizer: Any, *, key: str = "", retries: int = 3, wait: float = 1.0
) -> TeacherServer:
    """The teacher at an address, whose vocabulary is that of `tokenizer`.

    Raises TutelageError where nothing answers, nothing is served, or the vocabulary is another.
    """
    check_key(key, "the teacher")
    url = address.rstrip("/").removesuffix("/v1")
    connection = Connection(url, Transport(f"The teacher at {url}", key, TIMEOUT, retries, wait))
    try:
        models = connection.get("/v1/models")
        card: dict[str, Any] = next(card for card in models["data"] if not card.get("parent"))
        teacher = TeacherServer(connection, str(card["id"]), card.get("max_model_len"))
    except InvalidAddress as error:
        raise TutelageError(
            f"{address!r} is no address: give --teacher as http://localhost:8000, or a folder."
        ) from error
    except (HttpRefusal, Unanswered):
        raise
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise TutelageError(f"The server {url} lists no model at /v1/models.") from error
    teacher.check_vocabulary(tokenizer)
    return teacher


def _probe(tokenizer: Any, most: int) -> tuple[str, list[int]]:
    """A text of tokens from all over a vocabulary, and the at most `most` tokens that it is read as."""
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
