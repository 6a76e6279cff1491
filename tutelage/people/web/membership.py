"""Cookies that tell the front page in which studies a browser is signed in as an owner or reviewer.

Session cookies are limited to the path of their study, so the front page does not receive them. Members get a second
cookie for the whole server, which grants no access: the session number, signed with the study's secret. The front page
lists the study while that session lasts.
"""

import hashlib
import hmac
from collections.abc import Mapping

from starlette.responses import Response

from tutelage.people import Rater
from tutelage.people.store.raters import DECIDING
from tutelage.people.store.sessions import session_owner, use_session
from tutelage.people.store.studies import Study, study_of
from tutelage.people.validation import record_number
from tutelage.people.web.auth import cookie_header
from tutelage.people.web.site import Site


def announce_member(site: Site, rater: Rater, session: str, device: str, response: Response) -> None:
    """Set the front page's cookie for a member's new session, if the server has a front page."""
    current = use_session(site.store, session, device) if site.mount and rater.role in DECIDING else None
    if current is not None:
        study = study_of(site.store, rater.study_id)
        _set(site, response, f"{current[1]}.{_code(study, current[1])}")


def forget_member(site: Site, response: Response) -> None:
    """Delete the front page's cookie for this browser's session."""
    if site.mount:
        _set(site, response, "")


def member_study(site: Site, cookies: Mapping[str, str]) -> Study | None:
    """The study of a site, if this browser has an owner's or reviewer's session in it."""
    number, _, code = cookies.get(_name(site), "").partition(".")
    if site.study_id is None or not record_number(number):
        return None
    study = study_of(site.store, site.study_id)
    if not hmac.compare_digest(code.encode(), _code(study, int(number)).encode()):
        return None
    member = session_owner(site.store, study.id, int(number))
    return study if member is not None and member.role in DECIDING else None


def _code(study: Study, session: int) -> str:
    return hmac.new(bytes.fromhex(study.secret), f"front {session}".encode(), hashlib.sha256).hexdigest()


def _name(site: Site) -> str:
    name = f"tutelage_front_{hashlib.sha256(site.root.encode()).hexdigest()[:8]}"
    return f"__Secure-{name}" if site.secure else name


def _set(site: Site, response: Response, value: str) -> None:
    path = site.root.removesuffix(site.mount) or "/"
    response.headers.append("set-cookie", cookie_header(_name(site), value, secure=site.secure, path=path))
