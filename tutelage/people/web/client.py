"""An HTTP client for one rater, for simulations and load tests."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from tutelage.base.errors import TutelageError
from tutelage.data.rubrics import Criterion, Rubric
from tutelage.people.answers import Answer, new_key
from tutelage.people.web.auth import csrf_token


@dataclass(frozen=True)
class RemoteQuestion:
    """A question as a page receives it: the conversation, the responses in display order, and the steps of each."""

    id: int
    training: bool
    messages: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]
    rubric: Rubric = ()
    """The criteria of the prompt, each of 1 point: the page does not know others."""

    @property
    def prompt(self) -> str:
        """The text of the last turn."""
        return self.messages[-1][1]


class RaterClient:
    """An HTTP client signed in as one rater. `session` is the session token, `cookie` the name of the site's cookie."""

    def __init__(self, url: str, session: str, cookie: str, *, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        self._http = httpx.Client(
            base_url=url,
            cookies={cookie: session},
            headers={
                "origin": f"{parts.scheme}://{parts.netloc}",
                "x-csrf-token": csrf_token(session),
                "accept": "application/json",
            },
            timeout=timeout,
        )

    def next(
        self, besides: Sequence[int] = (), say: Callable[[Sequence[str]], str] | None = None
    ) -> tuple[RemoteQuestion | None, str]:
        """The next question for the rater, or None and the reason. In a study with live conversations, `say` writes the
        rater's messages, given the suggested openings. Raises TutelageError if the server refuses, or a model does not
        answer."""
        reply = self._post("/rate/next", {"besides": list(besides)})
        while (talk := reply["talk"]) is not None and say is not None:
            self._talk(talk, say)
            reply = self._post("/rate/next", {"besides": list(besides)})
        question = reply["question"]
        if question is None:
            return None, str(reply["why"])
        return (
            RemoteQuestion(
                question["id"],
                question["training"],
                tuple((message["role"], message["text"]) for message in question["messages"]),
                tuple(response["text"] for response in question["responses"]),
                tuple(tuple(step["text"] for step in response.get("steps", ())) for response in question["responses"]),
                tuple(map(Criterion, question["criteria"])),
            ),
            "",
        )

    def answer(self, assignment: int, answer: Answer) -> Mapping[str, Any]:
        """Submit an answer. Submitting the same answer again changes nothing."""
        common = {name: value for name, value in asdict(answer).items() if name != "content"}
        return self._post("/rate/answers", {**common, **answer.content, "assignment": assignment})

    def _talk(self, talk: Mapping[str, Any], say: Callable[[Sequence[str]], str]) -> None:
        """Send a message if it is the rater's turn, and wait for the models' responses."""
        turn = talk["writing"]
        if turn is None:
            message = {"conversation": talk["conversation"], "text": say(talk["openings"]), "key": new_key()}
            turn = self._post("/rate/messages", message)["turn"]
        address = f"/rate/turns/{turn}"
        try:
            with self._http.stream("GET", address) as response:
                last: Mapping[str, Any] = {}
                for line in response.iter_lines():
                    name, _, data = line.partition(": ")
                    last = json.loads(data) if name == "data" else last
        except (httpx.HTTPError, ValueError) as error:
            raise TutelageError(f"{self._http.base_url} cannot be used: {error}.") from error
        if not last.get("ready"):
            raise TutelageError(str(last.get("failed", f"{address} ended with status {response.status_code}.")))

    def close(self) -> None:
        self._http.close()

    def _post(self, path: str, data: Mapping[str, object]) -> Mapping[str, Any]:
        try:
            response = self._http.post(path, json=data)
            reply: Mapping[str, Any] = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise TutelageError(f"{self._http.base_url} cannot be used: {error}.") from error
        if response.is_error:
            raise TutelageError(str(reply.get("error", f"{path} answered {response.status_code}.")))
        return reply
