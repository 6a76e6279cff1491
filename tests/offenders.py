"""A law about many values as one test, whose failure names every value that breaks it."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from inspect import Signature, signature
from typing import Any

import pytest

FAILURES = (AssertionError, pytest.fail.Exception)  # the second is that of `pytest.raises`


def for_each(values: Iterable[Any], name: Callable[[Any], str] = str) -> Callable[[Any], Any]:
    """Make one test of a function of a value and of fixtures: it is called with each of the values in turn.

    A tuple is several arguments. Each value has a `tmp_path` of its own, and what it patched is undone before the next.
    """
    cases = [value if type(value) is tuple else (value,) for value in values]
    assert cases, "a law about no value holds for nothing"

    def decorate(law: Callable[..., None]) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            offenders: list[str] = []
            first = None
            for number, case in enumerate(cases):
                with ExitStack() as stack:
                    try:
                        law(*case, **_afresh(fixtures, number, stack))
                    except FAILURES as error:
                        offenders.append(f"{name(case[0] if len(case) == 1 else case)}: {error}")
                        first = first or error
                    except Exception as error:
                        error.add_note(f"case: {case}")
                        raise
            if offenders:
                raise AssertionError("\n".join(offenders)) from first

        test.__name__, test.__doc__, test.__module__ = law.__name__, law.__doc__, law.__module__
        rest = list(signature(law).parameters.values())[len(cases[0]) :]
        test.__signature__ = Signature(rest)  # type: ignore[attr-defined]  # the fixtures, for pytest
        return test

    return decorate


def _afresh(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    """The fixtures as a test of the value alone would have them, as far as they keep anything."""
    own = dict(fixtures)
    if "monkeypatch" in own:
        own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    if "caplog" in own:
        own["caplog"].clear()
    if "capsys" in own:
        own["capsys"].readouterr()
    return own
