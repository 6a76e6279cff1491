"""Plain, frozen records for files and human feedback, without tensors; ids are strings.

A *comparison* is a question, a *judgement* is one rater's answer to it, and a *preference* is the input of training:
derived from judgements, and never stored as ground truth.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tutelage.base.errors import TutelageError

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Verdict: TypeAlias = Literal["a", "b", "tie", "both_bad", "skip"]
Split: TypeAlias = Literal["train", "held_out"]
StudyRows: TypeAlias = Literal["votes", "live", "corrections"]
"""Training data in a study: votes on which of two responses is better, the same on turns of live conversations, and
improved responses written by raters."""

ALL_ROWS: tuple[StudyRows, ...] = ("votes", "live", "corrections")
VOTED: tuple[StudyRows, ...] = ("votes", "live")
"""Rows determined by votes."""
WRITTEN: tuple[StudyRows, ...] = ("live", "corrections")
"""Rows with text written or continued by raters."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call of a tool by the assistant. `arguments` is a JSON object as text."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ImagePart:
    """Image in a message: the number of characters of the content before it, its address (a path, a URL, or a data URI
    with the image itself), and the words that stand for it."""

    place: int
    address: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """Turn of a conversation.

    An assistant's message may have a `thinking` part before its content, and `calls` of tools after it; the result of a
    call has the role "tool", the tool's `name` and the `call_id`. `tools` are the JSON schemas of the functions that a
    conversation offers, as texts; they are part of its first message. `images` are in the order of their places; only
    people see them, and a command that trains or samples refuses them. `weight` scales the loss of the tokens of an
    assistant's message, and is no part of its identity.
    """

    role: Role
    content: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    name: str = ""
    call_id: str = ""
    tools: tuple[str, ...] = ()
    images: tuple[ImagePart, ...] = ()
    weight: float = field(default=1.0, compare=False)

    @property
    def is_text(self) -> bool:
        """Whether the message consists of its content alone."""
        return not (self.thinking or self.calls or self.name or self.call_id or self.tools or self.images)


Messages: TypeAlias = tuple[Message, ...]
AssistantTurn: TypeAlias = str | Message
"""What the assistant writes: a text, or a message whose calls or thinking are part of it."""
Step: TypeAlias = str | Messages
"""Step of a completion: a text, or a message of the assistant with the messages that follow it, such as results of its
calls."""


def spoken(message: Message) -> AssistantTurn:
    """The message as the assistant's turn: its text, if it consists of nothing else."""
    return message.content if message.is_text else message


def turn_text(turn: AssistantTurn) -> str:
    """Content of an assistant's turn, without calls and thinking."""
    return turn if isinstance(turn, str) else turn.content


def tools_of(messages: Messages) -> tuple[str, ...]:
    """JSON schemas of the tools that a conversation offers."""
    return messages[0].tools if messages else ()


def step_value(step: Step) -> object:
    """The step as JSON: its text, or its messages."""
    return step if isinstance(step, str) else [message_row(message) for message in step]


def step_from(value: Any) -> Step:
    """Inverse of `step_value`."""
    return value if isinstance(value, str) else tuple(map(message_from, value))


def message_row(message: Message) -> dict[str, object]:
    """The message as chat templates and endpoints expect it, without the tools that the conversation offers."""
    row: dict[str, object] = {"role": message.role, "content": _parts(message) if message.images else message.content}
    if message.thinking:
        row["reasoning_content"] = message.thinking
    if message.calls:
        row["tool_calls"] = [_call_row(call) for call in message.calls]
    if message.name:
        row["name"] = message.name
    if message.call_id:
        row["tool_call_id"] = message.call_id
    return row


def _parts(message: Message) -> list[dict[str, str]]:
    """The content as parts: texts, and images by their addresses."""
    parts, start = [], 0
    for image in message.images:
        if image.place > start:
            parts.append({"type": "text", "text": message.content[start : image.place]})
        start = image.place
        key = "url" if ":" in image.address else "path"
        parts.append({"type": "image", key: image.address} | ({"alt": image.words} if image.words else {}))
    return parts + ([{"type": "text", "text": message.content[start:]}] if message.content[start:] else [])


def message_from(row: Mapping[str, Any]) -> Message:
    """Inverse of `message_row`. Messages from elsewhere are read by `data.message_values`."""
    calls = [(call["function"], call.get("id", "")) for call in row.get("tool_calls", ())]
    content, images = _from_parts(row["content"])
    return Message(
        row["role"],
        content,
        row.get("reasoning_content", ""),
        tuple(ToolCall(each["name"], json.dumps(each["arguments"], ensure_ascii=False), key) for each, key in calls),
        row.get("name", ""),
        row.get("tool_call_id", ""),
        images=images,
    )


def _from_parts(content: str | list[dict[str, str]]) -> tuple[str, tuple[ImagePart, ...]]:
    """Inverse of `_parts`."""
    if isinstance(content, str):
        return content, ()
    text, images = "", []
    for part in content:
        if part["type"] == "text":
            text += part["text"]
        else:
            images.append(ImagePart(len(text), part.get("url") or part["path"], part.get("alt", "")))
    return text, tuple(images)


def call_json(call: ToolCall) -> dict[str, Any]:
    """The call in OpenAI's format, with its arguments as text."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _call_row(call: ToolCall) -> dict[str, object]:
    row: dict[str, object] = {
        "type": "function",
        "function": {"name": call.name, "arguments": json.loads(call.arguments)},
    }
    return row | {"id": call.id} if call.id else row


def text_only(turn: AssistantTurn, reader: str) -> str:
    """The turn's text. Raises TutelageError if it has calls or thinking, with the `reader` that cannot show them."""
    return turn if isinstance(turn, str) else texts_only((turn,), reader)[0]["content"]


def texts_only(messages: Messages, reader: str) -> list[dict[str, str]]:
    """Roles and contents of a conversation of system, user and assistant turns without calls, thinking or tools.

    Raises TutelageError for any other, with the name of the `reader` that cannot show it.
    """
    turns = []
    for number, message in enumerate(messages, 1):
        if not message.is_text or message.role == "tool":
            raise TutelageError(
                f"Message {number} of a conversation ({message.role}) has tools, calls of tools, thinking or images, "
                f"which {reader} cannot show; give conversations of plain text."
            )
        turns.append({"role": message.role, "content": message.content})
    return turns


def user(content: str) -> Messages:
    """Conversation of a single user turn."""
    return (Message("user", content),)


@dataclass(frozen=True)
class Prompt:
    """Conversation to complete. The last message is never the assistant's.

    `data` are the row's own columns: those of its file that are not fields above, as JSON values. Only rewards read
    them; do not mutate.
    """

    id: str
    messages: Messages
    split: Split = "train"
    data: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class CompletionRecord:
    """Sampled completion as a line of completions.jsonl: it references its prompt by id, unlike the `Completion` that a
    reward scores, which includes the conversation.

    `sampler` names the model, `sampling` its settings (temperature and so on, as text); `finished` is False if the
    completion was truncated at the length limit. `steps` are those of a trace or of a text whose steps are known; then
    `text` is the whole to read.
    """

    id: str
    prompt_id: str
    text: str
    sampler: str
    sampling: str = ""
    finished: bool = True
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Conversation and completion to imitate. Without messages it is plain text to continue (pretraining). `weight`
    scales the loss of its tokens."""

    messages: Messages
    response: AssistantTurn
    weight: float = 1.0


@dataclass(frozen=True)
class Comparison:
    """Question: which of two completions of one prompt is better? `origin` is the reason for the pair."""

    id: str
    prompt_id: str
    a_id: str
    b_id: str
    origin: str = "random"


@dataclass(frozen=True)
class Judgement:
    """Judgement of a comparison. `verdict` and `strength` (0 = no difference … 3 = much better) are canonical, about
    a and b in any order of display; `left` is the one shown on the left; `created` is seconds since the epoch."""

    id: str
    comparison_id: str
    rater: str
    verdict: Verdict
    strength: int
    left: Literal["a", "b"]
    seconds: float
    created: float


@dataclass(frozen=True, slots=True)
class Preference:
    """Preference pair for training. `p_chosen` is the probability that `chosen` is better (1 for a hard label, 0.5
    for a tie), `weight` scales the row's loss, `margin` is the target score difference (nats)."""

    messages: Messages
    chosen: AssistantTurn
    rejected: AssistantTurn
    p_chosen: float = 1.0
    weight: float = 1.0
    margin: float = 0.0


def stable_id(*parts: str) -> str:
    """16 hexadecimal digits of a hash of the parts, in order. Parts are delimited: ("ab", "c") differs from ("a",
    "bc")."""
    canonical = json.dumps(parts, ensure_ascii=True)
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def prompt_id(messages: Messages) -> str:
    """Id of a prompt: a hash of its messages; of roles and contents alone for a conversation of plain text."""
    parts = [(message.role, message.content, *_beside_text(message)) for message in messages]
    return stable_id(*(part for each in parts for part in each))


def _beside_text(message: Message) -> tuple[str, ...]:
    return () if message.is_text else (json.dumps([message_row(message), *message.tools], ensure_ascii=True),)


@dataclass(frozen=True, slots=True)
class UnpairedAnswer:
    """Completion with a binary label, good or bad."""

    messages: Messages
    completion: AssistantTurn
    label: bool


@dataclass(frozen=True, slots=True)
class RatedSteps:
    """Completion in steps, all texts or all messages, with the probability that each step is good: 1 or 0 for certain,
    None if it is not rated."""

    messages: Messages
    steps: tuple[Step, ...]
    labels: tuple[float | None, ...]
