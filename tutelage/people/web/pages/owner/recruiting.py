"""Recruiting on a platform: its settings, the link for it, what it costs, and the table to pay by."""

from collections import Counter

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.platforms import PLATFORMS
from tutelage.people.recruiting import Recruitment, estimate
from tutelage.people.store.recruitments import entry_of, recruit, recruitment_of, work_in
from tutelage.people.store.visits import list_visits
from tutelage.people.visiting import payment_csv
from tutelage.people.web.call import Call, see
from tutelage.people.web.forms import form_page, number, share, whole_number


def form(call: Call) -> Response:
    """The settings as they are, the link, and the estimate."""
    return _form(call)


def change(call: Call) -> Response:
    """Recruit from now on as the form says."""
    try:
        recruit(call.store, call.here.id, _recruitment(call), actor=call.me.name)
    except TutelageError as error:
        return _form(call, error)
    return see("/owner/recruiting")


def payment_table(call: Call) -> Response:
    """Time and counts of every visit, with the identifiers of the platform."""
    headers = {"content-disposition": 'attachment; filename="payments.csv"'}
    text = payment_csv(call.store, call.here.id)
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _form(call: Call, error: TutelageError | None = None) -> Response:
    known = recruitment_of(call.store, call.here.id)
    whole, left, seconds = work_in(call.store, call.here.id)
    return form_page(
        call,
        "owner/recruiting.html",
        error,
        known=known,
        platforms=PLATFORMS,
        entry=call.origin + entry_of(call.store, call.here.id) if known is not None else "",
        costs=() if known is None else tuple(estimate(known, work, seconds) for work in (whole, left)),
        measured=seconds is not None,
        states=Counter(visit.state for visit in list_visits(call.store, call.here.id)),
        place="recruiting",
    )


def _recruitment(call: Call) -> Recruitment:
    places = call.text("places")
    return Recruitment(
        call.text("platform"),
        call.text("code"),
        call.text("screened_code"),
        call.text("return_url"),
        whole_number(call, "answers", Sentence("The number of answers"), 1, 100_000),
        whole_number(call, "places", Sentence("The number of places"), 1, 1_000_000) if places else None,
        call.text("again") == "yes",
        whole_number(call, "minutes", Sentence("The number of minutes"), 1, 100_000),
        number(call, "pay", Sentence("The pay"), 0, 1_000_000),
        call.text("currency"),
        share(call, "fee", Sentence("The fee"), 10),
        number(call, "seconds", Sentence("The time of an answer"), 0.1, 86_400),
    )
