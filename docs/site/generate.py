"""Write the pages of the reference from the code: `python docs/site/generate.py`, or `make pages`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent
sys.path.insert(0, str(HERE))

from written import api, metrics, recipes, routes, tables, verbs  # noqa: E402


def pages() -> dict[str, str]:
    """Every written page, by its path below docs/."""
    return {
        path: text
        for part in (api, verbs, metrics, recipes, routes, tables)
        for path, text in part.pages().items()
    }


def main() -> None:
    written = pages()
    for path, text in written.items():
        (DOCS / path).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / path).write_text(text, encoding="utf-8")
    for path in DOCS.glob("reference/**/*.md"):
        name = path.relative_to(DOCS).as_posix()
        if name not in written and "docs/site/generate.py -->" in path.read_text(encoding="utf-8"):
            path.unlink()


if __name__ == "__main__":
    main()
