"""Signatures of webhooks according to Standard Webhooks (standardwebhooks.com).

    signature = base64(HMAC-SHA256(key, "{webhook-id}.{webhook-timestamp}.{body}"))

The secret is `whsec_` followed by the key in base64. The header `webhook-signature` contains one or more signatures,
each prefixed by `v1,`, separated by spaces.
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
"""Maximum difference between the clocks of sender and receiver, in seconds."""


class WebhookRefused(TutelageError):
    """The signature of a webhook is invalid, or its timestamp is too old."""


def signed_headers(secrets: Sequence[str], message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a webhook with this message id and Unix timestamp, signed with each of the secrets."""
    signatures = [_signature(_key(secret), message, str(timestamp), body) for secret in secrets]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None
) -> dict[str, object]:
    """Verify the signature and timestamp of a webhook, and return its content. `body` is the raw body of the request.
    Messages may arrive repeatedly: process each `webhook-id` once. Raises WebhookRefused if a header is missing, the
    signature does not match the secret and body, or the timestamp differs by more than five minutes; ignore the request
    and respond with status 400."""
    key, lower = _key(secret), {name.lower(): value for name, value in headers.items()}
    missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not lower.get(name)]
    if missing:
        raise WebhookRefused(f"The request has no header {missing[0]}, so it is not a signed webhook.")
    timestamp = lower["webhook-timestamp"]
    expected = _signature(key, lower["webhook-id"], timestamp, body).encode()
    signatures = [each.partition(",") for each in lower["webhook-signature"].split()]
    if not any(name == "v1" and hmac.compare_digest(value.encode(), expected) for name, _, value in signatures):
        raise WebhookRefused(
            "The signature of the webhook is wrong: the message is from another sender or was modified, or the secret "
            "belongs to another webhook."
        )
    is_second = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16
    away = abs((time.time() if now is None else now) - int(timestamp)) if is_second else float("inf")
    if away > TOLERANCE:
        raise WebhookRefused(
            f"The timestamp of the webhook, {timestamp[:20]}, is more than {TOLERANCE / 60:g} minutes from now: the "
            "message is old, or a clock is wrong."
        )
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WebhookRefused(f"The webhook is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise WebhookRefused("The webhook is not a JSON object.")
    return content


def _key(secret: str) -> bytes:
    """The key of a secret. Raises TutelageError for an invalid secret, without repeating it."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise TutelageError(
            f"The secret of the webhook is incomplete: it must be {PREFIX} and base64, as shown at its creation."
        ) from error
    if not key:
        raise TutelageError(f"The secret of the webhook is empty after {PREFIX}.")
    return key


def _signature(key: bytes, message: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((message.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
