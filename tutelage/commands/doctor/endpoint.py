"""Checks of an OpenAI-compatible server: its models, a completion, and log-probabilities."""

import os
import time
from collections.abc import Iterator

from tutelage.base.errors import TutelageError
from tutelage.commands.doctor.machine import Check
from tutelage.data.chat_endpoint import KEY, Endpoint
from tutelage.data.records import user
from tutelage.data.transport import HttpRefusal, Transport

TIMEOUT = 60.0
"""Timeout in seconds for a completion of one token; the first request may load a model."""
SHOWN = 5
"""Maximum number of model names to print."""


def check_endpoint(url: str) -> tuple[Check, ...]:
    """Check the server at `url`, up to `/chat/completions`.

    Its first model is asked for one token, and no request is retried.
    """
    return tuple(_checks(url.rstrip("/").removesuffix("/chat/completions")))


def _checks(url: str) -> Iterator[Check]:
    try:
        endpoint = Endpoint(url, "", os.environ.get(KEY, ""), TIMEOUT, retries=0)
        server = Transport(f"The server at {url}", endpoint.key, TIMEOUT, retries=0)
        names = _names(server.get(f"{url}/models"), url)
    except (TutelageError, ValueError) as error:
        yield Check("models", "cannot be listed", "fault", _advice(error, url))
        return
    if not names:
        yield Check("models", f"{url} has none", "fault", "Start the server with a model.")
        return
    more = ", …" if len(names) > SHOWN else ""
    yield Check("models", f"{', '.join(names[:SHOWN])}{more} at {url}")
    began = time.monotonic()
    try:
        reply = Endpoint(url, names[0], endpoint.key, TIMEOUT, retries=0).ask(user("Hi"), max_tokens=1)[0]
    except TutelageError as error:
        yield Check("answer", f"none of {names[0]}", "fault", _advice(error, url))
        return
    yield Check("answer", f"{reply.text!r} of {names[0]} in {time.monotonic() - began:.1f} s")
    yield _log_probabilities(server, url, names[0])


def _names(answer: object, url: str) -> list[str]:
    """Return the model names in the response to a request for models."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(each, dict) and "id" in each for each in data):
        raise TutelageError(f"The server at {url} answered without a list of models.")
    return [str(each["id"]) for each in data]


def _log_probabilities(server: Transport, url: str, model: str) -> Check:
    request = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "logprobs": True}
    try:
        answer = server.post(f"{url}/chat/completions", request)
        offered = bool(answer["choices"][0]["logprobs"]["content"])
        why = ""
    except (KeyError, TypeError, IndexError):
        offered, why = False, ""
    except TutelageError as error:
        offered, why = False, f" {error}"
    if offered:
        return Check("log-probs", "offered")
    advice = f"Judges and conversations do not need them; rollouts do.{why}"
    return Check("log-probs", "not offered", "warning", advice)


def _advice(error: Exception, url: str) -> str:
    """Return the error of the server or the client, with advice."""
    if isinstance(error, HttpRefusal) and error.status in (401, 403):
        return f"{error} Set {KEY} to its key."
    if isinstance(error, HttpRefusal) and error.status == 404:
        return f"{error} Give the address up to /chat/completions, such as http://localhost:8000/v1."
    if isinstance(error, TutelageError):
        return str(error)
    return f"{url!r} is not an address; give one such as http://localhost:8000/v1."
