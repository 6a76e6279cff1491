"""Values of JSON texts of any origin, and the keys that an object gives twice, of which every parser keeps the last."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

_DECODER = msgspec.json.Decoder()
_SPACED = re.compile(rb'"[ \t\r\n]+:')


DEEPEST = 100
"""Objects and lists, each in the one before, at which a text is refused: whoever reads or writes the values later has
less of the stack left."""


class DeepJson(ValueError):
    """Raised for a JSON text whose values are nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"its values are nested too deeply, {DEEPEST} levels or more")


def parse_json(text: bytes | str, *, strict: bool = False) -> Any:
    """The value of a JSON text, of bytes in UTF-8. Raises ValueError for any other text, and DeepJson.

    Where msgspec refuses a text, the standard library decides: it also takes 1e999, half a surrogate pair and, unless
    `strict`, NaN and Infinity, which JSON does not have. What msgspec reads is equal, in a third of the time.
    """
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        try:
            string = text if isinstance(text, str) else text.decode()
            value = json.loads(string, parse_constant=_refuse if strict else None)
        except RecursionError:
            raise DeepJson from None
    opened = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opened >= DEEPEST and _is_deep(value):
        raise DeepJson
    return value


def unfold_json(value: object) -> object:
    """The value of a text that is the JSON of an object or a list, as tables have it; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            return parse_json(value)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _is_deep(value: object) -> bool:
    """Whether a value contains `DEEPEST` containers, each in the one before."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [each for one in level for each in (one.values() if isinstance(one, dict) else one)]
    return True


class _Repeated(dict[str, object]):
    """An object that gives `key` twice."""

    key: str


def repeated_key(text: bytes, value: object) -> str | None:
    """A key that an object in the text gives twice; None if there is none. `value` is the value of the text.

    A text with as many ends of keys (a quotation mark before a colon) as its value has keys needs no second look."""
    keys = sum(len(one) for one in _containers(value) if isinstance(one, dict))
    if text.count(b'":') == keys and not _SPACED.search(text):
        return None
    again = json.loads(text.decode(), object_pairs_hook=_pairs)
    return next((one.key for one in _containers(again) if isinstance(one, _Repeated)), None)


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    repeated = _Repeated(plain)
    repeated.key = Counter(key for key, _ in pairs).most_common(1)[0][0]
    return repeated


def _containers(value: object) -> Iterator[dict[str, object] | list[object]]:
    """The objects and lists in a value, itself included."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left += [item for item in one.values() if isinstance(item, dict | list)]
        elif isinstance(one, list):
            yield one
            left += [item for item in one if isinstance(item, dict | list)]
