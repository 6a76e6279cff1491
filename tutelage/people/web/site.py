"""The state that all requests share: the database, the templates, the public address, the statistics, and the answers
that models are writing."""

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
from tutelage.people.web.signing.doors import Doors
from tutelage.people.web.streams import AnswerStreams
from tutelage.people.web.templating import templates
from tutelage.people.web.uploads import Uploads


def cookie_name(store: Store, *, secure: bool, root: str = "") -> str:
    """Different for every database, because cookies do not tell the ports of a machine apart, and for every root, since
    a browser sends those of the paths above too. Browsers take `__Host-` only for the whole host."""
    name = f"tutelage_{hashlib.sha256((store.address + root).encode()).hexdigest()[:8]}"
    return f"__{'Secure' if root else 'Host'}-{name}" if secure else name


@dataclass(frozen=True)
class Site:
    """One running application. `public_url` is where browsers reach the server, if a proxy stands in between. Of
    several studies on one server each has a `mount`, the path below which it stands, and lets in nobody but its own
    people: `study_id` is its number, None where a server serves all studies of a database. `doors` are the other ways
    to sign in than links; `mail` is the server through which owners mail personal links, if there is one."""

    store: Store
    public_url: str
    attempts: Attempts
    keeper: Keeper
    uploads: Uploads
    streams: AnswerStreams
    mount: str = ""
    study_id: int | None = None
    doors: Doors = field(default_factory=Doors)
    mail: MailServer | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.public_url)
        if self.public_url and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise TutelageError(
                f"The public URL '{self.public_url}' is no address; write it as https://rate.example.org."
            )
        if parts.query or parts.fragment:
            raise TutelageError(f"The public URL '{self.public_url}' has more than a host and a path.")

    @property
    def origin(self) -> str:
        """`public_url` as browsers write it into the header Origin; empty where there is no proxy."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}" if self.public_url else ""

    @property
    def root(self) -> str:
        """The path that all addresses of the site begin with: empty at the root of a host."""
        return urlsplit(self.public_url).path.rstrip("/") + self.mount

    def holds(self, study_id: int) -> bool:
        """Whether the site serves this study."""
        return self.study_id is None or self.study_id == study_id

    @property
    def secure(self) -> bool:
        """Whether the session cookie may travel over https only."""
        return self.public_url.startswith("https://")

    @cached_property
    def cookie(self) -> str:
        """The name of the session cookie."""
        return cookie_name(self.store, secure=self.secure, root=self.root)

    def page(
        self, template: str, values: Mapping[str, object], status: int = 200, *, language: str = ENGLISH
    ) -> HTMLResponse:
        """A page from a template, in the language."""
        return HTMLResponse(templates(language, self.root).get_template(template).render(values), status)
