"""Studies in settings: the database, and what is read of it."""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.records import ALL_ROWS, StudyRows

FILE = "study.sqlite"
"""The database in the folder of a study."""
ENDINGS = (".sqlite", ".sqlite3", ".db")
"""Suffixes of the database files that are recognised as studies."""
SERVERS = ("postgresql://", "postgres://")
"""How the URLs of database servers begin."""


RaterKind: TypeAlias = Literal["human", "llm", "simulated"]


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What is read of a study that --data names."""

    study: str = ""
    """The study's name, where the database of --data holds several."""
    kinds: tuple[RaterKind, ...] = ("human", "simulated")
    """Kinds of rater that count, where --data is a study."""
    study_rows: tuple[StudyRows, ...] = ALL_ROWS
    """What is read of a study: votes (on pairs, rankings and ratings), live (turns of conversations), corrections
    (better responses that raters wrote)."""


def refuse_inert_study(settings: StudySettings, data: str) -> None:
    """Raises TutelageError where settings of a study would do nothing because `data` is none."""
    if study_address(data) is not None:
        return
    own = {f.name: f.default for f in fields(type(settings)) if f.default is not MISSING}
    names = [f.name for f in fields(StudySettings) if getattr(settings, f.name) != own[f.name]]
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise TutelageError(f"{flags} would do nothing: {data or '--prompts'} is no study.")


def study_address(data: str) -> str | None:
    """The database that `data` names (a URL, a database file, or the folder of a study); None where it names none."""
    if data.startswith(SERVERS):
        return data
    path = Path(data).expanduser()
    if path.suffix in ENDINGS:
        return str(path)
    return str(path / FILE) if (path / FILE).is_file() else None
