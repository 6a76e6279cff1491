"""The records that people and files see. Plain, frozen, no tensors; ids are strings.

A *comparison* is a question, a *judgement* is one rater's answer to it, and a *preference* is what training reads:
it is derived from judgements and never stored as the truth.
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
"""What a study holds to train on: votes on which of two responses is better, the same on turns of live conversations,
and better responses that raters wrote."""

ALL_ROWS: tuple[StudyRows, ...] = ("votes", "live", "corrections")
VOTED: tuple[StudyRows, ...] = ("votes", "live")
"""Rows that votes decide."""
WRITTEN: tuple[StudyRows, ...] = ("live", "corrections")
"""Rows whose text raters wrote, or continued."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


Messages: TypeAlias = tuple[Message, ...]


def user(content: str) -> Messages:
    """The conversation of a single user turn."""
    return (Message("user", content),)


@dataclass(frozen=True)
class Prompt:
    """A conversation to answer. The last message is never the assistant's.

    `data` are the row's own columns: those of its file that are none of the fields above, as JSON values. They are read
    by rewards, never by models, and not to be changed.
    """

    id: str
    messages: Messages
    split: Split = "train"
    data: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class CompletionRecord:
    """One sampled answer as a line of completions.jsonl: it names its prompt by id, where the completion that a reward
    scores carries the conversation itself.

    `sampler` names the model, `sampling` how it was asked (temperature and so on, as text); `finished` is False when
    the answer was cut at the length limit instead of ending by itself.
    """

    id: str
    prompt_id: str
    text: str
    sampler: str
    sampling: str = ""
    finished: bool = True


@dataclass(frozen=True)
class Demonstration:
    """A conversation and the response to imitate. No messages at all means plain text to continue (pretraining).
    `weight` scales the loss of its tokens."""

    messages: Messages
    response: str
    weight: float = 1.0


@dataclass(frozen=True)
class Comparison:
    """A question: which of two completions of one prompt is better? `origin` says why the pair was asked."""

    id: str
    prompt_id: str
    a_id: str
    b_id: str
    origin: str = "random"


@dataclass(frozen=True)
class Judgement:
    """An answer. `verdict` and `strength` (0 = no difference … 3 = much better) are canonical, about a and b however
    they were shown; `left` says which of the two stood on the left; `created` is seconds since the epoch."""

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
    """One pair of preference training. `p_chosen` is the probability that `chosen` is the better one (1 for a hard
    label, 0.5 for a tie), `weight` scales the row's loss, `margin` is asked of the score difference (nats)."""

    messages: Messages
    chosen: str
    rejected: str
    p_chosen: float = 1.0
    weight: float = 1.0
    margin: float = 0.0


def stable_id(*parts: str) -> str:
    """16 hexadecimal digits of a hash of the parts, in their order. Parts are kept apart: ("ab", "c") is not ("a",
    "bc")."""
    canonical = json.dumps(parts, ensure_ascii=True)
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def prompt_id(messages: Messages) -> str:
    """The id of a conversation to answer: roles and contents, every character of them."""
    return stable_id(*(part for message in messages for part in (message.role, message.content)))


@dataclass(frozen=True)
class UnpairedAnswer:
    """One answer and whether it was found good."""

    messages: Messages
    completion: str
    label: bool
