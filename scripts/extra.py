"""Prints what an extra of the package asks for, one requirement per line, without the package itself. For the Makefile.

pip install $(python scripts/extra.py docs)
"""

import sys
import tomllib
from pathlib import Path


def requirements(extra: str) -> list[str]:
    """The requirements of an extra, as pyproject.toml lists them."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    listed: list[str] = project["project"]["optional-dependencies"][extra]
    return listed


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
