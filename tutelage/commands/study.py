"""The study of a command: its database, the rows to use, and secrets from the environment."""

import getpass
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias
from urllib.parse import quote, urlsplit

import tyro

from tutelage.base.config.bounds import changed_flags
from tutelage.base.config.files import read_text
from tutelage.base.errors import TutelageError
from tutelage.data.records import ALL_ROWS, StudyRows

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.mail import MailServer


FILE = "study.sqlite"
"""Database file in the folder of a study."""
ENDINGS = (".sqlite", ".sqlite3", ".db")
"""Suffixes of database files that are recognised as studies."""
SERVERS = ("postgresql://", "postgres://")
"""Schemes of database server URLs."""


RaterKind: TypeAlias = Literal["human", "llm", "simulated"]


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """Selection from a study that --data names."""

    study: str = ""
    """Name of the study, if the database of --data holds several."""
    kinds: tuple[RaterKind, ...] = ("human", "simulated")
    """Kinds of raters to include, if --data is a study."""
    study_rows: tuple[StudyRows, ...] = ALL_ROWS
    """Rows of a study to use: votes (on pairs, rankings and ratings), live (turns of conversations), corrections
    (better responses that raters wrote)."""


def refuse_inert_study(settings: StudySettings, data: str) -> None:
    """Raise TutelageError if settings of a study have no effect because `data` is not a study."""
    if study_address(data) is not None:
        return
    if flags := changed_flags(settings, (field.name for field in fields(StudySettings))):
        raise TutelageError(f"{', '.join(flags)} would have no effect: {data or '--prompts'} is not a study.")


def study_address(data: str) -> str | None:
    """Return the database that `data` names (a URL, a database file, or the folder of a study); None if it names
    none."""
    if data.startswith(SERVERS):
        return data
    path = Path(data).expanduser()
    if path.suffix in ENDINGS:
        return str(path)
    return str(path / FILE) if (path / FILE).is_file() else None


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
    return read_text(Path(file), f"file in {name}_FILE:").strip()


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
