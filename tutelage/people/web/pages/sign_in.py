"""Sign-in of owners and reviewers without a link: by a trusted proxy, or through an OpenID provider."""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import list_studies
from tutelage.people.languages import Sentence
from tutelage.people.store.members import Identity, sign_in
from tutelage.people.store.studies import Study, open_study, study_of
from tutelage.people.web.auth import SESSION_DAYS, cookie_header
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.identity import Pending, SignInError
from tutelage.people.web.pages.participation import signed_in

CALLBACK = "/sign-in/callback"
COOKIE = "tutelage_signing"
MINUTES = 10


def begin(call: Call) -> Response:
    """Sign in a user identified by a trusted proxy; redirect others to the provider."""
    if call.visitor is not None:
        return _enter(call, call.visitor)
    provider = call.site.sign_in.provider
    if provider is None:
        raise Refusal(404, Sentence("The way to sign in here is a personal link or an invitation."))
    try:
        address, pending = provider.begin(_redirect(call), call.site.mount)
    except SignInError as error:
        raise Refusal(502, sentence(error)) from error
    response = see(address)
    response.headers["set-cookie"] = _cookie(call, pending.cookie())
    return response


def come_back(call: Call) -> Response:
    """The callback from the provider: start a session for the identified person, if they have a role."""
    provider = call.site.sign_in.provider
    if provider is None:
        raise Refusal(404, Sentence("There is no such page."))
    query = {name: values[-1] for name, values in call.query.items()}
    try:
        person = provider.finish(Pending.of(call.cookies.get(COOKIE, "")), query, _redirect(call))
    except SignInError as error:
        raise Refusal(403, sentence(error)) from error
    response = _enter(call, person)
    response.headers.append("set-cookie", _cookie(call, ""))
    return response


def _enter(call: Call, person: Identity) -> Response:
    role = call.site.sign_in.roles.role_of(person.contact)
    if role is None:
        raise Refusal(403, Sentence("%(who)s has no role in this study; ask its owner.", who=person.contact))
    study = _study(call)
    try:
        member, token = sign_in(call.store, study.id, person, role, days=SESSION_DAYS, device=call.device)
    except TutelageError as error:
        raise Refusal(403, sentence(error)) from error
    return signed_in(call, member, token)


def _study(call: Call) -> Study:
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


def _cookie(call: Call, value: str) -> str:
    path = f"{call.site.root}/sign-in"
    return cookie_header(COOKIE, value, secure=call.site.secure, path=path, seconds=60 * MINUTES)
