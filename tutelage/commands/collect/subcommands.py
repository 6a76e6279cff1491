"""Subcommands of `tutelage collect` for study operations: their settings and their output."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tutelage.base.config.files import read_text
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.study import CollectSettings, SiteSettings, open_existing, operator
from tutelage.people.operations import AMENDMENTS, RECRUIT, Amendment, MissingSettings, Operation, Parameter

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.recruitment import Cost, Recruitment
    from tutelage.people.settings import Consent


def settings_of(
    operation: Operation[Any], base: type[CollectSettings] = CollectSettings, more: str = ""
) -> type[CollectSettings]:
    """Create the settings class of an operation's subcommand: fields of `base`, and the parameters of the operation.

    In an amendment, None keeps the value in force. `OPERATION` of the class is the operation; `more` is appended to the
    description.
    """
    return dataclasses.make_dataclass(
        f"{operation.name.capitalize()}Settings",
        [_field(each, amends=isinstance(operation, Amendment)) for each in operation.parameters],
        bases=(base,),
        namespace={"__doc__": f"{operation.about} {more}".strip(), "OPERATION": operation},
        frozen=True,
        kw_only=True,
    )


def _field(parameter: Parameter, *, amends: bool) -> tuple[str, Any, Any]:
    """Return the name of a flag, its type, and its default with its help."""
    kind: Any = Path if parameter.file else parameter.type
    text = f"{'File: ' if parameter.file else ''}{parameter.text}"
    default = None if amends or parameter.required else parameter.default
    if amends:
        text += " Needed the first time." if parameter.required else ""
        text += " 0 for none." if parameter.optional and parameter.limits is not None else ""
        usual = parameter.default if not parameter.required else ""
        text += f" [default: {usual}]" if usual else ""
    kind = kind | None if default is None else kind
    kind = Annotated[kind, tyro.conf.UseAppendAction] if parameter.append else kind
    field = dataclasses.field(default=default, metadata={"text": text})
    return parameter.flag, kind, field


def given_values(settings: CollectSettings) -> dict[str, Any]:
    """Return the parameters of the operation that the command line sets, by field; for a file, its text."""
    operation: Operation[Any] = settings.OPERATION  # type: ignore[attr-defined]  # `settings_of` names it
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    values = {}
    for each in operation.parameters:
        value = getattr(settings, each.flag)
        if value != defaults[each.flag]:
            values[each.name] = read_text(value, each.name) if each.file else value
    return values


BASES: Mapping[str, type[CollectSettings]] = {RECRUIT.name: SiteSettings}
"""Base classes of subcommand settings that need more than the study, by operation."""
SETTINGS: Mapping[str, type[CollectSettings]] = {
    each.name: settings_of(each, BASES.get(each.name, CollectSettings)) for each in AMENDMENTS
}
"""Settings classes of the subcommands that amend settings in force, by operation."""


def amend(settings: CollectSettings) -> int:
    """Change the given settings in force, and print all of them."""
    operation: Amendment[Any] = settings.OPERATION  # type: ignore[attr-defined]  # `settings_of` names it
    values = given_values(settings)
    for each in operation.parameters:
        if each.optional and values.get(each.name) == 0:
            values[each.name] = None
    store, study = open_existing(settings)
    with closing(store):
        try:
            after = operation.amend(store, study.id, values, operator())
        except MissingSettings as error:
            flags = ", ".join(f"--{each.name.replace('_', '-')}" for each in error.parameters)
            raise TutelageError(f"'{study.name}' has no settings of {operation.name} yet: give {flags}.") from error
        SHOWN.get(operation.name, _show)(settings, store, study, after)
    return 0


def _show(settings: CollectSettings, store: "Store", study: "Study", after: Any) -> None:
    """Print each value."""
    print(study.name)
    for name, value in dataclasses.asdict(after).items():
        print(f"  {name.replace('_', ' '):<15}{'–' if value is None else value}")


def _show_consent(settings: CollectSettings, store: "Store", study: "Study", after: "Consent") -> None:
    from tutelage.people.store.studies import study_of

    number = study_of(store, study.id).consent
    print(
        f"{study.name}: raters agree to {f'version {number}' if number else 'the standard text'}; votes of who is "
        f"forgotten: {after.votes}; forgotten after {after.retention_days or '–'} days"
    )


def _show_recruitment(settings: SiteSettings, store: "Store", study: "Study", after: "Recruitment") -> None:
    """Print the link for the platform, and the estimated cost of the study."""
    from tutelage.people.recruitment import estimate, estimate_places
    from tutelage.people.store.visits import entry_of, work_in

    print(f"{study.name} recruits on {after.platform}, {counted(after.answers, 'answer')} a visit")
    print(f"  link   {settings.url.rstrip('/')}{entry_of(store, study.id)}")
    whole, left, seconds = work_in(store, study.id)
    measured = "as measured" if seconds is not None else "not measured yet"
    costs = {
        "whole": estimate(after, whole, seconds),
        "left": estimate(after, left, seconds),
        "places": estimate_places(after, whole, seconds),
    }
    for words, cost in costs.items():
        if cost is not None:
            print(f"  {words:<7}{_cost(cost, after.currency)}")
    print(f"  at {after.seconds if seconds is None else seconds:.0f} seconds per answer, {measured}")


def _cost(cost: "Cost", currency: str) -> str:
    return (
        f"{counted(cost.answers, 'answer')} in {counted(cost.visits, 'visit')}, "
        f"{cost.hours:,.1f} hours: {cost.pay:,.2f} pay + "
        f"{cost.fee:,.2f} fee = {cost.total:,.2f} {currency}"
    ).rstrip()


SHOWN: Mapping[str, Callable[..., None]] = {"recruit": _show_recruitment, "consent": _show_consent}
"""Functions that print the result of an operation whose output is more than its values."""
