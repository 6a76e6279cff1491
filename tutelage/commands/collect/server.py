"""`tutelage collect serve`: serve one or several studies to browsers, and the models of their live conversations.

The application for raters never runs models: `collect serve` starts a `tutelage serve` process for each folder, on a
free port of this machine and with a secret key, restarts it with the next request if it has ended, and stops it in the
end. The process also ends if `collect serve` is killed: it watches a pipe that only `collect serve` holds.
"""

import asyncio
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tutelage.base.config import EngineName
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.settings import Serve
from tutelage.commands.serve.settings import KEY as SERVE_KEY
from tutelage.commands.serve.settings import PARENT as SERVE_PARENT
from tutelage.commands.study import FILE, CollectSettings, database, mail_server, operator, secret, study_name
from tutelage.data.chat_endpoint import KEY, Endpoint
from tutelage.data.chat_stream import ChatStream, ReplyPiece
from tutelage.data.records import Messages
from tutelage.data.transport import Unanswered
from tutelage.people.live_conversation import SILENCE, ChatModel, EndpointModel, endpoint_of, is_address
from tutelage.rollout.serving.asgi_server import listen, server, signals_handled

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.mail import MailServer
    from tutelage.people.notification import Channel
    from tutelage.people.web.identity import SignInMethods


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
            command = [
                "serve", "--model", self.folder, "--model.engine", self.engine, "--name", NAME, "--port", "0",
            ]  # fmt: skip
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


OWNER = "owner"


def serve(settings: Serve) -> int:
    """Print the addresses and the owners' links, and serve the studies until ctrl-C.

    Raises:
        TutelageError: a tool of the conversations cannot be used, or none of the studies has conversations.
    """
    from tutelage.people.store.conversations import find_live_models
    from tutelage.people.web import Served, create_app, create_server
    from tutelage.people.web.app import mount_of
    from tutelage.rollout.tools.builtin import load_tools

    mail = mail_server(settings.smtp, settings.mail_from or settings.mail_to)
    options: dict[str, Any] = {
        "public_url": settings.public_url, "sign_in": _sign_in_methods(settings), "mail": mail,
        "trusted": settings.trusted_proxy,
    }  # fmt: skip
    with ExitStack() as stack:
        opened, several = open_each(settings)
        for store in {id(store): store for store, _ in opened}.values():
            stack.enter_context(closing(store))
        models = stack.enter_context(closing(ServedModels(settings.engine)))
        listening = stack.enter_context(closing(listen(settings.host, settings.port)))
        tools = load_tools(settings.tools) if settings.tools else None
        live = [find_live_models(store, study.id) for store, study in opened]
        if tools is not None and not any(live):
            raise TutelageError("--tools are for live conversations, and the study has none: leave them out.")
        models.prepare([name for each in live if each is not None for name in each.names])
        if several:
            served = [Served(store, study, models, tools) for store, study in opened]
            app: object = create_server(served, **options)
        else:
            app = create_app(opened[0][0], models=models, tools=tools, **options)
        host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
        base = settings.public_url.rstrip("/") or f"http://{host}:{listening.getsockname()[1]}"
        for store, study in opened:
            url = base + (mount_of(study.name) if several else "")
            _announce(store, study, url, settings)
            _watch(stack, store, study, url, settings, mail)
        print("Invite raters from the owner's page. ctrl-C stops the server; all answers are on disk.", flush=True)
        stack.enter_context(signals_handled())
        server(app).run(sockets=[listening])
    return 0


def open_each(settings: Serve) -> "tuple[list[tuple[Store, Study]], bool]":
    """Open the studies to serve; also return whether there are several: more than one name, or a folder of studies.

    Studies of one database share its store.

    Raises:
        TutelageError: there is no study at one of the names.
    """
    from tutelage.people import open_store, open_study

    places = [place for name in (settings.study, *settings.more) for place in _studies_at(settings, name)]
    stores: dict[str, Store] = {}
    opened: list[tuple[Store, Study]] = []
    try:
        for place in places:
            address = database(place)
            if address not in stores:
                stores[address] = open_store(address, create=False)
            opened.append((stores[address], open_study(stores[address], study_name(place) or None)))
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return opened, len(places) > 1 or places[0].study != settings.study


def _studies_at(settings: Serve, name: str) -> list[CollectSettings]:
    """Return the study with this name, or those in the folder with this name."""
    one = CollectSettings(study=name, db=settings.db, name=settings.name)
    folder = Path(name).expanduser()
    if settings.db or not folder.is_dir() or (folder / FILE).exists():
        return [one]
    inside = sorted(folder.glob(f"*/{FILE}"))
    return [CollectSettings(study=str(file.parent)) for file in inside] or [one]


def _announce(store: "Store", study: "Study", url: str, settings: Serve) -> None:
    print(
        f"{study.name}\n"
        f"  address       {url}\n"
        f"  owner's link  {url}/return/{owner_link(store, study, settings.owner)}   (works once, within a day)\n"
        f"  database      {store.address}\n"
        f"                {describe(store, study)}"
    )


def _watch(
    stack: ExitStack, store: "Store", study: "Study", url: str, settings: Serve, mail: "MailServer | None"
) -> None:
    """Start the background tasks of a study: notifications of the owners, and erasure of raters who are due."""
    from tutelage.people.notification import Notifier
    from tutelage.people.store.rater_erasure import Retention

    for each in (
        Notifier(store, study.id, _channels(settings, mail), f"{url}/owner/inbox"),
        Retention(store, study.id),
    ):
        each.start()
        stack.enter_context(closing(each))


def _sign_in_methods(settings: Serve) -> "SignInMethods":
    """Return the sign-in methods other than links."""
    from tutelage.people.web.identity import Provider, Proxy, Roles, SignInMethods

    provider = None
    if settings.oidc_issuer:
        import authlib  # noqa: F401  # fail now if it is missing, not at the first sign-in

        provider = Provider(settings.oidc_issuer, settings.oidc_client, secret("TUTELAGE_OIDC_SECRET"))
    header = settings.proxy_user_header
    proxy = Proxy(header, settings.trusted_proxy) if header else None
    return SignInMethods(provider, proxy, Roles(settings.owners, settings.reviewers))


def _channels(settings: Serve, mail: "MailServer | None") -> "list[Channel]":
    """Return the channels that notify the owners of new inbox entries."""
    from tutelage.people.notification import MailChannel, WebhookChannel

    channels: list[Channel] = []
    if settings.webhook:
        channels.append(WebhookChannel(settings.webhook, secret("TUTELAGE_WEBHOOK_SECRET")))
    if settings.mail_to and mail is not None:
        channels.append(MailChannel(settings.mail_to, mail, settings.mail_language))
    return channels


def owner_link(store: "Store", study: "Study", name: str = "") -> str:
    """Return a single-use sign-in token of the owner with this name, or of the first owner; the owner is created if
    absent.

    Raises:
        TutelageError: the name belongs to a member who is not an owner, or whose access was removed.
    """
    from tutelage.base.errors import TutelageError
    from tutelage.people import add_rater, find_rater, start_session
    from tutelage.people.store.members import list_team

    owners = [member for member in list_team(store, study.id) if member.role == "owner" and not member.removed]
    owner = find_rater(store, study.id, name) if name else next(iter(owners), None)
    if owner is not None and owner.role != "owner":
        raise TutelageError(f"'{owner.name}' is a {owner.role} of '{study.name}', not an owner; name another.")
    if owner is None:
        owner = add_rater(store, study.id, name or OWNER, role="owner", actor=operator())
    return start_session(store, owner.id, days=1)


def describe(store: "Store", study: "Study") -> str:
    """Return one line with the numbers of questions, judgements and raters of the study."""
    from tutelage.people import count_study, list_raters

    counts = count_study(store, study.id)
    raters = sum(rater.role == "rater" for rater in list_raters(store, study.id))
    return ", ".join(
        (counted(counts.items, "question"), counted(counts.judgements, "judgement"), counted(raters, "rater"))
    )
