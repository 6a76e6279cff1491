"""Sign-in methods other than invitation links: roles, and validity of their sessions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from starlette.requests import Request

from tutelage.base.errors import TutelageError
from tutelage.people.store.members import Identity
from tutelage.people.store.raters import Rater, Role
from tutelage.people.web.signing.oidc import Provider

_BY_PROXY = "proxy "
"""The prefix of identities from a proxy; those from a provider begin with its issuer."""


@dataclass(frozen=True)
class Roles:
    """Roles by e-mail address, by domain (`@example.org`), or by the user name from a proxy."""

    owners: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()

    def role_of(self, contact: str) -> Role | None:
        """The role of a person, or None; someone listed as both owner and reviewer is an owner."""
        if _is_among(contact, self.owners):
            return "owner"
        return "reviewer" if _is_among(contact, self.reviewers) else None


def _is_among(contact: str, entries: Sequence[str]) -> bool:
    name = contact.casefold()
    domain = f"@{name.rpartition('@')[2]}" if "@" in name else ""
    return bool(name) and any(entry.casefold() in (name, domain) for entry in entries)


@dataclass(frozen=True)
class Proxy:
    """A trusted proxy that authenticates users and names them in a `header`. The header is accepted only from its
    `addresses` (or networks)."""

    header: str
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.addresses:
            raise TutelageError(
                "The header that names the user is accepted from a trusted proxy only: give its address too."
            )
        for address in self.addresses:
            try:
                ip_network(address, strict=False)
            except ValueError as error:
                raise TutelageError(
                    f"The trusted proxy '{address}' is not an IP address; write 127.0.0.1 or 10.0.0.0/8."
                ) from error

    def user(self, request: Request) -> str:
        """The user named by the trusted proxy; empty if the header is missing or repeated, or the request comes from
        elsewhere."""
        if request.client is None or not self._is_trusted(request.client.host):
            return ""
        values = request.headers.getlist(self.header)
        return values[0].strip() if len(values) == 1 else ""

    def _is_trusted(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False  # a Unix socket or a test client
        return any(address in ip_network(each, strict=False) for each in self.addresses)


@dataclass(frozen=True)
class Doors:
    """The sign-in methods of a server: only links, unless it has a provider or a proxy."""

    provider: Provider | None = None
    proxy: Proxy | None = None
    roles: Roles = field(default_factory=Roles)

    def visitor(self, request: Request) -> Identity | None:
        """The identity from a trusted proxy in this request, if that person has a role."""
        user = "" if self.proxy is None else self.proxy.user(request)
        if not user or self.roles.role_of(user) is None:
            return None
        return Identity(f"{_BY_PROXY}{user.casefold()}", user, user.partition("@")[0])

    def still_admit(self, rater: Rater, request: Request) -> bool:
        """Whether a rater's session is still valid. After a sign-in here the role must be unchanged and, with a proxy,
        every request must carry its header; sessions from links are always valid."""
        if rater.identity is None:
            return True
        if self.roles.role_of(rater.contact) != rater.role:
            return False
        if rater.identity.startswith(_BY_PROXY):
            visitor = self.visitor(request)
            return visitor is not None and visitor.key == rater.identity
        return self.provider is not None and rater.identity.startswith(f"{self.provider.issuer} ")
