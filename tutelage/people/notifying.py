"""Telling owners outside the browser what has come into the inbox: to webhooks, by e-mail.

A thread looks every `LOOK_SECONDS`. It puts occasions into the inbox (rounds that are full, agreement that is low),
sends to channels what is new since the server started, all of it in one message, and to the webhooks of the study what
they want to know, each notice as a message of its own (`delivering`). A channel that fails is tried again with the next
look, with everything that it missed; nothing else waits for it.
"""

import hashlib
import hmac
import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from tutelage.base.errors import TutelageError
from tutelage.people.answers import FLAGS
from tutelage.people.delivering import TIMEOUT_SECONDS, deliver, notice_row
from tutelage.people.languages import ENGLISH, Sentence, check_languages, say
from tutelage.people.lookout import Lookout
from tutelage.people.mailing import MailServer, check_header
from tutelage.people.store.engine import Store
from tutelage.people.store.inbox import Notice, count_notices, list_notices
from tutelage.people.store.studies import study_of

LOOK_SECONDS = 60.0
MOST_NOTICES = 200
LINES = 20
"""Notices that a message quotes; it counts the others."""
WORDS = {
    "flag": Sentence("flagged"),
    "skip": Sentence("could not be judged"),
    "practice": Sentence("failed practice"),
    "note": Sentence("note"),
    "disagreement": Sentence("undecided item"),
    "model": Sentence("model that does not answer"),
    "round": Sentence("full round"),
    "agreement": Sentence("low agreement"),
}

_log = logging.getLogger("tutelage")


@dataclass(frozen=True)
class Message:
    """What is new in the inbox of a study: the notices, oldest first, and how many of each kind wait in all. `address`
    is that of the inbox, empty where it is not known; `language` the usual one of the study."""

    study: str
    notices: tuple[Notice, ...]
    waiting: Mapping[str, int]
    address: str
    language: str = ENGLISH

    def subject(self, language: str = ENGLISH) -> str:
        """One line that names the study and counts what is new by kind."""
        counts = Counter(WORDS.get(notice.kind, notice.kind) for notice in self.notices)
        told = ", ".join(f"{count} × {say(words, language)}" for words, count in counts.items())
        return f"{self.study}: {told}"

    def text(self, language: str = ENGLISH, *, names: bool = True) -> str:
        """The message for people to read; without `names` raters stand in it under their pseudonyms."""
        lines = [say(_line(notice, language, names), language) for notice in self.notices[:LINES]]
        more = len(self.notices) - LINES
        lines += [say(Sentence("and %(count)s more", count=more), language)] if more > 0 else []
        listed = [f"- {line}" for line in lines]
        return "\n".join([self.subject(language), "", *listed, "", self.address]).rstrip() + "\n"


class Channel(Protocol):
    """A way to reach the owners."""

    @property
    def name(self) -> str:
        """The channel, for the log; without secrets."""

    def send(self, message: Message) -> None:
        """Send the message, or raise an OSError or a TutelageError."""


@dataclass(frozen=True)
class Webhook:
    """An address that takes messages as JSON. With a `secret`, the header `X-Tutelage-Signature` is `sha256=` and the
    HMAC of the body, so that the receiver can tell who sent it."""

    url: str
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise TutelageError(
                f"The webhook '{self.url}' is no address; write it as https://hooks.example.org/…."
            )

    @property
    def name(self) -> str:
        return f"the webhook at {urlsplit(self.url).hostname}"

    def send(self, message: Message) -> None:
        import httpx

        body = json.dumps(_as_json(message), ensure_ascii=False).encode()
        headers = {"content-type": "application/json"}
        if self.secret:
            signature = hmac.new(self.secret.encode(), body, hashlib.sha256).hexdigest()
            headers["x-tutelage-signature"] = f"sha256={signature}"
        try:
            reply = httpx.post(self.url, content=body, headers=headers, timeout=TIMEOUT_SECONDS)
        except httpx.HTTPError as error:
            raise TutelageError(f"it cannot be reached ({error})") from error
        if not reply.is_success:
            raise TutelageError(f"it answered {reply.status_code}")


@dataclass(frozen=True)
class Mail:
    """E-mail to an address or several, in `language` or the usual one of the study."""

    to: str
    server: MailServer
    language: str = ""

    def __post_init__(self) -> None:
        if self.language:
            check_languages((self.language,))
        check_header(self.to)

    @property
    def name(self) -> str:
        return f"mail to {self.to}"

    def send(self, message: Message) -> None:
        language = self.language or message.language
        self.server.send(self.to, message.subject(language), message.text(language))


class Notifier:
    """Sends what comes into the inbox of a study to channels, and to the webhooks that its owner set. `start` begins a
    thread, `close` ends it."""

    def __init__(self, store: Store, study_id: int, channels: Sequence[Channel], address: str = "") -> None:
        self._store, self._study, self._address = store, study_id, address
        newest = max((notice.id for notice in self._new(0)), default=0)
        self._told = dict.fromkeys(channels, newest)
        self._lookout = Lookout(store, study_id)
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._work, daemon=True, name="notifier").start()

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()

    def look(self) -> None:
        """Look out for occasions, and send what is new to each channel and webhook; one that fails is told again at a
        later look."""
        self._lookout.look()
        for channel, last in self._told.items():
            new = self._new(last)
            if not new:
                continue
            study = study_of(self._store, self._study)
            waiting = count_notices(self._store, self._study)
            message = Message(study.name, new, waiting, self._address, study.languages[0])
            try:
                channel.send(message)
            except (OSError, TutelageError) as error:
                _log.warning("The inbox could not be sent to %s: %s.", channel.name, error)
            else:
                self._told[channel] = new[-1].id
        deliver(self._store, self._study, self._address)

    def _new(self, after: int) -> tuple[Notice, ...]:
        found = list_notices(self._store, self._study, after=after, limit=MOST_NOTICES)
        return found[::-1]

    def _work(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self.look()
            except TutelageError as error:  # the database is busy: the next look will do
                _log.warning("The inbox could not be read: %s", error)


def _line(notice: Notice, language: str, names: bool) -> str:
    """A notice in a line: what, by whom, on what, and what was said."""
    told: str = WORDS.get(notice.kind, notice.kind)
    if notice.flags:
        flags = ", ".join(say(FLAGS.get(flag, flag.replace("_", " ")), language) for flag in notice.flags)
        told = Sentence("%(what)s (%(flags)s)", what=told, flags=flags)
    if notice.name:
        who = notice.name if names else notice.pseudonym
        told = Sentence("%(what)s by %(name)s", what=told, name=who)
    if notice.asked:
        told = Sentence("%(what)s on “%(asked)s”", what=told, asked=_short(notice.asked))
    if notice.text:
        told = Sentence("%(what)s: %(text)s", what=told, text=_short(say(notice.text, language)))
    return told


def _short(text: str, most: int = 200) -> str:
    one = " ".join(text.split())
    return one if len(one) <= most else one[: most - 1] + "…"


def _as_json(message: Message) -> dict[str, object]:
    """The message as a webhook takes it, without names of raters; `text` is what chat services show."""
    return {
        "text": message.text(names=False),
        "study": message.study,
        "inbox": message.address,
        "waiting": dict(message.waiting),
        "notices": [notice_row(notice) for notice in message.notices],
    }
