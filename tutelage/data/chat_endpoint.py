"""Clients of OpenAI-compatible chat endpoints (vLLM, llama.cpp, Ollama, the hosted ones), with and without a budget."""

import hashlib
import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.records import Messages, user
from tutelage.data.transport import InvalidAddress, Transport, check_key

KEY = "TUTELAGE_ENDPOINT_KEY"
"""Environment variable that holds the key of an endpoint: a setting would end up in config.json."""
AT_ONCE = 8
"""Requests that wait for an endpoint at the same time."""


@dataclass(frozen=True)
class EndpointReply:
    """A reply of a model; `finished` is false when it was cut at the length limit. `read` and `written` are the tokens
    of the request and of the reply, where the server says so."""

    text: str
    finished: bool = True
    read: int | None = field(default=None, compare=False)
    written: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Endpoint:
    """A model behind `url`, which ends before `/chat/completions`. `key` is sent as a bearer token.

    Connections stay open between requests, and several threads may share an endpoint.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    timeout: float = 120.0
    """Seconds without a byte from the server after which a request has failed."""
    retries: int = 3
    """How often a request is sent again when the endpoint is busy, fails or cannot be reached."""
    wait: float = 1.0
    """Seconds before the first of these; twice as long before each further one."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise _no_endpoint(self.url)
        check_key(self.key, f"the model {self.model}")

    @property
    def address(self) -> str:
        """The address of the requests."""
        return f"{self.url.rstrip('/')}/chat/completions"

    @property
    def name(self) -> str:
        """The subject of messages about this endpoint."""
        return f"The model {self.model} at {self.address}"

    def request(self, messages: Messages, **options: object) -> dict[str, Any]:
        """The body of a request for a reply to a conversation."""
        turns = [{"role": turn.role, "content": turn.content} for turn in messages]
        return {"model": self.model, "messages": turns, **options}

    def ask(self, messages: Messages, *, n: int = 1, **options: float) -> list[EndpointReply]:
        """`n` replies to a conversation. `options` such as temperature or max_tokens are sent as they are.

        Not every server knows `n`: replies that are missing are asked for again, with another seed where one was given.
        Raises TutelageError where the endpoint refuses, or still fails after the retries.
        """
        replies: list[EndpointReply] = []
        while len(replies) < n:
            body = self.request(messages, **options)
            if n - len(replies) > 1:
                body["n"] = n - len(replies)
            if "seed" in options:
                body["seed"] = int(options["seed"]) + len(replies)
            try:
                replies += self._replies(self._transport.post(self.address, body))
            except InvalidAddress as error:
                raise _no_endpoint(self.url) from error
        return replies[:n]

    @cached_property
    def _transport(self) -> Transport:
        return Transport(self.name, self.key, self.timeout, self.retries, self.wait)

    def _replies(self, answer: Any) -> list[EndpointReply]:
        try:
            read, written = _tokens(answer) if len(answer["choices"]) == 1 else (None, None)
            texts = [
                (str(choice["message"]["content"] or ""), choice.get("finish_reason") != "length")
                for choice in answer["choices"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise TutelageError(
                f"{self.name} answered without choices: {json.dumps(answer)[:200]}."
            ) from error
        if not texts:
            raise TutelageError(f"{self.name} answered with an empty list of choices.")
        return [EndpointReply(text, finished, read, written) for text, finished in texts]


def _tokens(answer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The tokens that were read and written for an answer, where the server says how many."""
    usage = answer.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if usage else [None, None]
    read, written = (count if isinstance(count, int) else None for count in counts)
    return read, written


def _no_endpoint(url: str) -> TutelageError:
    return TutelageError(
        f"{url!r} is no endpoint: give its address up to /chat/completions, such as http://localhost:8000/v1."
    )


T = TypeVar("T")

CHARACTERS = 3
"""Characters of a token, where an endpoint does not say how many tokens it read and wrote: rather few, so that costs
are over- rather than underestimated."""
ATTEMPTS = 2
"""How often a request is sent whose reply cannot be read."""


@dataclass(frozen=True)
class Prices:
    """What replies cost, in any currency: `read` and `written` per million tokens, and the `budget`, 0 for none."""

    read: float = 0.0
    written: float = 0.0
    budget: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= value < math.inf for value in (self.read, self.written, self.budget)):
            raise TutelageError("The prices and the budget of a judge are numbers of 0 or more.")
        if self.budget and not (self.read or self.written):
            raise TutelageError(
                "A budget needs the prices of what the judge reads and writes, per million tokens: without them "
                "nothing is ever spent."
            )


@dataclass(frozen=True)
class Usage:
    """What was asked of an endpoint: requests sent, requests answered by replies that were kept, tokens read and
    written, and what all replies cost, those of earlier runs included where they are kept in a file."""

    requests: int = 0
    kept: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class PaidEndpoint:
    """A model behind an endpoint that is asked single questions.

    Equal questions are sent once: replies are kept in memory and, with `file`, in a file of lines that later runs read.
    The budget is looked at before a request is sent; those that are under way at that time may overdraw it.
    """

    endpoint: Endpoint
    temperature: float = 0.0
    prices: Prices = field(default_factory=Prices)
    file: Path | None = None

    @property
    def usage(self) -> Usage:
        """Requests, tokens and costs until now."""
        return self._ledger.usage

    def ask(self, question: str, read: Callable[[str], T | None], expected: str) -> T:
        """The value that `read` finds in the reply to a question; a reply without one is asked for once more.

        Raises TutelageError where the endpoint does not answer, the budget is spent, or no value is found: `expected`
        names it.
        """
        reply = ""
        for attempt in range(ATTEMPTS):
            reply = self._reply(question, attempt)
            value = read(reply)
            if value is not None:
                return value
        raise TutelageError(
            f"The judge {self.endpoint.model} gave no {expected}: '{reply.strip()[-200:]}'. Its prompt asks for one at "
            "the end; use a model that follows it, or a prompt of your own."
        )

    def _reply(self, question: str, attempt: int) -> str:
        key = json.dumps([self.endpoint.model, self.temperature, question, attempt])
        digest = hashlib.sha256(key.encode()).hexdigest()
        earlier = self._ledger.find(digest)
        if earlier is not None:
            return earlier
        self._refuse_overdraft()
        (reply,) = self.endpoint.ask(user(question), temperature=self.temperature)
        self._ledger.add(digest, reply.text, *self._tokens(question, reply))
        return reply.text

    def _tokens(self, question: str, reply: EndpointReply) -> tuple[int, int, float]:
        """Tokens read, tokens written, and their price."""
        read = math.ceil(len(question) / CHARACTERS) if reply.read is None else reply.read
        written = math.ceil(len(reply.text) / CHARACTERS) if reply.written is None else reply.written
        return read, written, (self.prices.read * read + self.prices.written * written) / 1e6

    def _refuse_overdraft(self) -> None:
        usage, budget = self._ledger.usage, self.prices.budget
        if budget and usage.cost >= budget:
            raise TutelageError(
                f"The budget of {budget:g} for the judge {self.endpoint.model} is spent: "
                f"{counted(usage.requests, 'request')} in this run, {usage.cost:.2f} in all. Give it a larger budget "
                "and go on with --resume."
            )

    @cached_property
    def _ledger(self) -> "_Ledger":
        return _Ledger(self.file)


class _Ledger:
    """Replies by the digest of what was asked, and what they cost; several threads may share one."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._replies: dict[str, str] = {}
        self.usage = Usage()
        for line in [] if path is None else _lines(path):
            self._replies[line["asked"]] = line["reply"]
            self.usage = replace(self.usage, cost=self.usage.cost + line["cost"])

    def find(self, digest: str) -> str | None:
        with self._lock:
            if digest in self._replies:
                self.usage = replace(self.usage, kept=self.usage.kept + 1)
            return self._replies.get(digest)

    def add(self, digest: str, reply: str, read: int, written: int, cost: float) -> None:
        with self._lock:
            self._replies[digest] = reply
            now = self.usage
            self.usage = Usage(
                now.requests + 1, now.kept, now.read + read, now.written + written, now.cost + cost
            )
            if self._path is None:
                return
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"asked": digest, "reply": reply, "cost": cost}) + "\n")
            except OSError as error:
                raise TutelageError(
                    f"The judge's replies cannot be kept in {self._path}: {error.strerror}."
                ) from error


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of replies. A last line without its end was cut as a run was killed, and is taken away."""
    if not path.exists():
        return []
    try:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            path.write_bytes(whole)
        entries = [json.loads(line) for line in whole.decode().splitlines()]
        types = {"asked": str, "reply": str, "cost": float}
        return [{key: type_(entry[key]) for key, type_ in types.items()} for entry in entries]
    except OSError as error:
        raise TutelageError(f"The judge's replies in {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TutelageError(
            f"{path} is no file of a judge's replies; name another one, or one that is not there yet."
        ) from error
