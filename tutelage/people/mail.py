"""E-mail over SMTP: `MailServer`, and `send_link`, which mails the personal link of a rater.

E-mail addresses are not stored: neither in the database nor in the event history or log.
"""

import smtplib
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import localtime, make_msgid, parseaddr
from urllib.parse import unquote, urlsplit

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence, counted, say
from tutelage.people.store.access import peek_invite, revoke_invite
from tutelage.people.store.engine import DAY_MS, Store
from tutelage.people.store.raters import get_rater
from tutelage.people.store.studies import study_of
from tutelage.people.validation import FieldError, StudyError

TIMEOUT_SECONDS = 20.0
MAILED = Sentence("by e-mail")
"""The note of a personal link sent by e-mail."""


@dataclass(frozen=True)
class MailServer:
    """An SMTP server: `smtp://user@host:587` (STARTTLS if offered, required for a password) or `smtps://user@host`
    (implicit TLS). `sender` is the From address (default: that of the receiver)."""

    url: str
    sender: str = ""
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise TutelageError(
                f"The mail server '{self.url}' is invalid; write it as smtp://user@mail.example.org:587."
            )
        if parts.password:
            raise TutelageError("Omit the password from the mail server's URL; it is read from TUTELAGE_SMTP_PASSWORD.")
        if self.sender:
            check_header(self.sender)

    def send(self, to: str, subject: str, text: str) -> None:
        """Send a mail. Raises TutelageError, whose message has no full stop, if the server cannot be reached or rejects
        the mail."""
        parts = urlsplit(self.url)
        host, secure = parts.hostname or "", parts.scheme == "smtps"
        kind = smtplib.SMTP_SSL if secure else smtplib.SMTP
        mail = EmailMessage()
        mail["Subject"] = " ".join(subject.split())
        mail["From"] = sender = self.sender or to
        mail["To"] = to
        mail["Date"] = localtime()
        mail["Message-ID"] = make_msgid(domain=parseaddr(sender)[1].rpartition("@")[2])
        mail.set_content(text)
        try:
            with kind(host, parts.port or (465 if secure else 25), timeout=TIMEOUT_SECONDS) as server:
                if not secure and server.has_extn("starttls"):
                    server.starttls()
                    secure = True
                if parts.username and self.password:
                    if not secure:
                        raise TutelageError("it offers no TLS, and a password is sent over TLS only")
                    server.login(unquote(parts.username), self.password)
                server.send_message(mail)
        except smtplib.SMTPException as error:
            raise TutelageError(f"the server refused it ({_reply(error)})") from error
        except OSError as error:
            raise TutelageError(f"{host} cannot be reached ({error})") from error


def check_header(addresses: str) -> None:
    """Raises TutelageError unless `addresses`, with or without names, are valid in the header of a mail."""
    if "@" not in addresses or not addresses.isprintable():
        raise StudyError("'%(address)s' is no e-mail address.", address=addresses[:100])


def check_address(address: str) -> None:
    """Raises FieldError unless this is a single e-mail address."""
    try:
        parts = Address(addr_spec=address)
    except (MessageError, ValueError, IndexError):
        parts = Address()
    if not parts.username or not parts.domain or not address.isprintable():
        raise FieldError("email", "'%(address)s' is no e-mail address.", address=address[:100])


def send_link(store: Store, server: MailServer, token: str, to: str, base: str, *, actor: str) -> None:
    """Mail a personal link, in the default language of the study; `base` is the URL of the site. If the mail fails, the
    link is revoked. Raises FieldError if the mail was not sent."""
    invite = peek_invite(store, token)
    assert invite is not None, "the token was just made"
    assert invite.rater is not None, "the token is that of a personal link"
    study, rater = study_of(store, invite.study_id), get_rater(store, invite.rater)
    days = round((invite.expires - store.now()) / DAY_MS)
    paragraphs = (
        Sentence(
            "Hello %(name)s, this is your personal link. It brings you back to where you stopped.", name=rater.name
        ),
        f"{base}/return/{token}",
        counted(
            "It is for you alone and works on any machine, as often as you like, for %(count)s day.",
            "It is for you alone and works on any machine, as often as you like, for %(count)s days.",
            count=days,
        ),
    )
    language = study.languages[0]
    subject = Sentence("Your link to %(study)s", study=study.name)
    text = "\n\n".join(say(paragraph, language) for paragraph in paragraphs)
    try:
        check_address(to)
        server.send(to, say(subject, language), f"{text}\n")
    except TutelageError as error:
        revoke_invite(store, invite.study_id, invite.id, rater=invite.rater, actor=actor)
        if isinstance(error, FieldError):
            raise
        raise FieldError(
            "email",
            "The mail to %(address)s was not sent (%(why)s), and its link is withdrawn.",
            address=to,
            why=str(error),
        ) from error


def _reply(error: smtplib.SMTPException) -> str:
    """The reply of the server as text."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        replies: list[tuple[int, bytes | str]] = list(error.recipients.values())
    elif isinstance(error, smtplib.SMTPResponseException):
        replies = [(error.smtp_code, error.smtp_error)]
    else:
        return str(error)
    texts = [words.decode(errors="replace") if isinstance(words, bytes) else words for _, words in replies]
    return "; ".join(f"{code} {' '.join(words.split())}" for (code, _), words in zip(replies, texts, strict=True))
