"""An OpenID provider on loopback, whose identity tokens a test may spoil."""

import base64
import hashlib
import html
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "tutelage", "s3cret"
KEYS = {name: RSAKey.generate_key(2048, {"kid": name}) for name in ("right", "wrong")}


@dataclass
class StubProvider:
    """What the provider says of the person who signs in, and what is wrong with it. `told` are requests for tokens."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    key: str = "right"
    algorithm: str = "RS256"
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    told: list[dict[str, str]] = field(default_factory=list)

    def authorise(self, address: str) -> str:
        """Sign in at the address that the browser was sent to; returns the address that it is sent back to."""
        asked = {name: values[-1] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """The reply to a request for a token: a code counts once, from whom knows the verifier."""
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "sub": "u1", "iat": now, "exp": now + 300, "nonce": asked["nonce"],
            "email": "olga@example.org", "email_verified": True, "name": "Olga",
        } | self.claims  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        signed = jwt.encode({"alg": self.algorithm, "kid": "right"}, claims, KEYS[self.key])
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": signed}


@contextmanager
def provider() -> Iterator[StubProvider]:
    """A running provider."""
    stub = StubProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/authorize?"):
                self.ask()
                return
            pages = {
                "/.well-known/openid-configuration": {
                    "issuer": stub.issuer,
                    "authorization_endpoint": f"{stub.issuer}/authorize",
                    "token_endpoint": f"{stub.issuer}/token",
                    "jwks_uri": f"{stub.issuer}/keys",
                },
                "/keys": {"keys": [KEYS["right"].as_dict(private=False)]},
            }
            self.reply(200, pages[self.path])

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[-1] for name, values in parse_qs(body).items()}
            stub.told.append(form | {"authorization": self.headers.get("authorization", "")})
            self.reply(*stub.token(form))

        def ask(self) -> None:
            """The page on which somebody in a browser signs in, by one click."""
            back = html.escape(stub.authorise(self.path), quote=True)
            text = f'<!doctype html><title>Provider</title><a href="{back}">Go on</a>'.encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def reply(self, status: int, data: Mapping[str, Any]) -> None:
            text = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
