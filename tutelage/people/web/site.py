"""The state that all requests share: the database, the templates, the public address, the statistics, and the answers
that models are writing."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse

from tutelage.errors import TutelageError
from tutelage.people import Store
from tutelage.people.languages import ENGLISH
from tutelage.people.web.auth import Attempts
from tutelage.people.web.statistics.keeping import Keeper
from tutelage.people.web.streams import AnswerStreams
from tutelage.people.web.templating import templates
from tutelage.people.web.uploads import Uploads


def cookie_name(store: Store, *, secure: bool) -> str:
    """Different for every database, because cookies do not tell the ports of a machine apart."""
    name = f"tutelage_{hashlib.sha256(store.address.encode()).hexdigest()[:8]}"
    return f"__Host-{name}" if secure else name


@dataclass(frozen=True)
class Site:
    """One running application. `public_url` is where browsers reach it, if a proxy stands in between."""

    store: Store
    public_url: str
    attempts: Attempts
    keeper: Keeper
    uploads: Uploads
    streams: AnswerStreams

    def __post_init__(self) -> None:
        parts = urlsplit(self.public_url)
        if self.public_url and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise TutelageError(
                f"The public URL '{self.public_url}' is no address; write it as https://rate.example.org."
            )
        if parts.path.strip("/"):
            raise TutelageError(
                f"The public URL '{self.public_url}' has a path; the application needs a host name of its own."
            )

    @property
    def origin(self) -> str:
        """`public_url` as browsers write it into the header Origin; empty where there is no proxy."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}" if self.public_url else ""

    @property
    def secure(self) -> bool:
        """Whether the session cookie may travel over https only."""
        return self.public_url.startswith("https://")

    @cached_property
    def cookie(self) -> str:
        """The name of the session cookie."""
        return cookie_name(self.store, secure=self.secure)

    def page(
        self, template: str, values: Mapping[str, object], status: int = 200, *, language: str = ENGLISH
    ) -> HTMLResponse:
        """A page from a template, in the language."""
        return HTMLResponse(templates(language).get_template(template).render(values), status)
