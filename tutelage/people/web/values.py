"""Typed values from JSON bodies."""

from collections.abc import Mapping

from tutelage.people.web.call import Refusal

Data = Mapping[str, object]


def integer(data: Data, name: str, default: int | None = None) -> int:
    """A whole number of at most 15 digits. Raises Refusal for anything else."""
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 10**15:
        raise Refusal(400, f"'{name}' must be a whole number.")
    return value


def optional_integer(data: Data, name: str) -> int | None:
    return None if data.get(name) is None else integer(data, name)


def text(data: Data, name: str, default: str | None = None) -> str:
    """A text that can be encoded as UTF-8. Raises Refusal for anything else."""
    value = data.get(name, default)
    if not isinstance(value, str) or _unwritable(value):
        raise Refusal(400, f"'{name}' must be text.")
    return value


def integers(data: Data, name: str) -> tuple[int, ...]:
    return tuple(integer({name: value}, name) for value in _list(data, name))


def texts(data: Data, name: str) -> tuple[str, ...]:
    return tuple(text({name: value}, name) for value in _list(data, name))


def pairs_of_text(data: Data, name: str) -> dict[str, str]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise Refusal(400, f"'{name}' must be an object.")
    return {text({name: key}, name): text({name: each}, name) for key, each in value.items()}


def _list(data: Data, name: str) -> list[object]:
    value = data.get(name, [])
    if not isinstance(value, list) or len(value) > 100:
        raise Refusal(400, f"'{name}' must be a list of at most 100 values.")
    return value


def _unwritable(value: str) -> bool:
    """Whether the text holds a lone surrogate or a NUL character, which databases reject."""
    return "\0" in value or any("\ud800" <= character <= "\udfff" for character in value)
