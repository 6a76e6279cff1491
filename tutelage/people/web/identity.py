"""Sign-in methods other than invitation links, their roles, and the validity of their sessions: a trusted proxy, and
OpenID Connect (authorization code flow with PKCE, `state` and `nonce`).

The state, nonce and verifier are kept between the two requests in an HttpOnly cookie for ten minutes, so any of several
servers can handle the callback. Authlib talks to the provider; joserfc verifies the signature and the claims of the ID
token.
"""

import base64
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
from starlette.requests import Request

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.store.members import Identity
from tutelage.people.store.raters import Rater, Role
from tutelage.people.validation import StudyError

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import OAuth2Client


ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Accepted signature algorithms: with the provider's public keys only, neither shared secrets nor "none"."""
SCOPE = "openid email profile"
LEEWAY = 60
"""Allowed clock skew between provider and server, in seconds."""
PATIENCE = 15.0
FRESH = 600.0


class SignInError(StudyError):
    """A failed sign-in, with the reason."""


@dataclass(frozen=True)
class Pending:
    """State that the browser keeps between the two requests of a sign-in."""

    state: str
    nonce: str
    verifier: str

    def cookie(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode().rstrip("=")

    @classmethod
    def of(cls, cookie: str) -> "Pending":
        """Parse the cookie. Raises SignInError if it is invalid."""
        try:
            padded = cookie + "=" * (-len(cookie) % 4)
            row = json.loads(base64.urlsafe_b64decode(padded))
            return cls(str(row["state"]), str(row["nonce"]), str(row["verifier"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SignInError(
                "This browser began no sign-in here, or more than ten minutes ago; begin once more."
            ) from error


def study_of_state(state: str) -> str:
    """The study encoded in a state; empty without one."""
    return state.rpartition(".")[0]


@dataclass(frozen=True)
class Provider:
    """An OpenID provider with its `issuer` URL, where this server is registered as `client_id`."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    _known: dict[str, tuple[float, Mapping[str, Any]]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.issuer)
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.netloc or parts.scheme not in (("http", "https") if local else ("https",)):
            raise TutelageError(f"The issuer '{self.issuer}' is not an https URL; write it as https://id.example.org.")
        if not self.client_id:
            raise TutelageError("The provider needs the client ID with which this server is registered there.")

    def begin(self, redirect: str, study: str = "") -> tuple[str, Pending]:
        """The authorisation URL, which returns to `redirect`, and the state that the browser must keep. The state
        encodes the `study` if several share one redirect URI (`study_of_state`). Raises SignInError if the provider is
        unreachable, or its issuer differs from the configured one."""
        metadata = self._described()
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        state = f"{study}.{secrets.token_urlsafe(24)}"
        with self._client(redirect) as client:
            address, _ = client.create_authorization_url(
                metadata["authorization_endpoint"], state=state, code_verifier=verifier, nonce=nonce
            )
        return address, Pending(state, nonce, verifier)

    def finish(self, pending: Pending, query: Mapping[str, str], redirect: str) -> Identity:
        """The identified person, from the query of the callback. Raises SignInError if the state does not match this
        browser's sign-in, the provider refused, or the ID token is for another client or sign-in, expired, or without a
        verified e-mail address."""
        if not secrets.compare_digest(query.get("state", "").encode(), pending.state.encode()):
            raise SignInError("This is not the sign-in that this browser began; begin once more.")
        if query.get("iss", self.issuer) != self.issuer:
            raise SignInError("The answer comes from another provider than %(issuer)s.", issuer=self.issuer)
        if "code" not in query:
            reason = query.get("error_description") or query.get("error")
            detail = reason[:200] if reason else Sentence("it sent no code")
            raise SignInError("The provider did not sign you in: %(reason)s.", reason=detail)
        claims = self._verified(self._token(pending, query["code"], redirect), pending.nonce)
        if claims.get("email_verified") not in (True, "true") or not isinstance(claims.get("email"), str):
            raise SignInError("The provider sent no verified e-mail address of yours; roles are given by address.")
        email = str(claims["email"])
        name = claims.get("name") or claims.get("preferred_username") or email
        return Identity(f"{self.issuer} {claims['sub']}", email, str(name).partition("@")[0])

    def _client(self, redirect: str) -> "OAuth2Client":
        from authlib.integrations.httpx_client import OAuth2Client

        method = "client_secret_basic" if self.client_secret else "none"
        return OAuth2Client(
            self.client_id,
            self.client_secret or None,
            token_endpoint_auth_method=method,
            scope=SCOPE,
            redirect_uri=redirect,
            code_challenge_method="S256",
            timeout=PATIENCE,
        )

    def _described(self) -> Mapping[str, Any]:
        """The provider's metadata, cached for `FRESH` seconds because anybody may start a sign-in."""
        fetched, cached = self._known.get("description", (-FRESH, {}))
        if time.monotonic() - fetched < FRESH:
            return cached
        metadata = self._get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        required = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if metadata.get("issuer") != self.issuer or not all(isinstance(metadata.get(name), str) for name in required):
            raise SignInError(
                "%(issuer)s describes itself as %(other)s; give that as the issuer if it is the provider that you "
                "mean.",
                issuer=self.issuer,
                other=str(metadata.get("issuer"))[:200],
            )
        self._known["description"] = time.monotonic(), metadata
        return metadata

    def _get(self, address: str) -> Mapping[str, Any]:
        try:
            reply = httpx.get(address, timeout=PATIENCE).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise SignInError(
                "The provider %(issuer)s cannot be asked just now: %(reason)s.", issuer=self.issuer, reason=str(error)
            ) from error
        if not isinstance(reply, dict):
            raise SignInError("%(address)s is not the description of a provider.", address=address)
        return reply

    def _token(self, pending: Pending, code: str, redirect: str) -> str:
        from authlib.integrations.base_client import OAuthError

        endpoint = self._described()["token_endpoint"]
        try:
            with self._client(redirect) as client:
                reply = client.fetch_token(endpoint, code=code, code_verifier=pending.verifier)
        except (httpx.HTTPError, OAuthError, ValueError) as error:
            raise SignInError("The provider did not accept the code: %(reason)s.", reason=str(error)) from error
        if not isinstance(reply.get("id_token"), str):
            raise SignInError("The provider sent no identity token.")
        return str(reply["id_token"])

    def _verified(self, token: str, nonce: str) -> Mapping[str, Any]:
        """The claims of an ID token after verification of signature, issuer, audience, time and nonce."""
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        keys = self._get(self._described()["jwks_uri"])
        rules = jwt.JWTClaimsRegistry(
            leeway=LEEWAY,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
            sub={"essential": True},
        )
        try:
            claims = jwt.decode(token, KeySet.import_key_set(keys), algorithms=list(ALGORITHMS)).claims  # type: ignore[arg-type]
            rules.validate(claims)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise SignInError(
                "The identity token of the provider is not valid: %(reason)s.", reason=str(error)
            ) from error
        if claims.get("azp", self.client_id) != self.client_id:
            raise SignInError("The identity token of the provider was issued to another client.")
        return claims


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
class Peers:
    """Clients by their IP addresses or networks."""

    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        for address in self.addresses:
            try:
                ip_network(address, strict=False)
            except ValueError as error:
                raise TutelageError(
                    f"The trusted proxy '{address}' is not an IP address; write 127.0.0.1 or 10.0.0.0/8."
                ) from error

    def __contains__(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False  # a Unix socket or a test client
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in ip_network(each, strict=False) for each in self.addresses)

    def client(self, peer: str, forwarded: str) -> str:
        """The address of the client of a request from `peer` with this X-Forwarded-For: the last entry that is not of
        these proxies. Entries by others are ignored, since anybody can write them."""
        hops = [each.strip() for each in forwarded.split(",") if each.strip()]
        while peer in self and hops:
            peer = hops.pop()
        return peer


THIS_MACHINE = ("127.0.0.0/8", "::1")
"""Addresses of proxies on the same machine."""


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
        Peers(self.addresses)

    def user(self, request: Request) -> str:
        """The user named by the trusted proxy; empty if the header is missing or repeated, or the request comes from
        elsewhere."""
        if request.client is None or request.client.host not in Peers(self.addresses):
            return ""
        values = request.headers.getlist(self.header)
        return values[0].strip() if len(values) == 1 else ""


@dataclass(frozen=True)
class SignInMethods:
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
