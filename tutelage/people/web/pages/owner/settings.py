"""What is asked, and how the work is shared out. What raters see is versioned; the rest may change at any time."""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import TypeVar

from starlette.responses import Response

from tutelage.errors import TutelageError
from tutelage.people import Presentation, list_events, present, replan, set_state
from tutelage.people.store.exports import list_versions
from tutelage.people.web.call import Call, see

N = TypeVar("N", int, float)


def form(call: Call) -> Response:
    """The settings as they are."""
    told = {
        event.detail.get("version"): event
        for event in list_events(call.store, call.here.id, action="study_version")
    }
    versions = list(enumerate(list_versions(call.store, call.here.id), 1))[::-1]
    return call.page("owner/settings.html", versions=versions, told=told, place="settings")


def ask(call: Call) -> Response:
    """Change what raters see: a new version."""
    scale = call.text("scale")
    if not scale.isdecimal() or int(scale) not in call.here.kind.traits.scales:
        known = ", ".join(map(str, sorted(call.here.kind.traits.scales)))
        raise TutelageError(f"The scale is '{scale[:50]}'; choose one of {known}.")
    criteria = tuple(
        dict.fromkeys(line.strip() for line in call.text("criteria").splitlines() if line.strip())
    )
    guidelines = call.text("guidelines").replace("\r\n", "\n")
    if not call.text("question"):
        raise TutelageError("The question is empty; raters need to be asked something.")
    present(
        call.store,
        call.here.id,
        Presentation(call.text("question"), int(scale), criteria, guidelines),
        actor=call.me.name,
    )
    return see("/owner/settings")


def plan(call: Call) -> Response:
    """Change how the work is shared out, from now on."""
    changed = replace(
        call.here.plan,
        overlap=_number(call, "overlap", int),
        policy=call.text("policy"),  # type: ignore[arg-type]  # the plan looks at it
        gold_rate=_number(call, "gold_rate", float),
        repeat_rate=_number(call, "repeat_rate", float),
        training_pass=_number(call, "training_pass", float),
        lease_seconds=_number(call, "lease_seconds", int),
    )
    replan(call.store, call.here.id, changed, actor=call.me.name)
    return see("/owner/settings")


def _number(call: Call, name: str, kind: Callable[[str], N]) -> N:
    given = call.text(name)
    try:
        value = kind(given)
    except ValueError:
        value = None
    if value is None or not isfinite(value):
        raise TutelageError(f"The {name.replace('_', ' ')} is '{given[:50]}'; give a number.")
    return value


def state(call: Call) -> Response:
    """Open, pause or close the study."""
    set_state(call.store, call.here.id, call.text("state"), actor=call.me.name)  # type: ignore[arg-type]  # it checks
    return see("/owner/settings")
