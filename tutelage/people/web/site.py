"""State shared by all requests: database, templates, public URL, statistics and running model responses."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse

from tutelage.base.errors import TutelageError
from tutelage.people import Store
from tutelage.people.languages import ENGLISH
from tutelage.people.mail import MailServer
from tutelage.people.statistics.cache import Keeper
from tutelage.people.web.auth import Attempts
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
