"""Notification of owners about new notices in the inbox, by webhook and e-mail.

Every `LOOK_SECONDS`, a thread adds events to the inbox (full rounds, low agreement), sends all new notices to each
channel in one message, and delivers the notices that the study's webhooks subscribe to, one message each (`deliver`). A
failed channel is sent the notices it missed in the next cycle; it does not delay other channels.

    {"type": "round.full", "timestamp": "2026-05-01T09:30:00Z",
     "data": {"study": "tutoring", "inbox": "https://…/owner/inbox", "round": 2, "items": 40}}

is the message to a webhook of a study. Types are `round.full`, `agreement.low`, `inbox.KIND` (such as `inbox.flag`) and
`test`. A delivered message is never sent again; a failed one is retried with the same message id and increasing delays
for three days.
"""

import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from tutelage.base.errors import TutelageError
from tutelage.people.answers import FLAGS
from tutelage.people.languages import ENGLISH, Sentence, check_languages, say
from tutelage.people.mail import MailServer, check_header
from tutelage.people.programs.signatures import signed_headers
from tutelage.people.statistics.cache import Keeper
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.engine import Store
from tutelage.people.store.inbox import Notice, alarm_of, count_notices, list_notices, notice_agreement, notice_round
from tutelage.people.store.studies import study_of
from tutelage.people.store.survey import survey
from tutelage.people.store.votes import Snapshot, last_moment
from tutelage.people.store.webhooks import Delivery, claim_delivery, queue_deliveries, secrets_of, settle_delivery

TIMEOUT_SECONDS = 20.0
MOST_AT_ONCE = 100
"""Maximum number of deliveries per call of `deliver`."""
TYPES = {"round": "round.full", "agreement": "agreement.low"}
"""Message types by kind of notice; the default is `inbox.KIND`."""
_log = logging.getLogger("tutelage")


def deliver(store: Store, study_id: int, inbox: str = "") -> int:
    """Send the due messages of a study's webhooks; returns the number delivered. After a failure, a URL is skipped
    until the next call. `inbox` is the URL of the inbox."""
    queue_deliveries(store, study_id)
    arrived, failing = 0, set[int]()
    for _ in range(MOST_AT_ONCE):
        delivery = claim_delivery(store, study_id, failing)
        if delivery is None:
            break
        problem = _send_delivery(store, study_id, delivery, inbox)
        again = settle_delivery(store, delivery, problem)
        if not problem:
            arrived += 1
            continue
        failing.add(delivery.webhook)
        _log.warning(
            "The webhook at %s %s; %s.",
            urlsplit(delivery.url).hostname,
            problem,
            "it will be retried" if again else "the message is discarded after three days",
        )
    return arrived


def send_test(store: Store, study_id: int, number: int) -> str:
    """Send a message of type `test` to a webhook; returns a description of the error, empty on success. Raises
    TutelageError if the study has no such webhook."""
    url, signed_with = secrets_of(store, study_id, number)
    data = {"study": study_of(store, study_id).name}
    body = _body("test", store.now(), data)
    return _send(url, signed_with, f"msg_{secrets.token_urlsafe(24)}", body)


def _send_delivery(store: Store, study_id: int, delivery: Delivery, inbox: str) -> str:
    notice, study = delivery.notice, study_of(store, study_id)
    data = {"study": study.name, "inbox": inbox} | dict(notice.facts or notice_row(notice))
    kind = TYPES.get(notice.kind, f"inbox.{notice.kind}")
    return _send(delivery.url, delivery.secrets, delivery.message, _body(kind, notice.created, data))


def notice_row(notice: Notice) -> dict[str, object]:
    """A notice caused by a person, as JSON, with the pseudonym of the rater."""
    return {
        "id": notice.id,
        "kind": notice.kind,
        "item": notice.item,
        "asked": notice.asked,
        "rater": notice.pseudonym,
        "flags": list(notice.flags),
        "said": notice.text,
        "created": notice.created,
    }


def _body(kind: str, at: int, data: Mapping[str, object]) -> bytes:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at / 1000))
    return json.dumps({"type": kind, "timestamp": when, "data": data}, ensure_ascii=False).encode()


def _send(url: str, signed_with: Sequence[str], message: str, body: bytes) -> str:
    """Send a message once; returns a description of the error, empty on success. Redirects are not followed: only the
    owner chooses the URL."""
    import httpx

    try:
        headers = {"content-type": "application/json"} | signed_headers(signed_with, message, int(time.time()), body)
        reply = httpx.post(url, content=body, headers=headers, timeout=TIMEOUT_SECONDS, follow_redirects=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Sentence("cannot be reached (%(error)s)", error=str(error) or type(error).__name__)
    except TutelageError as error:
        return str(error)
    return "" if reply.is_success else Sentence("answered with status %(status)s", status=str(reply.status_code))


LOOK_SECONDS = 60.0
MOST_NOTICES = 200
LINES = 20
"""Number of notices quoted in a message; further ones are only counted."""
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


@dataclass(frozen=True)
class InboxMessage:
    """New notices of a study, oldest first, and the numbers of open notices by kind. `address` is the URL of the inbox
    (may be empty), `language` the default language of the study."""

    study: str
    notices: tuple[Notice, ...]
    waiting: Mapping[str, int]
    address: str
    language: str = ENGLISH

    def subject(self, language: str = ENGLISH) -> str:
        """The subject line: the study, and the numbers of new notices by kind."""
        counts = Counter(WORDS.get(notice.kind, notice.kind) for notice in self.notices)
        summary = ", ".join(f"{count} × {say(words, language)}" for words, count in counts.items())
        return f"{self.study}: {summary}"

    def text(self, language: str = ENGLISH, *, names: bool = True) -> str:
        """The message as plain text, with raters by name, or by pseudonym without `names`."""
        lines = [say(_line(notice, language, names), language) for notice in self.notices[:LINES]]
        more = len(self.notices) - LINES
        lines += [say(Sentence("and %(count)s more", count=more), language)] if more > 0 else []
        listed = [f"- {line}" for line in lines]
        return "\n".join([self.subject(language), "", *listed, "", self.address]).rstrip() + "\n"


class Channel(Protocol):
    """A channel to the owners."""

    @property
    def name(self) -> str:
        """Name of the channel in the log, without secrets."""

    def send(self, message: InboxMessage) -> None:
        """Send the message. Raises OSError or TutelageError on failure."""


@dataclass(frozen=True)
class WebhookChannel:
    """A URL that accepts messages as JSON. With a `secret`, the header `X-Tutelage-Signature` is `sha256=` followed by
    the HMAC of the body."""

    url: str
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise TutelageError(f"The webhook '{self.url}' is not a URL; write it as https://hooks.example.org/….")

    @property
    def name(self) -> str:
        return f"the webhook at {urlsplit(self.url).hostname}"

    def send(self, message: InboxMessage) -> None:
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
class MailChannel:
    """E-mail to one or more addresses, in `language` (default: that of the study)."""

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

    def send(self, message: InboxMessage) -> None:
        language = self.language or message.language
        self.server.send(self.to, message.subject(language), message.text(language))


class Notifier:
    """Sends new notices of a study to channels and webhooks. `start` starts a thread, `close` stops it."""

    def __init__(self, store: Store, study_id: int, channels: Sequence[Channel], address: str = "") -> None:
        self._store, self._study, self._address = store, study_id, address
        newest = max((notice.id for notice in self._new(0)), default=0)
        self._told = dict.fromkeys(channels, newest)
        self._lookout = Lookout(store, study_id)
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._work, daemon=True, name="notifier").start()

    def close(self) -> None:
        self._ended.set()

    def look(self) -> None:
        """Check for events, and send new notices to each channel and webhook. Failed messages are retried in a later
        cycle."""
        self._lookout.look()
        for channel, last in self._told.items():
            new = self._new(last)
            if not new:
                continue
            study = study_of(self._store, self._study)
            waiting = count_notices(self._store, self._study)
            message = InboxMessage(study.name, new, waiting, self._address, study.languages[0])
            try:
                channel.send(message)
            except (OSError, TutelageError) as error:
                _log.warning("The inbox could not be sent to %s: %s.", channel.name, error)
            else:
                self._told[channel] = new[-1].id
        deliver(self._store, self._study, self._address)

    def _new(self, after: int) -> tuple[Notice, ...]:
        notices = list_notices(self._store, self._study, after=after, limit=MOST_NOTICES)
        return notices[::-1]

    def _work(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self.look()
            except TutelageError as error:  # the database is busy: retry in the next cycle
                _log.warning("The inbox could not be read: %s", error)


def _line(notice: Notice, language: str, names: bool) -> str:
    """A notice as one line: kind, rater, prompt and text."""
    line: str = WORDS.get(notice.kind, notice.kind)
    if notice.flags:
        flags = ", ".join(say(FLAGS.get(flag, flag.replace("_", " ")), language) for flag in notice.flags)
        line = Sentence("%(what)s (%(flags)s)", what=line, flags=flags)
    if notice.name:
        who = notice.name if names else notice.pseudonym
        line = Sentence("%(what)s by %(name)s", what=line, name=who)
    if notice.asked:
        line = Sentence("%(what)s on “%(asked)s”", what=line, asked=_short(notice.asked))
    if notice.text:
        line = Sentence("%(what)s: %(text)s", what=line, text=_short(say(notice.text, language)))
    return line


def _short(text: str, most: int = 200) -> str:
    one = " ".join(text.split())
    return one if len(one) <= most else one[: most - 1] + "…"


def _as_json(message: InboxMessage) -> dict[str, object]:
    """The message as JSON for webhooks, without names of raters; chat services display `text`."""
    return {
        "text": message.text(names=False),
        "study": message.study,
        "inbox": message.address,
        "waiting": dict(message.waiting),
        "notices": [notice_row(notice) for notice in message.notices],
    }


LEAST_ITEMS = 20
"""Minimum number of items with two or more raters for a notice about agreement."""


class Lookout:
    """Detects events that notify the owners of a study. The database records which events were notified."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store, self._study = store, study_id
        self._keeper = Keeper(store)
        self._moment: Snapshot | None = None

    def look(self) -> None:
        """Add new events to the inbox."""
        with self._store.read() as connection:
            moment = last_moment(connection, self._study)
        if moment != self._moment:
            self._look_at_rounds()
            self._moment = moment
        if alarm_of(self._store, self._study) is not None:
            self._look_at_agreement()

    def _look_at_rounds(self) -> None:
        live = find_live_models(self._store, self._study)
        for each in survey(self._store, self._study).rounds:
            grows = live is not None and each.number == live.round  # with every turn of a conversation
            if each.items and each.complete == each.items and not grows:
                notice_round(self._store, self._study, each.number, each.items)

    def _look_at_agreement(self) -> None:
        entry = self._keeper.whole(study_of(self._store, self._study))
        agreement = entry.value.statistics.agreement if entry.value is not None else None
        if agreement is not None and agreement.value is not None and agreement.items >= LEAST_ITEMS:
            notice_agreement(self._store, self._study, agreement.value, agreement.items)
