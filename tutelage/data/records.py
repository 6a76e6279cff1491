"""Plain, frozen records for files and human feedback, without tensors; ids are strings.

A *comparison* is a question, a *judgement* is one rater's answer to it, and a *preference* is the input of training:
derived from judgements, and never stored as ground truth.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant"]
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


@dataclass(frozen=True)
class Message:
    """Turn of a conversation."""

    role: Role
    content: str


Messages: TypeAlias = tuple[Message, ...]


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
    completion was truncated at the length limit.
    """

    id: str
    prompt_id: str
    text: str
    sampler: str
    sampling: str = ""
    finished: bool = True


@dataclass(frozen=True)
class Demonstration:
    """Conversation and completion to imitate. Without messages it is plain text to continue (pretraining). `weight`
    scales the loss of its tokens."""

    messages: Messages
    response: str
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


@dataclass(frozen=True)
class Preference:
    """Preference pair for training. `p_chosen` is the probability that `chosen` is better (1 for a hard label, 0.5
    for a tie), `weight` scales the row's loss, `margin` is the target score difference (nats)."""

    messages: Messages
    chosen: str
    rejected: str
    p_chosen: float = 1.0
    weight: float = 1.0
    margin: float = 0.0


def stable_id(*parts: str) -> str:
    """16 hexadecimal digits of a hash of the parts, in order. Parts are delimited: ("ab", "c") differs from ("a",
    "bc")."""
    canonical = json.dumps(parts, ensure_ascii=True)
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def prompt_id(messages: Messages) -> str:
    """Id of a prompt: a hash of its roles and contents."""
    return stable_id(*(part for message in messages for part in (message.role, message.content)))


@dataclass(frozen=True)
class UnpairedAnswer:
    """Completion with a binary label, good or bad."""

    messages: Messages
    completion: str
    label: bool
