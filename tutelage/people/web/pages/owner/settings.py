"""The settings of a study: the question and the consent page, which are versioned; the distribution of work and
recruiting, which are not."""

from collections import Counter

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import Presentation, list_events, present, set_languages, set_state
from tutelage.people.languages import LANGUAGES, Sentence, Share
from tutelage.people.recruitment import PLATFORMS, Cost, estimate, estimate_places
from tutelage.people.remuneration import payment_csv
from tutelage.people.store.consents import list_consents, present_consent
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.studies import list_versions
from tutelage.people.store.visits import entry_of, list_visits, recruitment_of, work_in
from tutelage.people.validation import FieldError
from tutelage.people.web.call import Call, see
from tutelage.people.web.forms import form_page, lines_of

POLICIES = {
    "finish_first": Sentence("finish started items first"),
    "priority": Sentence("by priority, %(share)s at random", share=Share(0.3)),
    "random": Sentence("at random"),
}


def form(call: Call, error: TutelageError | None = None) -> Response:
    """The current settings."""
    counts = {
        event.detail.get("version"): event for event in list_events(call.store, call.here.id, action="study_version")
    }
    versions = list(enumerate(list_versions(call.store, call.here.id), 1))[::-1]
    return form_page(
        call,
        "owner/settings.html",
        error,
        versions=versions,
        told=counts,
        policies=POLICIES,
        languages=LANGUAGES.values(),
        live=find_live_models(call.store, call.here.id),
        place="settings",
    )


def ask(call: Call) -> Response:
    """Change the presentation, which creates a new version."""
    present(call.store, call.here.id, _presentation(call), actor=call.me.name)
    return see("/owner/settings")


def _presentation(call: Call) -> Presentation:
    scale, scales = call.text("scale"), call.here.kind.traits.scales
    if scale not in map(str, scales):
        raise FieldError("scale", "Choose one of the scales.")
    criteria = lines_of(call, "criteria")
    if not call.text("question"):
        raise FieldError("question", "Write the question that raters are asked.")
    guidelines = call.text("guidelines").replace("\r\n", "\n")
    return Presentation(
        call.text("question"),
        int(scale),
        criteria,
        guidelines,
        call.text("corrections") == "yes",
        lines_of(call, "spans"),
    )


def languages(call: Call) -> Response:
    """Set the default language of the rater's pages and the alternatives."""
    usual = call.text("language")
    others = (code for code in call.fields.get("others", ()) if code != usual)
    set_languages(call.store, call.here.id, (usual, *others), actor=call.me.name)
    return see("/owner/settings")


def state(call: Call) -> Response:
    """Open, pause or close the study."""
    set_state(call.store, call.here.id, call.text("state"), actor=call.me.name)  # type: ignore[arg-type]  # it checks
    return see("/owner/settings")


def payment_table(call: Call) -> Response:
    """Time and counts of every visit, with the platform's identifiers."""
    headers = {"content-disposition": 'attachment; filename="payments.csv"'}
    text = payment_csv(call.store, call.here.id)
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def recruiting_form(call: Call, error: TutelageError | None = None) -> Response:
    """The current settings, the link and the cost estimate."""
    recruitment = recruitment_of(call.store, call.here.id)
    whole, left, seconds = work_in(call.store, call.here.id)
    costs: list[Cost] = []
    if recruitment is not None:
        places = estimate_places(recruitment, whole, seconds)
        costs = [estimate(recruitment, work, seconds) for work in (whole, left)] + ([places] if places else [])
    return form_page(
        call,
        "owner/recruiting.html",
        error,
        known=recruitment,
        platforms=PLATFORMS,
        entry=call.origin + entry_of(call.store, call.here.id) if recruitment is not None else "",
        costs=costs,
        measured=seconds is not None,
        states=Counter(visit.state for visit in list_visits(call.store, call.here.id)),
        place="recruiting",
    )


def consent_form(call: Call, error: TutelageError | None = None) -> Response:
    """The current text, the form for a new version, and all versions."""
    return form_page(
        call,
        "owner/consent.html",
        error,
        present=present_consent(call.store, call.here.id),
        versions=list(enumerate(list_consents(call.store, call.here.id), 1))[::-1],
        place="consent",
    )
