"""A law about many values as one test, whose failure names every value that breaks it."""

from collections.abc import Callable, Iterable
from inspect import Signature, signature
from typing import Any


def for_each(values: Iterable[Any], name: Callable[[Any], str] = str) -> Callable[[Any], Any]:
    """Make one test of a function of a value and of fixtures: it is called with each of the values in turn."""

    def decorate(law: Callable[..., None]) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            offenders = []
            for value in values:
                try:
                    law(value, **fixtures)
                except AssertionError as error:
                    offenders.append(f"{name(value)}: {error}")
            assert not offenders, "\n".join(offenders)

        test.__name__, test.__doc__, test.__module__ = law.__name__, law.__doc__, law.__module__
        _value, *rest = signature(law).parameters.values()
        test.__signature__ = Signature(rest)  # type: ignore[attr-defined]  # the fixtures, for pytest
        return test

    return decorate
