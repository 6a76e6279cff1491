"""The database and the study that the settings of a command name."""

from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.commands.collecting.settings import Settings
from tutelage.workflows.settings.study import ENDINGS, FILE

if TYPE_CHECKING:
    from tutelage.people import Store, Study


def database(settings: Settings) -> str:
    """The path or URL of the database that the settings name."""
    if settings.db:
        return settings.db
    path = Path(settings.study).expanduser()
    return str(path if path.is_file() or path.suffix in ENDINGS else path / FILE)


def study_name(settings: Settings) -> str:
    """The name of the study that the settings name; empty for the only study of a file."""
    return settings.study if settings.db else settings.name


def new_name(settings: Settings) -> str:
    """The name of a new study: the one in the settings, else that of its file or folder."""
    path = Path(settings.study).expanduser().absolute()
    return study_name(settings) or (path.parent.name if path.name == FILE else path.stem)


def open_existing(settings: Settings) -> "tuple[Store, Study]":
    """The open database and the study. Raises TutelageError where there is none."""
    from tutelage.people import open_store, open_study

    store = open_store(database(settings), create=False)
    return store, open_study(store, study_name(settings) or None)
