"""What raters agree to: the study's own text, what becomes of votes, and how long people are kept."""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.store.consents import Consent, ask_consent, consent_of, list_consents
from tutelage.people.web.call import Call, see
from tutelage.people.web.forms import form_page, whole_number


def form(call: Call) -> Response:
    """The present text, the form for another one, and all versions."""
    return _form(call)


def change(call: Call) -> Response:
    """Ask raters to agree to what the form says, from now on."""
    days = call.text("retention_days")
    try:
        kept = (
            whole_number(call, "retention_days", Sentence("The number of days"), 1, 36_500) if days else None
        )
        text = call.text("text").replace("\r\n", "\n")
        new = Consent(text, call.text("votes"), kept)  # type: ignore[arg-type]  # it checks
        ask_consent(call.store, call.here.id, new, actor=call.me.name)
    except TutelageError as error:
        return _form(call, error)
    return see("/owner/consent")


def _form(call: Call, error: TutelageError | None = None) -> Response:
    return form_page(
        call,
        "owner/consent.html",
        error,
        present=consent_of(call.store, call.here.id, call.here.consent),
        versions=list(enumerate(list_consents(call.store, call.here.id), 1))[::-1],
        place="consent",
    )
