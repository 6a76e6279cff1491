"""One place for SQL."""

import ast
from pathlib import Path

import tutelage


def test_only_the_store_speaks_sql() -> None:
    package = Path(tutelage.__file__).parent
    speakers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.split(".")[0] in ("sqlalchemy", "alembic", "sqlite3", "psycopg")
    }
    assert speakers
    assert all(speaker.startswith("people/store/") for speaker in speakers), speakers
