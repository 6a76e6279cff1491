"""The database and the study that the settings of a command name."""

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.settings import CollectSettings
from tutelage.commands.collecting.settings_serving import Serve
from tutelage.commands.study_settings import ENDINGS, FILE

PASSWORD = "TUTELAGE_DB_PASSWORD"

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.mailing import MailServer


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


def open_each(settings: Serve) -> "tuple[list[tuple[Store, Study]], bool]":
    """The open databases with the studies that are to be served, and whether they are several: more than one is named,
    or a folder that holds folders of studies. Studies of one database share it.

    Raises:
        TutelageError: there is no study at one of them.
    """
    from tutelage.people import open_store, open_study

    places = [place for name in (settings.study, *settings.more) for place in _studies_at(settings, name)]
    stores: dict[str, Store] = {}
    found: list[tuple[Store, Study]] = []
    try:
        for place in places:
            address = database(place)
            if address not in stores:
                stores[address] = open_store(address, create=False)
            found.append((stores[address], open_study(stores[address], study_name(place) or None)))
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return found, len(places) > 1 or places[0].study != settings.study


def _studies_at(settings: Serve, name: str) -> list[CollectSettings]:
    """The study of that name, or those in the folder of that name."""
    one = CollectSettings(study=name, db=settings.db, name=settings.name)
    folder = Path(name).expanduser()
    if settings.db or not folder.is_dir() or (folder / FILE).exists():
        return [one]
    inside = sorted(folder.glob(f"*/{FILE}"))
    return [CollectSettings(study=str(file.parent)) for file in inside] or [one]


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
    from tutelage.people.mailing import MailServer

    return MailServer(smtp, sender, secret("TUTELAGE_SMTP_PASSWORD")) if smtp else None


def with_password(url: str) -> str:
    """The URL of a database server with the password that the environment gives, where it has none of its own."""
    parts = urlsplit(url)
    if not parts.hostname or not parts.username or parts.password or not (password := secret(PASSWORD)):
        return url
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
