"""Clients of OpenAI-compatible chat endpoints (vLLM, llama.cpp, Ollama, hosted ones), with or without a budget."""

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
from tutelage.data.records import Message, Messages, call_json, message_row, texts_only, tools_of, user
from tutelage.data.transport import InvalidAddress, Transport, check_key

KEY = "TUTELAGE_ENDPOINT_KEY"
"""Environment variable with the API key of an endpoint; a setting would end up in config.json."""
AT_ONCE = 8
"""Number of concurrent requests to an endpoint."""


@dataclass(frozen=True)
class EndpointReply:
    """Reply of a model; `finished` is false if it was truncated at the length limit. `read` and `written` are input
    and output tokens, if the server reports them."""

    text: str
    finished: bool = True
    read: int | None = field(default=None, compare=False)
    written: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Endpoint:
    """Model behind `url`, which ends before `/chat/completions`. `key` is sent as a bearer token.

    Connections are kept open; an endpoint is thread-safe.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    timeout: float = 120.0
    """Timeout of a request in seconds without a byte from the server."""
    retries: int = 3
    """Number of retries if the endpoint is busy, fails or cannot be reached."""
    wait: float = 1.0
    """Seconds before the first retry; doubled for each further one."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise _no_endpoint(self.url)
        check_key(self.key, f"the model {self.model}")

    @property
    def address(self) -> str:
        """URL of the requests."""
        return f"{self.url.rstrip('/')}/chat/completions"

    @property
    def name(self) -> str:
        """Name of this endpoint in messages."""
        return f"The model {self.model} at {self.address}"

    def request(self, messages: Messages, **options: object) -> dict[str, Any]:
        """Body of a request for a reply to a conversation."""
        return {"model": self.model, "messages": texts_only(messages, self.name), **options}

    def request_with_tools(self, messages: Messages, **options: object) -> dict[str, Any]:
        """Body of a request for a reply that may call the tools that a conversation offers."""
        schemas = tools_of(messages)
        if not schemas and all(message.is_text for message in messages):
            return self.request(messages, **options)
        offered = {"tools": [json.loads(schema) for schema in schemas]} if schemas else {}
        rows = [_wire_row(each, self.name) for each in messages]
        return {"model": self.model, "messages": rows, **offered, **options}

    def ask(self, messages: Messages, *, n: int = 1, **options: float) -> list[EndpointReply]:
        """Request `n` replies to a conversation. `options` such as temperature or max_tokens are sent unchanged.

        Servers may not support `n`: missing replies are requested again, with another seed if one was given. Raises
        TutelageError if the endpoint refuses, or still fails after the retries.
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
            raise TutelageError(f"{self.name} answered without choices: {json.dumps(answer)[:200]}.") from error
        if not texts:
            raise TutelageError(f"{self.name} answered with an empty list of choices.")
        return [EndpointReply(text, finished, read, written) for text, finished in texts]


def _wire_row(message: Message, reader: str) -> dict[str, object]:
    """The message as an endpoint takes it: arguments of calls as text. Raises TutelageError for images."""
    if message.images:
        return {**texts_only((message,), reader)[0]}
    row = message_row(message)
    if message.calls:
        row["tool_calls"] = [call_json(call) for call in message.calls]
    return row


def _tokens(answer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Input and output tokens of a response, if the server reports them."""
    usage = answer.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if usage else [None, None]
    read, written = (count if isinstance(count, int) else None for count in counts)
    return read, written


def _no_endpoint(url: str) -> TutelageError:
    return TutelageError(
        f"{url!r} is not an endpoint: give its address up to /chat/completions, such as http://localhost:8000/v1."
    )


T = TypeVar("T")

CHARACTERS = 3
"""Characters per token if an endpoint does not report usage; low, so that costs are overestimated rather than
underestimated."""
ATTEMPTS = 2
"""Number of attempts for a request whose reply cannot be parsed."""


@dataclass(frozen=True)
class Prices:
    """Prices of replies in any currency: `read` and `written` per million tokens, and the `budget`, 0 for none."""

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
class EndpointUsage:
    """Usage of an endpoint: requests sent, requests answered from the cache, input and output tokens, the cost of all
    replies, including earlier runs if cached in a file, and questions to which no reply had a value."""

    requests: int = 0
    kept: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0
    missing: int = 0


@dataclass(frozen=True)
class PaidEndpoint:
    """Model behind an endpoint, with a cache and a budget, for single questions.

    Equal questions are sent once: replies are cached in memory and, with `file`, in a file of lines for later runs.
    The budget is checked before a request is sent, so requests in flight may exceed it.
    """

    endpoint: Endpoint
    temperature: float = 0.0
    prices: Prices = field(default_factory=Prices)
    file: Path | None = None

    @property
    def usage(self) -> EndpointUsage:
        """Requests, tokens and costs so far."""
        return self._ledger.usage

    def ask(self, question: str, read: Callable[[str], T | None], expected: str) -> T:
        """Value that `read` parses from the reply to a question; a reply without one is requested once more.

        Raises TutelageError if the endpoint fails, the budget is spent, or no value is found: `expected` names it.
        """
        value, reply = self._attempts(question, read)
        if value is None:
            raise TutelageError(
                f"The judge {self.endpoint.model} gave no {expected}: '{reply.strip()[-200:]}'. Its prompt asks for "
                "one at the end; use a model that follows it, or a custom prompt."
            )
        return value

    def find(self, question: str, read: Callable[[str], T | None]) -> T | None:
        """As `ask`, but None, counted in `usage.missing`, if no value is found."""
        value, _ = self._attempts(question, read)
        if value is None:
            self._ledger.count_missing()
        return value

    def _attempts(self, question: str, read: Callable[[str], T | None]) -> tuple[T | None, str]:
        """The first value that `read` parses from a reply, None if there is none, and the last reply."""
        reply = ""
        for attempt in range(ATTEMPTS):
            reply = self._reply(question, attempt)
            value = read(reply)
            if value is not None:
                return value, reply
        return None, reply

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
        """Input tokens, output tokens, and their price."""
        read = math.ceil(len(question) / CHARACTERS) if reply.read is None else reply.read
        written = math.ceil(len(reply.text) / CHARACTERS) if reply.written is None else reply.written
        return read, written, (self.prices.read * read + self.prices.written * written) / 1e6

    def _refuse_overdraft(self) -> None:
        usage, budget = self._ledger.usage, self.prices.budget
        if budget and usage.cost >= budget:
            raise TutelageError(
                f"The budget of {budget:g} for the judge {self.endpoint.model} is spent: "
                f"{counted(usage.requests, 'request')} in this run, {usage.cost:.2f} in all. "
                "Increase the budget and continue with --resume."
            )

    @cached_property
    def _ledger(self) -> "_Ledger":
        return _Ledger(self.file)


class _Ledger:
    """Replies by digest of the request, and their costs; thread-safe."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._replies: dict[str, str] = {}
        self.usage = EndpointUsage()
        for line in [] if path is None else _lines(path):
            self._replies[line["asked"]] = line["reply"]
            self.usage = replace(self.usage, cost=self.usage.cost + line["cost"])

    def find(self, digest: str) -> str | None:
        with self._lock:
            if digest in self._replies:
                self.usage = replace(self.usage, kept=self.usage.kept + 1)
            return self._replies.get(digest)

    def count_missing(self) -> None:
        with self._lock:
            self.usage = replace(self.usage, missing=self.usage.missing + 1)

    def add(self, digest: str, reply: str, read: int, written: int, cost: float) -> None:
        with self._lock:
            self._replies[digest] = reply
            now = self.usage
            self.usage = replace(
                now,
                requests=now.requests + 1,
                read=now.read + read,
                written=now.written + written,
                cost=now.cost + cost,
            )
            if self._path is None:
                return
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"asked": digest, "reply": reply, "cost": cost}) + "\n")
            except OSError as error:
                raise TutelageError(f"The judge's replies cannot be kept in {self._path}: {error.strerror}.") from error


def _lines(path: Path) -> list[dict[str, Any]]:
    """Lines of a file of replies. An incomplete last line of a killed run is removed."""
    if not path.exists():
        return []
    try:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            path.write_bytes(whole)
        entries = [json.loads(line) for line in whole.splitlines()]  # of bytes: U+2028 ends no line
        types = {"asked": str, "reply": str, "cost": float}
        return [{key: type_(entry[key]) for key, type_ in types.items()} for entry in entries]
    except OSError as error:
        raise TutelageError(f"The judge's replies in {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TutelageError(
            f"{path} is no file of a judge's replies; name another one, or one that is not there yet."
        ) from error
