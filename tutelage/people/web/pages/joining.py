"""Coming in, agreeing to take part, and leaving."""

from starlette.responses import Response

from tutelage.errors import TutelageError
from tutelage.people import (
    Invite,
    Rater,
    accept_invite,
    consent,
    end_session,
    get_rater,
    peek_invite,
    rater_of_session,
    release,
    start_session,
)
from tutelage.people.store.studies import study_of
from tutelage.people.web.auth import SESSION_DAYS, cookie_header
from tutelage.people.web.call import Call, Refusal, see


def home(call: Call) -> Response:
    """Where whoever comes belongs."""
    if call.rater is None:
        return call.page("home.html")
    return see(_place_of(call.me))


def invitation(call: Call) -> Response:
    """What the link of an invitation shows. Nothing is used up by looking: mail scanners follow links."""
    invite = _invite(call)
    return call.page("join.html", invite=invite, name="", problem=invite.problem, host=_host(call, invite))


def join(call: Call) -> Response:
    """Accept the invitation under a name."""
    invite = _invite(call)
    name = call.text("name")
    try:
        rater, session = accept_invite(call.store, call.path["token"], name, session_days=SESSION_DAYS)
    except TutelageError as error:
        host = _host(call, invite)
        refusal = call.page("join.html", invite=invite, name=name, problem=str(error), host=host)
        refusal.status_code = 400
        return refusal
    return _signed_in(call, rater, session)


def way_back(call: Call) -> Response:
    """What a personal link shows: it brings someone back who is known already."""
    rater = _known(call)
    return call.page("return.html", name=rater.name, host=study_of(call.store, rater.study_id))


def come_back(call: Call) -> Response:
    """Use the personal link, which opens nothing afterwards."""
    rater = _known(call)
    end_session(call.store, call.path["token"])
    return _signed_in(call, rater, start_session(call.store, rater.id, days=SESSION_DAYS))


def leave(call: Call) -> Response:
    """Give back what is on the screen, and end the session."""
    release(call.store, call.me.id)
    end_session(call.store, call.session)
    response = see("/")
    response.headers["set-cookie"] = cookie_header(call.site.cookie, "", secure=call.site.secure)
    return response


def welcome(call: Call) -> Response:
    """What the study is about, and what becomes of the answers."""
    return call.page("welcome.html")


def agree(call: Call) -> Response:
    """Agree to take part."""
    if call.me.consented is None:
        consent(call.store, call.me.id)
    return see("/rate")


def must_agree(rater: Rater) -> bool:
    """Whether someone has yet to agree before anything is asked."""
    return rater.consented is None and rater.kind == "human" and rater.role == "rater"


def _place_of(rater: Rater) -> str:
    if rater.role == "owner":
        return "/owner"
    return "/welcome" if must_agree(rater) else "/rate"


def _signed_in(call: Call, rater: Rater, session: str) -> Response:
    """Always with a new session: one that was there before the invitation is of no use to whoever planted it."""
    if call.session:
        end_session(call.store, call.session)
    response = see(_place_of(get_rater(call.store, rater.id)))
    response.headers["set-cookie"] = cookie_header(call.site.cookie, session, secure=call.site.secure)
    return response


def _invite(call: Call) -> Invite:
    found = peek_invite(call.store, call.path["token"]) if _may_try(call) else None
    if found is None:
        call.site.attempts.failed(call.address)
        raise Refusal(404, "This invitation does not exist; ask whoever sent it for a new one.")
    return found


def _known(call: Call) -> Rater:
    found = rater_of_session(call.store, call.path["token"]) if _may_try(call) else None
    if found is None:
        call.site.attempts.failed(call.address)
        raise Refusal(404, "This link was used already, or never existed; ask whoever sent it for a new one.")
    return found


def _may_try(call: Call) -> bool:
    wait = call.site.attempts.wait(call.address)
    if wait:
        sentence = f"Too many links from your address did not exist; try again in {wait} seconds."
        raise Refusal(429, sentence, retry_after=wait)
    return True


def _host(call: Call, invite: Invite) -> object:
    return study_of(call.store, invite.study_id)
