"""Pseudo-random numbers keyed by the secret of a study: repeatable with the secret, unpredictable without."""

import hashlib
import hmac

SHUFFLES = 1 << 56
"""Items are shuffled by numbers below this."""


def chance(secret: str, *what: object) -> float:
    """A number in [0, 1) that depends on nothing but `what` is decided and the secret (hexadecimal digits):
    HMAC-SHA-256 as a fraction."""
    text = "|".join(str(part) for part in what)
    digest = hmac.new(bytes.fromhex(secret), text.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:7], "big") / SHUFFLES


def side_order(secret: str, item: object, rater_id: int, places: int) -> tuple[int, ...]:
    """The canonical index of the response in each place: uniform over all orders, the same on every reload."""
    return tuple(sorted(range(places), key=lambda index: chance(secret, item, rater_id, index)))
