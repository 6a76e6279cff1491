"""What raters agree to: the study's own text, what becomes of votes, and how long people are kept."""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.store.consents import list_consents, present_consent
from tutelage.people.web.call import Call
from tutelage.people.web.forms import form_page


def form(call: Call, error: TutelageError | None = None) -> Response:
    """The present text, the form for another one, and all versions."""
    return form_page(
        call,
        "owner/consent.html",
        error,
        present=present_consent(call.store, call.here.id),
        versions=list(enumerate(list_consents(call.store, call.here.id), 1))[::-1],
        place="consent",
    )
