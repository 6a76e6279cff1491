"""Recruiting on a platform: settings, link, cost estimate, and the payment table."""

from collections import Counter

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.recruitment import PLATFORMS, estimate
from tutelage.people.remuneration import payment_csv
from tutelage.people.store.visits import entry_of, list_visits, recruitment_of, work_in
from tutelage.people.web.call import Call
from tutelage.people.web.forms import form_page


def payment_table(call: Call) -> Response:
    """Time and counts of every visit, with the platform's identifiers."""
    headers = {"content-disposition": 'attachment; filename="payments.csv"'}
    text = payment_csv(call.store, call.here.id)
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def form(call: Call, error: TutelageError | None = None) -> Response:
    """The current settings, the link and the cost estimate."""
    recruitment = recruitment_of(call.store, call.here.id)
    whole, left, seconds = work_in(call.store, call.here.id)
    return form_page(
        call,
        "owner/recruiting.html",
        error,
        known=recruitment,
        platforms=PLATFORMS,
        entry=call.origin + entry_of(call.store, call.here.id) if recruitment is not None else "",
        costs=() if recruitment is None else tuple(estimate(recruitment, work, seconds) for work in (whole, left)),
        measured=seconds is not None,
        states=Counter(visit.state for visit in list_visits(call.store, call.here.id)),
        place="recruiting",
    )
