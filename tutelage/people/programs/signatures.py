"""Signatures of webhooks, as the specification of Standard Webhooks has them (standardwebhooks.com).

    signature = base64(HMAC-SHA256(key, "{webhook-id}.{webhook-timestamp}.{body}"))

The key is what follows `whsec_` in the secret, in base64. The header `webhook-signature` holds `v1,` and the signature,
or several of these with spaces between them.
"""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence

from tutelage.base.errors import TutelageError

PREFIX = "whsec_"
TOLERANCE = 300.0
"""Seconds that the clocks of sender and receiver may be apart."""


class WebhookRefused(TutelageError):
    """A request that is no webhook of whoever has the secret, or an old one."""


def signed_headers(secrets: Sequence[str], message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a webhook with this message id, sent at this second, with a signature by each of the secrets."""
    signatures = [_signature(_key(secret), message, str(timestamp), body) for secret in secrets]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None
) -> dict[str, object]:
    """The content of a webhook that was received, once its signature and its time are found right. Give the body as it
    came, byte by byte. The same `webhook-id` may come twice: handle it once.

    Raises:
        WebhookRefused: a header is missing, the signature is not of this secret and body, or the time is more than five
            minutes away; do nothing then, and answer with status 400.
    """
    key, told = _key(secret), {name.lower(): value for name, value in headers.items()}
    missing = [
        name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not told.get(name)
    ]
    if missing:
        raise WebhookRefused(f"The request has no header {missing[0]}, so it is no signed webhook.")
    sent = told["webhook-timestamp"]
    expected = _signature(key, told["webhook-id"], sent, body).encode()
    signatures = [each.partition(",") for each in told["webhook-signature"].split()]
    if not any(
        name == "v1" and hmac.compare_digest(found.encode(), expected) for name, _, found in signatures
    ):
        raise WebhookRefused(
            "The signature of the webhook is wrong: it comes from somebody else, was changed on its way, or the secret "
            "is that of another address."
        )
    is_second = sent.isascii() and sent.isdecimal() and len(sent) < 16
    away = abs((time.time() if now is None else now) - int(sent)) if is_second else float("inf")
    if away > TOLERANCE:
        raise WebhookRefused(
            f"The webhook was sent at {sent[:20]}, more than {TOLERANCE / 60:g} minutes from now: it is an old one, or "
            "a clock is wrong."
        )
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WebhookRefused(f"The webhook is no JSON: {error}.") from error
    if not isinstance(content, dict):
        raise WebhookRefused("The webhook is no JSON object.")
    return content


def _key(secret: str) -> bytes:
    """Raises TutelageError for what is no secret of a webhook, without repeating it."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise TutelageError(
            f"The secret of the webhook is not complete: it is {PREFIX} and base64, as it was shown."
        ) from error
    if not key:
        raise TutelageError(f"The secret of the webhook is empty; it begins with {PREFIX}.")
    return key


def _signature(key: bytes, message: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((message.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
