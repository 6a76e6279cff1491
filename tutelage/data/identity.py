"""Names that follow from the content: the same thing has the same id in every run and on every machine."""

import hashlib
import json

from tutelage.data.records import Messages


def stable_id(*parts: str) -> str:
    """16 hexadecimal digits of a hash of the parts, in their order. Parts are kept apart: ("ab", "c") is not ("a",
    "bc")."""
    canonical = json.dumps(parts, ensure_ascii=True)
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def prompt_id(messages: Messages) -> str:
    """The id of a conversation to answer: roles and contents, every character of them."""
    return stable_id(*(part for message in messages for part in (message.role, message.content)))
