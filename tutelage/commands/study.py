"""The study that a command names, with its database, and the secrets of the environment."""

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

import tyro

from tutelage.base.errors import TutelageError
from tutelage.commands.study_settings import ENDINGS, FILE

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.mail import MailServer

PASSWORD = "TUTELAGE_DB_PASSWORD"


@dataclass(frozen=True, kw_only=True)
class CollectSettings:
    """The web application in which people compare answers."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """The study: its database file, the folder that holds it as study.sqlite, or with --db its name."""
    db: str = ""
    """Database to use instead of a file: a postgresql:// URL."""
    name: str = ""
    """The study's name, where a file holds several."""


@dataclass(frozen=True, kw_only=True)
class SiteSettings(CollectSettings):
    """A study, and where its site is reached."""

    url: str = "http://127.0.0.1:8000"
    """Where the site is reached."""


def database(settings: CollectSettings) -> str:
    """The path or URL of the database that the settings name."""
    if settings.db:
        return with_password(settings.db)
    path = Path(settings.study).expanduser()
    return str(path if path.is_file() or path.suffix in ENDINGS else path / FILE)


def study_name(settings: CollectSettings) -> str:
    """The name of the study that the settings name; empty for the only study of a file."""
    return settings.study if settings.db else settings.name


def new_name(settings: CollectSettings) -> str:
    """The name of a new study: the one in the settings, else that of its file or folder."""
    path = Path(settings.study).expanduser().absolute()
    return study_name(settings) or (path.parent.name if path.name == FILE else path.stem)


def open_existing(settings: CollectSettings) -> "tuple[Store, Study]":
    """The open database and the study. Raises TutelageError where there is none."""
    from tutelage.people import open_store, open_study

    store = open_store(database(settings), create=False)
    return store, open_study(store, study_name(settings) or None)


def operator() -> str:
    """Who runs this command, for the audit trail: the user of this machine."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError, ImportError):
        return "command line"  # a user without a name, as in a container or on Windows


def secret(name: str) -> str:
    """A secret from the environment: the variable of that name, or the file that NAME_FILE names; empty without both.

    Raises:
        TutelageError: the file cannot be read.
    """
    file = os.environ.get(f"{name}_FILE", "")
    if os.environ.get(name) or not file:
        return os.environ.get(name, "")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TutelageError(f"{name}_FILE names {file}, which cannot be read: {error}.") from error


def mail_server(smtp: str, sender: str) -> "MailServer | None":
    """The mail server at an address, with the password that the environment gives; None without an address."""
    from tutelage.people.mail import MailServer

    return MailServer(smtp, sender, secret("TUTELAGE_SMTP_PASSWORD")) if smtp else None


def with_password(url: str) -> str:
    """The URL of a database server with the password that the environment gives, where it has none of its own."""
    parts = urlsplit(url)
    if not parts.hostname or not parts.username or parts.password or not (password := secret(PASSWORD)):
        return url
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
