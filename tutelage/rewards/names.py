"""Names of rewards on the command line, with their weights."""

import re
from collections.abc import Sequence

from tutelage.base.errors import TutelageError

_SPEC = re.compile(r"([\w.]+:\w*(?:\(.*\))?|[^=]*)(?:=(.*))?", re.DOTALL)
"""A reward and its weight; the settings of a rule or function may also contain =."""


def split_weight(given: str) -> tuple[str, str | None]:
    """Split a reward into its name and the text of its weight, None without one. Raises TutelageError for invalid
    input."""
    match = _SPEC.fullmatch(given)
    if match is None:
        raise TutelageError(f"The reward {given!r} cannot be read; its weight is a number after a single =.")
    return match[1], match[2]


def names_model(name: str) -> bool:
    """Whether a name is the folder of a reward model rather than a rule, a judge or a function."""
    kind, colon, _ = name.partition(":")
    return not colon or "/" in kind


def reward_models(given: Sequence[str]) -> list[str]:
    """Folders of the reward models among rewards, without weights."""
    return [name for name, _ in map(split_weight, given) if names_model(name)]
