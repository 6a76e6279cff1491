"""Names of rewards on the command line, with their weights."""

import re
from collections.abc import Sequence

from tutelage.base.errors import TutelageError

_SPEC = re.compile(r"([\w.]+:\w*(?:\(.*\))?|[^=]*)(?:=(.*))?", re.DOTALL)
"""A reward and its weight; the settings of a rule or function may also contain =."""


FOLDS = ("last", "min", "product", "mean", "sum")
"""Ways to make the score of a completion from the scores of its steps, as in min:FOLDER."""


def split_weight(reward: str) -> tuple[str, str | None]:
    """Split a reward into its name and the text of its weight, None without one. Raises TutelageError for invalid
    input."""
    match = _SPEC.fullmatch(reward)
    if match is None:
        raise TutelageError(f"The reward {reward!r} cannot be read; its weight is a number after a single =.")
    return match[1], match[2]


def names_model(name: str) -> bool:
    """Whether a name is the folder of a reward model, such as FOLDER or min:FOLDER, rather than a rule, a judge or a
    function."""
    kind, colon, _ = name.partition(":")
    return not colon or "/" in kind or kind in FOLDS


def split_fold(name: str) -> tuple[str, str]:
    """Folder of a reward model, and how it folds the scores of steps; "" if its name does not say."""
    kind, colon, folder = name.partition(":")
    return (folder, kind) if colon and kind in FOLDS else (name, "")


def reward_models(rewards: Sequence[str]) -> list[str]:
    """Folders of the reward models among rewards, without weights."""
    return [split_fold(name)[0] for name, _ in map(split_weight, rewards) if names_model(name)]
