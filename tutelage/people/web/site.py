"""State shared by all requests: database, templates, public URL, statistics and running model responses; and the
cookies that tell the front page in which studies a browser is signed in as an owner or reviewer.

Session cookies are limited to the path of their study, so the front page does not receive them. Members get a second
cookie for the whole server, which grants no access: the session number, signed with the study's secret. The front page
lists the study while that session lasts.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, Response

from tutelage.base.errors import TutelageError
from tutelage.people import Rater, Store
from tutelage.people.languages import ENGLISH
from tutelage.people.mail import MailServer
from tutelage.people.statistics.cache import Keeper
from tutelage.people.store.access import session_owner, use_session
from tutelage.people.store.raters import DECIDING
from tutelage.people.store.studies import Study, study_of
from tutelage.people.validation import record_number
from tutelage.people.web.auth import Attempts, cookie_header
from tutelage.people.web.identity import THIS_MACHINE, Peers, SignInMethods
from tutelage.people.web.streams import ResponseStreams
from tutelage.people.web.templating import templates
from tutelage.people.web.uploads import Uploads


def cookie_name(store: Store, *, secure: bool, root: str = "") -> str:
    """The name of the session cookie, unique per database (cookies ignore ports) and per root (browsers also send
    cookies of parent paths). Browsers accept the prefix `__Host-` only for a whole host."""
    name = f"tutelage_{hashlib.sha256((store.address + root).encode()).hexdigest()[:8]}"
    return f"__{'Secure' if root else 'Host'}-{name}" if secure else name


@dataclass(frozen=True)
class Site:
    """One running application. `public_url` is the URL that browsers use, if there is a proxy in front. On a server
    with several studies, `mount` is the path of this one and `study_id` its number, and only its own members are
    admitted; `study_id` is None if the server serves all studies of a database. `sign_in` are sign-in methods other
    than links; `mail` is the server for sending personal links, if any; X-Forwarded-For counts from `proxies`. `notes`
    limits the notes of a rater."""

    store: Store
    public_url: str
    attempts: Attempts
    keeper: Keeper
    uploads: Uploads
    streams: ResponseStreams
    mount: str = ""
    study_id: int | None = None
    sign_in: SignInMethods = field(default_factory=SignInMethods)
    mail: MailServer | None = None
    proxies: Peers = field(default_factory=lambda: Peers(THIS_MACHINE))
    notes: Attempts = field(default_factory=lambda: Attempts(most=10))

    def __post_init__(self) -> None:
        parts = urlsplit(self.public_url)
        if self.public_url and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise TutelageError(f"The public URL '{self.public_url}' is invalid; write it as https://rate.example.org.")
        if parts.query or parts.fragment:
            raise TutelageError(f"The public URL '{self.public_url}' has more than a host and a path.")

    @property
    def origin(self) -> str:
        """`public_url` in the form of the Origin header; empty without a proxy."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}" if self.public_url else ""

    @property
    def root(self) -> str:
        """The prefix of all addresses of the site: empty at the root of a host."""
        return urlsplit(self.public_url).path.rstrip("/") + self.mount

    def holds(self, study_id: int) -> bool:
        """Whether the site serves this study."""
        return self.study_id is None or self.study_id == study_id

    @property
    def secure(self) -> bool:
        """Whether the session cookie is restricted to https."""
        return self.public_url.startswith("https://")

    @cached_property
    def cookie(self) -> str:
        """The name of the session cookie."""
        return cookie_name(self.store, secure=self.secure, root=self.root)

    def page(
        self, template: str, values: Mapping[str, object], status: int = 200, *, language: str = ENGLISH
    ) -> HTMLResponse:
        """Render a template in the language."""
        return HTMLResponse(templates(language, self.root).get_template(template).render(values), status)


def announce_member(site: Site, rater: Rater, session: str, device: str, response: Response) -> None:
    """Set the front page's cookie for a member's new session, if the server has a front page."""
    current = use_session(site.store, session, device) if site.mount and rater.role in DECIDING else None
    if current is not None:
        study = study_of(site.store, rater.study_id)
        _set_member(site, response, f"{current[1]}.{_member_code(study, current[1])}")


def forget_member(site: Site, response: Response) -> None:
    """Delete the front page's cookie for this browser's session."""
    if site.mount:
        _set_member(site, response, "")


def member_study(site: Site, cookies: Mapping[str, str]) -> Study | None:
    """The study of a site, if this browser has an owner's or reviewer's session in it."""
    number, _, code = cookies.get(_member_cookie(site), "").partition(".")
    if site.study_id is None or not record_number(number):
        return None
    study = study_of(site.store, site.study_id)
    if not hmac.compare_digest(code.encode(), _member_code(study, int(number)).encode()):
        return None
    member = session_owner(site.store, study.id, int(number))
    return study if member is not None and member.role in DECIDING else None


def _member_code(study: Study, session: int) -> str:
    return hmac.new(bytes.fromhex(study.secret), f"front {session}".encode(), hashlib.sha256).hexdigest()


def _member_cookie(site: Site) -> str:
    name = f"tutelage_front_{hashlib.sha256(site.root.encode()).hexdigest()[:8]}"
    return f"__Secure-{name}" if site.secure else name


def _set_member(site: Site, response: Response, value: str) -> None:
    path = site.root.removesuffix(site.mount) or "/"
    response.headers.append("set-cookie", cookie_header(_member_cookie(site), value, secure=site.secure, path=path))
