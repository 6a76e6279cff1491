r"""Conversations as one text, and prompts that two texts share.

hh-rlhf      "\n\nHuman: ...\n\nAssistant: ..."; consecutive turns of one speaker are merged into one, joined by a
             blank line. (In the helpful-base test set 9 of 2,354 pairs have such turns; unmerged, the two sides
             would not share a prompt.)
HelpSteer    turns marked by <extra_id_1>
Glaive       "USER: ...\n\nASSISTANT: ... <|endoftext|>\n\nFUNCTION RESPONSE: ...", calls after <functioncall>
marks of a chat template that was applied already: ChatML, Llama 3, Gemma, Phi and Zephyr
"""

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import TypeAlias

from tutelage.data.records import Message, Messages, Role
from tutelage.data.row_values import Unusable
from tutelage.data.tool_calls import read_calls, split_schemas

_MARK = re.compile(r"(?:^|\n\n)(Human|User|Assistant):")
_EXTRA_ID = re.compile(r"\n?<extra_id_1>(User|Assistant)\n")
_SPEAKERS: dict[str, Role] = {"Human": "user", "User": "user", "Assistant": "assistant"}


def is_transcript(value: object) -> bool:
    """Whether the text is an hh-rlhf transcript (a human turn, and an assistant turn after it), or begins with the
    marks of a chat template."""
    if not isinstance(value, str):
        return False
    opening = _MARK.match(value.lstrip())
    return has_marks(value) or (opening is not None and opening[1] != "Assistant" and "\n\nAssistant:" in value)


def parse_transcript(value: str) -> Messages:
    """Turns of a transcript, without surrounding white space. The last may be empty: a prompt."""
    if has_marks(value):
        return _parse_template_marks(value)
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


# Marks of chat templates ---------------------------------------------------------------------------------------------


_Marks: TypeAlias = tuple[re.Pattern[str], re.Pattern[str]]
"""How a chat template opens a turn, with the role as group 1, and how it ends one."""
_TEMPLATES: tuple[_Marks, ...] = (
    (re.compile(r"<\|im_start\|>(\w+)\n"), re.compile(r"<\|im_end\|>")),  # ChatML
    (re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n"), re.compile(r"<\|eot_id\|>")),  # Llama 3
    (re.compile(r"<start_of_turn>(\w+)\n"), re.compile(r"<end_of_turn>")),  # Gemma
    (re.compile(r"<\|(system|user|assistant)\|>\n"), re.compile(r"<\|end\|>|</s>|<\|endoftext\|>")),  # Phi, Zephyr
)
_STARTS = re.compile(r"\s*(?:<\|begin_of_text\|>|<bos>|<s>)?\s*")
_ENDS_OF_TURNS = re.compile(rf"(?:{'|'.join(end.pattern for _, end in _TEMPLATES)})\s*\Z")
_MARKED_ROLES: Mapping[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
    "ipython": "tool",
}


def after_prompt(messages: Messages, prompt: Messages) -> Messages:
    """The messages of an episode after those of its prompt, with which it begins unless a program wrote others."""
    pairs = zip(messages, prompt, strict=False)
    alike = takewhile(lambda pair: (pair[0].role, pair[0].content) == (pair[1].role, pair[1].content), pairs)
    return messages[sum(1 for _ in alike) :]


def split_episode(messages: Messages, prompt: Messages) -> tuple[Messages, Messages]:
    """The messages of an episode before its first turn, and the others. A program that writes other messages than those
    of the prompt is taken to keep its turns of the assistant."""
    begun = len(messages) - len(after_prompt(messages, prompt))
    earlier = 0 if begun == len(prompt) else sum(each.role == "assistant" for each in prompt[begun:])
    turns = [place for place, each in enumerate(messages) if each.role == "assistant" and place >= begun]
    first = turns[min(earlier, len(turns) - 1)] if turns else len(messages)
    return messages[:first], messages[first:]


def transcript_text(messages: Messages, prompt: Messages = ()) -> str:
    """The messages of an episode after its prompt to read: the text of a single one, otherwise "role: text" for each,
    with the calls of tools."""
    messages = after_prompt(messages, prompt)
    if len(messages) == 1 and not messages[0].calls:
        return messages[0].content
    return "\n".join(
        " ".join([f"{each.role}:", each.content, *(f"→ {call.name}({call.arguments})" for call in each.calls)]).strip()
        for each in messages
    )


def has_marks(value: str) -> bool:
    """Whether the text begins with a turn in the marks of a chat template."""
    return "<" in value[:64] and _marks_of(value) is not None


def _marks_of(value: str) -> tuple[_Marks, int] | None:
    """The marks of the template that was applied, and where the first turn begins."""
    start = _STARTS.match(value)
    assert start is not None, "it matches an empty text"
    return next(((marks, start.end()) for marks in _TEMPLATES if marks[0].match(value, start.end())), None)


def without_end(value: str) -> str:
    """The text without a chat template's end of a turn after it."""
    return _ENDS_OF_TURNS.sub("", value) if value.rstrip().endswith(">") else value


def _parse_template_marks(value: str) -> Messages:
    (opening, end), start = _marks_of(value) or (_TEMPLATES[0], 0)
    parts = opening.split(value[start:])
    messages: list[Message] = []
    for speaker, body in zip(parts[1::2], parts[2::2], strict=True):
        if speaker not in _MARKED_ROLES:
            raise Unusable(f"the text has a turn with the unknown role {speaker!r}")
        content, *rest = end.split(body)
        if "".join(rest).strip():
            raise Unusable("the text has something other than turns between a chat template's marks")
        message = Message(_MARKED_ROLES[speaker], content.strip())
        if message.content or message.role != "system":  # Zephyr's template writes an empty system turn
            messages.append(message)
    if any(not message.content for message in messages[:-1]):
        raise Unusable("the text has an empty turn between a chat template's marks")
    return tuple(messages)


# Glaive --------------------------------------------------------------------------------------------------------------

_GLAIVE = re.compile(r"(?:\A|\n)[ \t]*(USER|ASSISTANT|FUNCTION RESPONSE): ")
_GLAIVE_ROLES: Mapping[str, Role] = {"USER": "user", "ASSISTANT": "assistant", "FUNCTION RESPONSE": "tool"}
_GLAIVE_CALL = re.compile(
    r"<functioncall>\s*\{\"name\":\s*\"([^\"]+)\",\s*\"arguments\":\s*'(.*)'\s*\}\s*\Z", re.DOTALL
)
_OFFERS = re.compile(r"\s+with access to the following functions\. Use them if required -?\s*\Z")


def parse_glaive(system: str, chat: str) -> Messages:
    """Turns of a row of Glaive's function calling data, with the functions of its system text as tools."""
    said, tools = split_schemas(system.removeprefix("SYSTEM: "))
    instruction = _OFFERS.sub("", said).strip()
    parts = _GLAIVE.split(chat.strip())
    if parts[0].strip():
        raise Unusable("the chat does not begin with a speaker")
    turns = zip(parts[1::2], parts[2::2], strict=True)
    messages = [Message("system", instruction)] if instruction else []
    messages += [_glaive_turn(_GLAIVE_ROLES[speaker], content) for speaker, content in turns]
    if not messages:
        raise Unusable("the chat has no turns")
    first, *others = messages
    return (Message(first.role, first.content, tools=tools), *others)


def _glaive_turn(role: Role, content: str) -> Message:
    content = content.replace("<|endoftext|>", "").strip()
    if role != "assistant" or "<functioncall>" not in content:
        return Message(role, content)
    before, mark, call = content.partition("<functioncall>")
    quoted = _GLAIVE_CALL.match(mark + call)
    given: object = {"name": quoted[1], "arguments": quoted[2]} if quoted else call
    return Message(role, before.strip(), calls=read_calls(given, "chat"))


# HelpSteer -----------------------------------------------------------------------------------------------------------


def parse_marked(value: str) -> Messages:
    """Turns of a HelpSteer prompt: the user's text, then turns marked by <extra_id_1>, the last of them the user's."""
    parts = _EXTRA_ID.split(value)
    messages = [Message("user", parts[0].strip())] if parts[0].strip() else []
    for speaker, content in zip(parts[1::2], parts[2::2], strict=True):
        if content.strip():
            messages.append(Message(_SPEAKERS[speaker], content.strip()))
    if not messages or messages[-1].role == "assistant":
        raise Unusable("the prompt ends with an assistant turn, so there is nothing to answer")
    return tuple(messages)


# A prompt that two texts share ----------------------------------------------------------------------------------------

_ENDS = re.compile(r"\n\s*|[.?!:]['\")\]]*\s+")


def ends_in_mid_sentence(chosen: str, rejected: str) -> bool:
    """Whether the common prefix of two texts contains no end of a line or sentence, so that the end of the prompt is
    ambiguous."""
    return _ENDS.search(_in_common(chosen, rejected)) is None


def shared_beginning(chosen: str, rejected: str) -> tuple[str, str, str]:
    """(prompt, chosen completion, rejected completion) of two texts without a mark between prompt and completion.

    The prompt is their common prefix up to its last end of a line or sentence, so that words with which both
    completions start stay with them. Without such an end, the prompt is the whole prefix, back to its last white
    space. A whole sentence with which both completions start counts as prompt."""
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
    """Common prefix of two texts, back to its last white space so that no word is split."""
    end = 0
    for index, (left, right) in enumerate(zip(chosen, rejected, strict=False), 1):
        if left != right:
            break
        if left.isspace():
            end = index
    return chosen[:end]
