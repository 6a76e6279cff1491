"""Studies in settings: the database, and the rows to use."""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.records import ALL_ROWS, StudyRows

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
    own = {f.name: f.default for f in fields(type(settings)) if f.default is not MISSING}
    names = [f.name for f in fields(StudySettings) if getattr(settings, f.name) != own[f.name]]
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise TutelageError(f"{flags} would have no effect: {data or '--prompts'} is not a study.")


def study_address(data: str) -> str | None:
    """Return the database that `data` names (a URL, a database file, or the folder of a study); None if it names
    none."""
    if data.startswith(SERVERS):
        return data
    path = Path(data).expanduser()
    if path.suffix in ENDINGS:
        return str(path)
    return str(path / FILE) if (path / FILE).is_file() else None
