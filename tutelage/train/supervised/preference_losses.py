"""Losses over pairs by name, with settings that are given as text."""

import json
from collections.abc import Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches

from tutelage.algorithms.registry import imported
from tutelage.base.config import from_mapping, to_mapping
from tutelage.base.errors import TutelageError
from tutelage.core.preferences import PREFERENCE_LOSSES, PreferenceLoss


def preference_loss(name: str, assignments: Sequence[str] = ()) -> PreferenceLoss:
    """The loss of this name, or one of your own as `module:NAME`, with `setting=value` assignments applied.

    Raises TutelageError for an unknown name or setting, listing what there is, and for a value that makes no sense.
    """
    loss = _named(name)
    if not assignments:
        return loss
    piece: object = loss
    if not is_dataclass(piece):
        raise TutelageError(f"The loss {name} has no settings, so {', '.join(assignments)} would do nothing.")
    given = to_mapping(piece) | dict(_parsed(text) for text in assignments)
    try:
        return from_mapping(type(loss), given, source=f"--loss {name}")
    except ValueError as error:
        raise TutelageError(f"--loss {name}: {error}") from error


def _named(name: str) -> PreferenceLoss:
    if ":" in name:
        found = imported(name)
        loss = found() if isinstance(found, type) else found
        if not callable(loss):
            raise TutelageError(f"{name} is a {type(loss).__name__}, which cannot be called with pairs.")
        return loss
    if name in PREFERENCE_LOSSES:
        return PREFERENCE_LOSSES[name]
    near = get_close_matches(name.lower(), PREFERENCE_LOSSES, n=1)
    hint = f"Did you mean {near[0]}?" if near else "One of your own is given as module:NAME."
    raise TutelageError(f"There is no loss {name!r}; known are {', '.join(PREFERENCE_LOSSES)}. {hint}")


def _parsed(assignment: str) -> tuple[str, object]:
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip() or not text.strip():
        raise TutelageError(f"{assignment!r} is not an assignment; write it as beta=0.1.")
    try:
        value: object = json.loads(text.strip())
    except json.JSONDecodeError:
        value = text.strip()
    return path.strip(), value
