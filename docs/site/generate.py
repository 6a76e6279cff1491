"""Write the pages of the site into a new folder: those of docs/, and the reference, which is written from the code.

`python docs/site/generate.py FOLDER`, or `make docs`, which builds the site from them.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent
sys.path.insert(0, str(HERE))

from reference import api, commands, metrics, recipes, routes, tables  # noqa: E402


def reference() -> dict[str, str]:
    """The pages of the reference by their paths below docs/, and `types.json`, from which the site links types."""
    return {
        path: text for part in (api, commands, metrics, recipes, routes, tables) for path, text in part.pages().items()
    }


def write(folder: Path) -> dict[str, str]:
    """Make `folder` with all pages of the site. Returns those of the reference."""
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns(HERE.name, "__pycache__"))
    pages = reference()
    for path, text in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return pages


if __name__ == "__main__":
    write(Path(sys.argv[1]))
