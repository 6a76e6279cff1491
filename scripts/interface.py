"""Writes the `__init__.pyi` of packages whose names are imported when they are first used, for editors and type
checkers.

python scripts/interface.py
"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = "# Written by scripts/interface.py.\n\n"
PACKAGES = {
    "tutelage": ("from tutelage import train as train", "from tutelage.base.version import __version__ as __version__"),
    "tutelage.commands.plan": (),
    "tutelage.people": (),
    "tutelage.rollout.server": (),
    "tutelage.train": (),
}
"""The packages, with the lines that do not follow from their tables of names."""


def file_of(name: str) -> Path:
    """The file with the names of a package."""
    return ROOT.joinpath(*name.split("."), "__init__.pyi")


def interface(name: str) -> str:
    """The text of the file: every name of the package, imported from the module that defines it."""
    lines = list(PACKAGES[name])
    for one, module in importlib.import_module(name)._PLACES.items():
        value = getattr(importlib.import_module(module), one)
        home = getattr(value, "__module__", module) if isinstance(value, type) else module
        lines.append(f"from {home} import {one} as {one}")
    return HEADER + "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for package in PACKAGES:
        file_of(package).write_text(interface(package), encoding="utf-8")
