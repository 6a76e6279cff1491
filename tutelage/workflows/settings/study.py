"""Names of the database of a study in settings."""

from pathlib import Path

FILE = "study.sqlite"
"""The database in the folder of a study."""
ENDINGS = (".sqlite", ".sqlite3", ".db")
"""Suffixes of the database files that are recognised as studies."""
SERVERS = ("postgresql://", "postgres://")
"""How the URLs of database servers begin."""


def study_address(data: str) -> str | None:
    """The database that `data` names (a URL, a database file, or the folder of a study); None where it names none."""
    if data.startswith(SERVERS):
        return data
    path = Path(data).expanduser()
    if path.suffix in ENDINGS:
        return str(path)
    return str(path / FILE) if (path / FILE).is_file() else None
