"""Prompts made of a template and parts, for models that judge or revise."""

import re
from collections.abc import Mapping

from tutelage.data.records import Messages


def fill(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{name}` replaced by the part of that name; an unknown name stays as it stands.

    Parts are not searched for placeholders, so no text that is filled in can reach another part.
    """
    return re.sub(r"\{(\w+)\}", lambda found: parts.get(found[1], found[0]), template)


def conversation_text(messages: Messages) -> str:
    """A conversation as one text: "role: content" for each turn, with an empty line between turns."""
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)
