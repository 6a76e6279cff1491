"""`tutelage collect recruit` and `payments`: raters from a platform, and the table to pay them by."""

from contextlib import closing
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collecting.place import open_existing, operator
from tutelage.commands.collecting.settings_people import Payments, Recruit

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.recruiting import Cost, Recruitment


def recruit_raters(settings: Recruit) -> int:
    """Change how the study recruits, and print it."""
    from tutelage.people.store.recruitments import entry_of, recruit, recruitment_of

    store, study = open_existing(settings)
    with closing(store):
        before = recruitment_of(store, study.id)
        after = _changed(settings, before)
        if after != before:
            recruit(store, study.id, after, actor=operator())
        print(f"{study.name} recruits on {after.platform}, {counted(after.answers, 'answer')} a visit")
        print(f"  link   {settings.url.rstrip('/')}{entry_of(store, study.id)}")
        _print_costs(store, study, after)
    return 0


def _changed(settings: Recruit, before: "Recruitment | None") -> "Recruitment":
    from tutelage.people.recruiting import Recruitment

    given = {each.name: getattr(settings, each.name) for each in fields(Recruitment)}
    given = {name: value for name, value in given.items() if value is not None}
    if given.get("places") == 0:
        given["places"] = None
    if before is None and "platform" not in given:
        raise TutelageError(
            "The study does not recruit yet: name the platform, --platform prolific|mturk|sona."
        )
    return Recruitment(**(asdict(before) if before is not None else {}) | given)


def _print_costs(store: "Store", study: "Study", recruitment: "Recruitment") -> None:
    from tutelage.people.recruiting import estimate
    from tutelage.people.store.recruitments import work_in

    whole, left, seconds = work_in(store, study.id)
    measured = "as measured" if seconds is not None else "not measured yet"
    for words, work in (("whole", whole), ("left", left)):
        print(f"  {words:<7}{_cost(estimate(recruitment, work, seconds), recruitment.currency)}")
    print(f"  at {recruitment.seconds if seconds is None else seconds:.0f} seconds per answer, {measured}")


def _cost(cost: "Cost", currency: str) -> str:
    return (
        f"{counted(cost.answers, 'answer')} in {counted(cost.visits, 'visit')}, "
        f"{cost.hours:,.1f} hours: {cost.pay:,.2f} pay + "
        f"{cost.fee:,.2f} fee = {cost.total:,.2f} {currency}"
    ).rstrip()


def write_payments(settings: Payments) -> int:
    """Write the table, or print it."""
    from tutelage.people.visiting import payment_csv

    store, study = open_existing(settings)
    with closing(store):
        text = payment_csv(store, study.id)
    if settings.out is None:
        print(text, end="")
        return 0
    try:
        with settings.out.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise TutelageError(f"{settings.out} cannot be written: {error.strerror or error}.") from error
    print(f"{settings.out}: {counted(text.count(chr(10)) - 1, 'row')}, with the identifiers of the platform")
    return 0
