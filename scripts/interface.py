"""Writes tutelage/__init__.pyi, the names of `import tutelage` for editors and type checkers.

python scripts/interface.py
"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = "# Written by scripts/interface.py.\n\n"


def interface() -> str:
    """The text of the file: every name, imported from the module that defines it."""
    package = importlib.import_module("tutelage")
    lines = [
        "from tutelage import train as train",
        "from tutelage.base.version import __version__ as __version__",
    ]
    for name, module in package._PLACES.items():
        value = getattr(importlib.import_module(module), name)
        home = getattr(value, "__module__", module) if isinstance(value, type) else module
        lines.append(f"from {home} import {name} as {name}")
    return HEADER + "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    (ROOT / "tutelage" / "__init__.pyi").write_text(interface(), encoding="utf-8")
