r"""Conversations written as one text, "\n\nHuman: ...\n\nAssistant: ...", as in the hh-rlhf data.

A speaker who is named twice in a row goes on speaking: the two parts are one turn, joined by an empty line. (In the
helpful-base test set 9 of 2,354 pairs hold such turns; split, the two sides would not share a prompt.)
"""

import re

from tutelage.data.fields import Unusable
from tutelage.data.records import Message, Messages, Role

_MARK = re.compile(r"(?:^|\n\n)(Human|User|Assistant):")
_EXTRA_ID = re.compile(r"\n?<extra_id_1>(User|Assistant)\n")
_SPEAKERS: dict[str, Role] = {"Human": "user", "User": "user", "Assistant": "assistant"}


def is_transcript(value: object) -> bool:
    """Whether the text begins with a person's turn and marks an assistant's after it."""
    if not isinstance(value, str):
        return False
    opening = _MARK.match(value.lstrip())
    return opening is not None and opening[1] != "Assistant" and "\n\nAssistant:" in value


def parse_transcript(value: str) -> Messages:
    """The turns, without surrounding white space. The last may be empty: a transcript that waits for an answer."""
    parts = _MARK.split("\n\n" + value.strip())
    if parts[0].strip():
        raise Unusable("the transcript does not begin with a speaker")
    messages: list[Message] = []
    for speaker, content in zip(parts[1::2], parts[2::2], strict=True):
        role, content = _SPEAKERS[speaker], content.strip()
        if messages and messages[-1].role == role:
            content = f"{messages.pop().content}\n\n{content}".strip()
        messages.append(Message(role, content))
    if any(not message.content for message in messages[:-1]):
        raise Unusable("the transcript has an empty turn")
    return tuple(messages)


def parse_marked(value: str) -> Messages:
    """The turns of a prompt as HelpSteer writes them: the user's text, then turns marked by <extra_id_1>, the last of
    them the user's."""
    parts = _EXTRA_ID.split(value)
    messages = [Message("user", parts[0].strip())] if parts[0].strip() else []
    for speaker, content in zip(parts[1::2], parts[2::2], strict=True):
        if content.strip():
            messages.append(Message(_SPEAKERS[speaker], content.strip()))
    if not messages or messages[-1].role == "assistant":
        raise Unusable("the prompt ends with an assistant turn, so there is nothing to answer")
    return tuple(messages)


_ENDS = re.compile(r"\n\s*|[.?!:]['\")\]]*\s+")


def ends_in_mid_sentence(chosen: str, rejected: str) -> bool:
    """Whether no line or sentence ends in what two texts have in common: then no place marks where answers begin."""
    return _ENDS.search(_in_common(chosen, rejected)) is None


def shared_beginning(chosen: str, rejected: str) -> tuple[str, str, str]:
    """(prompt, chosen answer, rejected answer) of two texts without a mark between prompt and answer.

    The prompt is their common beginning up to the last end of a line or sentence in it, so that words with which both
    answers begin stay with the answers. Where no line or sentence ends in it, the prompt is the whole of it, back to
    its last white space. A whole sentence with which both answers begin counts as prompt."""
    if chosen.strip() == rejected.strip():
        raise Unusable("chosen equals rejected")
    if chosen.strip().startswith(rejected.strip()) or rejected.strip().startswith(chosen.strip()):
        raise Unusable("one of chosen and rejected is the beginning of the other")
    common = _in_common(chosen, rejected)
    if not common.strip():
        raise Unusable("chosen and rejected share no beginning that could be the prompt")
    ends = [match.end() for match in _ENDS.finditer(common) if common[: match.end()].strip()]
    end = ends[-1] if ends else len(common)
    return chosen[:end].strip(), chosen[end:].strip(), rejected[end:].strip()


def _in_common(chosen: str, rejected: str) -> str:
    """What two texts begin with, back to its last white space so that no word is cut."""
    end = 0
    for index, (left, right) in enumerate(zip(chosen, rejected, strict=False), 1):
        if left != right:
            break
        if left.isspace():
            end = index
    return chosen[:end]
