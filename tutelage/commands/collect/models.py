"""Models of live conversations: endpoints by address, folders through a `tutelage serve` process each.

The application for raters never runs models: `collect serve` starts a process for each folder, on a free port of this
machine and with a secret key, restarts it with the next request if it has ended, and stops it in the end. The process
also ends if `collect serve` is killed: it watches a pipe that only `collect serve` holds.
"""

import asyncio
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from tutelage.base.config import EngineName
from tutelage.base.errors import TutelageError
from tutelage.commands.serve.settings import KEY as SERVE_KEY
from tutelage.commands.serve.settings import PARENT as SERVE_PARENT
from tutelage.data.chat_endpoint import KEY, Endpoint
from tutelage.data.chat_stream import ChatStream, ReplyPiece
from tutelage.data.records import Messages
from tutelage.data.transport import Unanswered
from tutelage.people.chat_models import SILENCE, ChatModel, EndpointModel, endpoint_of, is_address

ADDRESS = "address"
"""Word before the address in the output of `tutelage serve`."""
NAME = "model"
"""Model name in requests to a served folder."""
GRACE = 10.0
"""Seconds that a process has to terminate."""


@dataclass
class ServedFolder:
    """Model in a folder, behind a `tutelage serve` process that is started on demand."""

    folder: str
    engine: EngineName = "auto"
    _key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    _process: "subprocess.Popen[str] | None" = field(default=None, init=False)
    _url: str = field(default="", init=False)
    _stream: ChatStream | None = field(default=None, init=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)

    async def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """See `ChatModel.pieces`."""
        url = await asyncio.to_thread(self.start)
        if self._stream is None or self._stream.endpoint.url != url:
            self._stream = ChatStream(Endpoint(url, NAME, self._key, SILENCE))
        async with aclosing(self._stream.pieces(messages, **options)) as pieces:
            async for piece in pieces:
                yield piece

    def start(self) -> str:
        """Return the address of the server, starting it if it is not running. Raises Unanswered if it ends at once; its
        error has been printed."""
        with self._turn:
            if self._process is not None and self._process.poll() is None:
                return self._url
            command = ["serve", "--model", self.folder, "--model.engine", self.engine, "--name", NAME, "--port", "0"]
            process = subprocess.Popen(
                [sys.executable, "-m", "tutelage", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {SERVE_KEY: self._key, SERVE_PARENT: "1"},
            )
            self._process, self._url = process, _address(process)
            if not self._url:
                raise Unanswered(f"`tutelage serve --model {self.folder}` ended with status {process.wait()}.")
            return self._url

    def close(self) -> None:
        """Stop the process."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _address(process: "subprocess.Popen[str]") -> str:
    """Return the address that a server prints once it listens, or "" if it ends before.

    A thread reads later output, so that the server never blocks on the pipe.
    """
    assert process.stdout is not None, "it is a pipe"
    for line in process.stdout:
        word, _, url = line.strip().partition(" ")
        if word == ADDRESS:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return url.strip()
    return ""


class ServedModels:
    """Models of a study's live conversations, by name."""

    def __init__(self, engine: EngineName = "auto") -> None:
        self._engine = engine
        self._key = os.environ.get(KEY, "")
        self._known: dict[str, ChatModel] = {}

    def __call__(self, name: str) -> ChatModel:
        """Return the model with this name; a folder is served from the first request."""
        if name not in self._known:
            if is_address(name):
                self._known[name] = EndpointModel(endpoint_of(name, self._key))
            else:
                self._known[name] = ServedFolder(name, self._engine)
        return self._known[name]

    def prepare(self, names: Sequence[str]) -> None:
        """Start the models that are folders, and wait for them. Raises TutelageError if one does not start."""
        for name in dict.fromkeys(names):
            model = self(name)
            if isinstance(model, ServedFolder):
                print(f"Starting {name} ...", flush=True)
                try:
                    model.start()
                except Unanswered as error:
                    raise TutelageError(
                        f"The model {name} of the live conversations does not start: {error}"
                    ) from error

    def close(self) -> None:
        """Stop the processes."""
        for model in self._known.values():
            if isinstance(model, ServedFolder):
                model.close()
