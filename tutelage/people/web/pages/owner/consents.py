"""The consent page: the study's text, the use of votes, and how long data is retained."""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.store.consents import list_consents, present_consent
from tutelage.people.web.call import Call
from tutelage.people.web.forms import form_page


def form(call: Call, error: TutelageError | None = None) -> Response:
    """The current text, the form for a new version, and all versions."""
    return form_page(
        call,
        "owner/consent.html",
        error,
        present=present_consent(call.store, call.here.id),
        versions=list(enumerate(list_consents(call.store, call.here.id), 1))[::-1],
        place="consent",
    )
