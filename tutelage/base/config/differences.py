"""Differences between two configurations: the reason for refusing a folder that belongs to another run."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tutelage.base.config.mapping import UNSET, to_mapping


class Difference(NamedTuple):
    """One setting that two configurations do not share."""

    key: str
    one: object
    other: object

    def __str__(self) -> str:
        return f"{self.key} ({self.one!r} against {self.other!r})"


def difference(one: object, other: object) -> list[Difference]:
    """The settings, by dotted key, in which two configurations (dataclasses or their mappings) differ."""
    left, right = flat(one), flat(other)
    pairs = (Difference(key, left.get(key, UNSET), right.get(key, UNSET)) for key in {**left, **right})
    return [pair for pair in pairs if not _same(pair.one, pair.other)]


def _same(one: object, other: object) -> bool:
    both_nan = one != one and other != other  # nan is a value here, and equal to itself
    return both_nan or (one == other and isinstance(one, bool) == isinstance(other, bool))


def flat(settings: object) -> dict[str, object]:
    """A configuration (a dataclass or its mapping) with dotted keys: {"a": {"b": 1}} -> {"a.b": 1}."""
    plain = settings if isinstance(settings, Mapping) else to_mapping(settings)
    return dict(_walk(plain, ""))


def _walk(mapping: Mapping[str, object], lead: str) -> Iterator[tuple[str, object]]:
    for name, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from _walk(value, f"{lead}{name}.")
        else:
            yield f"{lead}{name}", value
