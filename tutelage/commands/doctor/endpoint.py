"""Checks of an OpenAI-compatible server: its models, an answer, and log-probabilities."""

import os
import time
from collections.abc import Iterator

from tutelage.base.errors import TutelageError
from tutelage.commands.doctor.machine import Check
from tutelage.data.chat_endpoint import KEY, Endpoint
from tutelage.data.records import user
from tutelage.data.transport import HttpRefusal, Transport

TIMEOUT = 60.0
"""Seconds that the server has for an answer of one token; the first one may load a model."""
SHOWN = 5
"""Names of models that are printed."""


def check_endpoint(url: str) -> tuple[Check, ...]:
    """The checks of the server at `url`, which ends before `/chat/completions`; the first of its models is asked for a
    token, and every request is sent once."""
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
    """The names in the answer to a request for models."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(each, dict) and "id" in each for each in data):
        raise TutelageError(f"The server at {url} answered without a list of models.")
    return [str(each["id"]) for each in data]


def _log_probabilities(server: Transport, url: str, model: str) -> Check:
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 1,
        "logprobs": True,
    }
    try:
        answer = server.post(f"{url}/chat/completions", asked)
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
    """What the server or the client said, and what to do about it."""
    if isinstance(error, HttpRefusal) and error.status in (401, 403):
        return f"{error} Set {KEY} to its key."
    if isinstance(error, HttpRefusal) and error.status == 404:
        return f"{error} Give the address up to /chat/completions, such as http://localhost:8000/v1."
    if isinstance(error, TutelageError):
        return str(error)
    return f"{url!r} is no address; give one such as http://localhost:8000/v1."
