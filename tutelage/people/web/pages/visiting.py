"""Arrival from a recruiting platform, and return to it with a completion code."""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.recruitment import Platform, Recruitment, Visitor, find_platform
from tutelage.people.remuneration import finish
from tutelage.people.store.studies import Study, study_of
from tutelage.people.store.visits import NotAdmitted, enter, recruitment_of, study_of_entry, visit_of
from tutelage.people.web.auth import SESSION_DAYS
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.pages.joining import no_such_link, signed_in


def arrival(call: Call) -> Response:
    """The page of the platform's link. Viewing it uses nothing up."""
    study, recruitment, platform = _entry(call)
    visitor = _visitor(call, study, platform)
    return call.page("enter.html", host=study, recruitment=recruitment, platform=platform, preview=visitor.preview)


def take_in(call: Call) -> Response:
    """Admit a platform's participant, as a new rater or as the existing one with the same identifier."""
    study, _, platform = _entry(call)
    visitor = _visitor(call, study, platform)
    if visitor.preview:
        raise Refusal(
            400, Sentence("Accept the task on %(platform)s first; then open the link again.", platform=platform.words)
        )
    try:
        rater, session = enter(call.store, study.id, visitor, session_days=SESSION_DAYS)
    except NotAdmitted as error:
        raise Refusal(409, sentence(error), study=study) from error
    visit = visit_of(call.store, rater.id)
    ended = visit is not None and visit.state != "active"
    return signed_in(call, rater, session, "/finish" if ended else "")


def over(call: Call) -> Response:
    """The end of a visit: the completion code and the return link, or the number of missing answers."""
    ending = finish(call.store, call.me.id)
    if ending is None:
        return see("/rate")
    return call.page("finish.html", told=ending)


def _entry(call: Call) -> tuple[Study, Recruitment, Platform]:
    study_id = study_of_entry(call.store, call.path["token"])
    if study_id is None or not call.site.holds(study_id):
        raise no_such_link(call, Sentence("This link leads to no study; ask whoever sent it, or return the task."))
    recruitment = recruitment_of(call.store, study_id)
    assert recruitment is not None, "the link is a part of it"
    return study_of(call.store, study_id), recruitment, find_platform(recruitment.platform)


def _visitor(call: Call, study: Study, platform: Platform) -> Visitor:
    try:
        return platform.visitor(lambda name: call.query.get(name, ("",))[-1].strip())
    except TutelageError as error:
        raise Refusal(400, sentence(error), study=study) from error
