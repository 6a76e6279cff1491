"""The study and the database of a command, and secrets from the environment."""

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
    """The web application in which people compare responses."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """Study: its database file, the folder that contains study.sqlite, or with --db its name."""
    db: str = ""
    """Database to use instead of a file: a postgresql:// URL."""
    name: str = ""
    """Name of the study, if a file holds several."""


@dataclass(frozen=True, kw_only=True)
class SiteSettings(CollectSettings):
    """A study, and the address of its site."""

    url: str = "http://127.0.0.1:8000"
    """Address of the site."""


def database(settings: CollectSettings) -> str:
    """Return the path or URL of the database in the settings."""
    if settings.db:
        return with_password(settings.db)
    path = Path(settings.study).expanduser()
    return str(path if path.is_file() or path.suffix in ENDINGS else path / FILE)


def study_name(settings: CollectSettings) -> str:
    """Return the name of the study in the settings; "" for the only study of a file."""
    return settings.study if settings.db else settings.name


def new_name(settings: CollectSettings) -> str:
    """Return the name of a new study: that in the settings, else that of its file or folder."""
    path = Path(settings.study).expanduser().absolute()
    return study_name(settings) or (path.parent.name if path.name == FILE else path.stem)


def open_existing(settings: CollectSettings) -> "tuple[Store, Study]":
    """Open the database and the study. Raises TutelageError if either does not exist."""
    from tutelage.people import open_store, open_study

    store = open_store(database(settings), create=False)
    return store, open_study(store, study_name(settings) or None)


def operator() -> str:
    """Return the user of this machine, as the actor in the audit trail."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError, ImportError):
        return "command line"  # an unnamed user, as in a container or on Windows


def secret(name: str) -> str:
    """Return a secret from the environment variable `name`, or from the file in NAME_FILE; "" without both.

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
    """Return the mail server at an address, with the password from the environment; None without an address."""
    from tutelage.people.mail import MailServer

    return MailServer(smtp, sender, secret("TUTELAGE_SMTP_PASSWORD")) if smtp else None


def with_password(url: str) -> str:
    """Add the password from the environment to the URL of a database server, if it has none."""
    parts = urlsplit(url)
    if not parts.hostname or not parts.username or parts.password or not (password := secret(PASSWORD)):
        return url
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
