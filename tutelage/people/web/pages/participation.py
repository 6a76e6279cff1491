"""Arrival by an invitation, a personal link, a recruiting platform or, for owners and reviewers, a trusted proxy or an
OpenID provider; consent; sign-out, and return to the platform.
"""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Invite,
    NameTaken,
    Rater,
    accept_invite,
    end_session,
    get_rater,
    list_studies,
    peek_invite,
    personal_link,
    rater_of_session,
    release,
    start_session,
)
from tutelage.people.languages import LANGUAGES, Sentence, counted
from tutelage.people.recruitment import Platform, Recruitment, Visitor, find_platform
from tutelage.people.remuneration import finish
from tutelage.people.store import consents
from tutelage.people.store.access import PERSONAL_DAYS
from tutelage.people.store.consents import consent_of, standard_points
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.engine import DAY_MS
from tutelage.people.store.members import Identity, sign_in
from tutelage.people.store.raters import DECIDING
from tutelage.people.store.studies import Study, open_study, study_of
from tutelage.people.store.visits import NotAdmitted, end_visit, enter, recruitment_of, study_of_entry, visit_of
from tutelage.people.web.auth import SESSION_DAYS, cookie_header
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.forms import form_page
from tutelage.people.web.identity import Pending, SignInError
from tutelage.people.web.site import Site, announce_member, forget_member

LEFT = "on leaving"
"""The note on personal links that raters see when they leave."""


def home(call: Call) -> Response:
    """Redirect to the start page of the visitor's role."""
    if call.rater is None and call.visitor is not None:
        return see("/sign-in")
    if call.rater is None:
        return call.page("home.html", signs_in=call.site.sign_in.provider is not None)
    return see(_place_of(call.me, call.here))


def invitation(call: Call, error: TutelageError | None = None) -> Response:
    """The page of an invitation link. Viewing uses nothing up, because mail scanners follow links. Someone signed in to
    the same study may continue under their existing name."""
    invite = _invite(call)
    member = call.rater is not None and call.rater.study_id == invite.study_id
    return form_page(
        call,
        "join.html",
        error,
        invite=invite,
        taken=error.name if isinstance(error, NameTaken) else "",
        host=study_of(call.store, invite.study_id),
        known=call.rater if member else None,
    )


def join(call: Call) -> Response:
    """Accept the invitation under a name."""
    _invite(call)
    rater, session = accept_invite(call.store, call.path["token"], call.text("name"), session_days=SESSION_DAYS)
    return signed_in(call, rater, session)


def way_back(call: Call) -> Response:
    """The page of a link back: a rater's reusable personal link, or a single-use link."""
    rater, link = _known(call)
    host = study_of(call.store, rater.study_id)
    return call.page("return.html", host=host, who=rater, lasting=link is not None)


def come_back(call: Call) -> Response:
    """Sign in by the link; a single-use link then expires."""
    rater, link = _known(call)
    token = call.path["token"]
    if link is not None:
        return signed_in(call, *accept_invite(call.store, token, rater.name, session_days=SESSION_DAYS))
    end_session(call.store, token)
    return signed_in(call, rater, start_session(call.store, rater.id, days=SESSION_DAYS))


def leave(call: Call) -> Response:
    """Release the reserved questions, end the session, and show a rater the personal link for coming back. A visitor
    from a recruiting platform also gives up the place or, if the visit is over, sees the completion code."""
    ending = finish(call.store, call.me.id)
    release(call.store, call.me.id)
    end_session(call.store, call.session)
    if ending is not None:
        end_visit(call.store, call.me.id, "left")
        over = ending.visit.state in ("complete", "screened")
        response = call.page("finish.html" if over else "gone.html", told=ending, rater=None, csrf="")
    elif call.me.role in DECIDING:
        response = see("/")
    else:
        token = personal_link(call.store, call.me.id, note=LEFT, actor=call.me.name)
        left = {
            "rater": None,
            "csrf": "",
            "name": call.me.name,
            "until": call.store.now() + round(PERSONAL_DAYS * DAY_MS),
        }
        response = call.page("left.html", link=f"{call.origin}/return/{token}", **left)
    response.headers["set-cookie"] = _session_cookie(call.site, "")
    forget_member(call.site, response)
    return response


def welcome(call: Call) -> Response:
    """The page that explains the study and the use of the answers."""
    text = consent_of(call.store, call.here.id, call.here.consent).text
    live = find_live_models(call.store, call.here.id) is not None
    points = standard_points(live=live)
    return call.page("welcome.html", visit=visit_of(call.store, call.me.id), text=text, live=live, points=points)


def agree(call: Call) -> Response:
    """Consent to the text that was shown; if it has changed since, the new text is shown first."""
    if call.text("version", str(call.here.consent)) != str(call.here.consent):
        return see("/welcome")
    if must_agree(call.me, call.here):
        choice = call.text("language", call.language)
        language = choice if choice in LANGUAGES else call.language
        live = find_live_models(call.store, call.here.id) is not None
        consents.agree(call.store, call.me.id, language, live=live)
    return see("/rate")


def must_agree(rater: Rater, study: Study) -> bool:
    """Whether the rater must consent to the current text before seeing questions."""
    person = rater.kind == "human" and rater.role == "rater"
    return person and (rater.consented is None or rater.agreed != study.consent)


def _place_of(rater: Rater, study: Study) -> str:
    if rater.role in DECIDING:
        return "/owner"
    return "/welcome" if must_agree(rater, study) else "/rate"


def signed_in(call: Call, rater: Rater, session: str, place: str = "") -> Response:
    """Redirect to `place` or the page of the rater's role, with a new session ID, which prevents session fixation."""
    if call.session:
        end_session(call.store, call.session)
    now = get_rater(call.store, rater.id)
    response = see(place or _place_of(now, study_of(call.store, now.study_id)))
    response.headers["set-cookie"] = _session_cookie(call.site, session)
    announce_member(call.site, now, session, call.device, response)
    return response


def _session_cookie(site: Site, session: str) -> str:
    return cookie_header(site.cookie, session, secure=site.secure, path=site.root or "/")


def _invite(call: Call) -> Invite:
    invite = peek_invite(call.store, call.path["token"])
    if invite is None or invite.rater is not None or not call.site.holds(invite.study_id):
        raise no_such_link(call, Sentence("This invitation does not exist; ask the person who sent it for a new one."))
    return invite


def _known(call: Call) -> tuple[Rater, Invite | None]:
    """The rater of a link back, and its personal link; None for a single-use link."""
    token = call.path["token"]
    rater = rater_of_session(call.store, token)
    if rater is not None and call.site.holds(rater.study_id):
        return rater, None
    link = peek_invite(call.store, token)
    if link is not None and not call.site.holds(link.study_id):
        link = None
    if link is not None and link.rater is not None and not link.problem:
        return get_rater(call.store, link.rater), link
    message = Sentence(
        "This link was used already, has expired, or never existed; ask the person who sent it for a new one."
    )
    if link is None or link.rater is None:
        raise no_such_link(call, message)
    raise Refusal(404, message, study=study_of(call.store, link.study_id))


def no_such_link(call: Call, message: str) -> Refusal:
    """The error for a link that does not exist or, after too many failures from this address, a request to wait.
    Existing links are never rate-limited: a whole class may share an address, and tokens of at least 128 bits cannot be
    guessed."""
    wait = call.site.attempts.wait(call.address)
    if not wait:
        call.site.attempts.count(call.address)
        return Refusal(404, message)
    much = counted(
        "Too many links from your address did not exist; try again in a second.",
        "Too many links from your address did not exist; try again in %(count)s seconds.",
        count=wait,
    )
    return Refusal(429, much, retry_after=wait)


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
        raise no_such_link(
            call, Sentence("This link leads to no study; ask the person who sent it, or return the task.")
        )
    recruitment = recruitment_of(call.store, study_id)
    assert recruitment is not None, "the link is a part of it"
    return study_of(call.store, study_id), recruitment, find_platform(recruitment.platform)


def _visitor(call: Call, study: Study, platform: Platform) -> Visitor:
    try:
        return platform.visitor(lambda name: call.query.get(name, ("",))[-1].strip())
    except TutelageError as error:
        raise Refusal(400, sentence(error), study=study) from error


CALLBACK = "/sign-in/callback"
SIGN_IN_COOKIE = "tutelage_signing"
MINUTES = 10
"""Validity of the cookie of a sign-in."""


def begin_sign_in(call: Call) -> Response:
    """Sign in a user identified by a trusted proxy; redirect others to the provider."""
    if call.visitor is not None:
        return _sign_in(call, call.visitor)
    provider = call.site.sign_in.provider
    if provider is None:
        raise Refusal(404, Sentence("The way to sign in here is a personal link or an invitation."))
    try:
        address, pending = provider.begin(_redirect(call), call.site.mount)
    except SignInError as error:
        raise Refusal(502, sentence(error)) from error
    response = see(address)
    response.headers["set-cookie"] = _sign_in_cookie(call, pending.cookie())
    return response


def finish_sign_in(call: Call) -> Response:
    """The callback from the provider: start a session for the identified person, if they have a role."""
    provider = call.site.sign_in.provider
    if provider is None:
        raise Refusal(404, Sentence("There is no such page."))
    query = {name: values[-1] for name, values in call.query.items()}
    try:
        person = provider.finish(Pending.of(call.cookies.get(SIGN_IN_COOKIE, "")), query, _redirect(call))
    except SignInError as error:
        raise Refusal(403, sentence(error)) from error
    response = _sign_in(call, person)
    response.headers.append("set-cookie", _sign_in_cookie(call, ""))
    return response


def _sign_in(call: Call, person: Identity) -> Response:
    role = call.site.sign_in.roles.role_of(person.contact)
    if role is None:
        raise Refusal(403, Sentence("%(who)s has no role in this study; ask its owner.", who=person.contact))
    study = _only_study(call)
    try:
        member, token = sign_in(call.store, study.id, person, role, days=SESSION_DAYS, device=call.device)
    except TutelageError as error:
        raise Refusal(403, sentence(error)) from error
    return signed_in(call, member, token)


def _only_study(call: Call) -> Study:
    if call.site.study_id is not None:
        return study_of(call.store, call.site.study_id)
    names = list_studies(call.store)
    if len(names) != 1:
        raise Refusal(404, Sentence("This database holds several studies; serve the one to sign in to by its name."))
    return open_study(call.store, names[0])


def _redirect(call: Call) -> str:
    """The redirect URI registered at the provider: one for the whole server, whose front page forwards to the study
    where the sign-in began."""
    return f"{call.origin.removesuffix(call.site.mount)}{CALLBACK}"


def _sign_in_cookie(call: Call, value: str) -> str:
    path = f"{call.site.root}/sign-in"
    return cookie_header(SIGN_IN_COOKIE, value, secure=call.site.secure, path=path, seconds=60 * MINUTES)
