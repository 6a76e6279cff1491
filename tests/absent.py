"""Modules hidden from a process, as if they were not installed. Scripts of subprocesses begin with this text."""

import sys
from typing import Any


class Without:
    """A finder of modules that does not find some."""

    def __init__(self, finder: Any, names: frozenset[str]) -> None:
        self.finder, self.names = finder, names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self.names else self.finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def hide(*names: str) -> None:
    """From now on no import finds the top-level modules `names`. They must not have been imported before."""
    assert not set(names) & set(sys.modules)
    sys.meta_path[:] = [Without(finder, frozenset(names)) for finder in sys.meta_path]
