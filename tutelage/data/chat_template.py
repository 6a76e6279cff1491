"""Chat templates: conversations as text, and the plain form of tokenizers without a template.

    System: Be brief.
    User: What is rain?
    Assistant: Water that falls from clouds.
    User: And snow?
    Assistant:

Tools, calls of tools and their results are shown by a chat template alone. A conversation with any of them is refused
if the template does not show it. A template may begin the answer itself, with an open <think>. The text of every turn
must be in what the template writes, except the thoughts of earlier turns.
"""

import datetime
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Messages, message_row, texts_only, tools_of
from tutelage.data.tokenizer import Tokenizer

NAMES: Mapping[str, str] = {"system": "System", "user": "User", "assistant": "Assistant"}

STOP_STRINGS = ("\nUser:",)
"""In the plain form a model may write the next question itself; the response ends where that begins."""

THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>\s*\Z")
"""An open thought at the end of a prompt."""
NOW = re.compile(r"""strftime_now\(\s*(['"])(.*?)\1\s*\)""")
"""Call in a chat template for the date in a format."""

_DAYS: list[datetime.date] = []
"""Dates of the open runs of this process, the newest last."""

log = logging.getLogger(__name__)


def has_template(tokenizer: Tokenizer) -> bool:
    return bool(getattr(tokenizer, "chat_template", None))


def stop_strings(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Strings that end a sampled response, in addition to the end tokens."""
    return () if has_template(tokenizer) else STOP_STRINGS


def render_prompt(messages: Messages, tokenizer: Tokenizer, *, thinking: bool = False) -> str:
    """Render the conversation as text up to the assistant's turn; "" without messages. `thinking`: the turn begins with
    a chain of thought.

    Raises TutelageError if the last message is the assistant's, or if the chat template refuses the conversation,
    leaves out a turn, or does not show its tools.
    """
    if not messages:
        return ""
    if messages[-1].role == "assistant":
        raise TutelageError("The conversation ends with an assistant turn, so there is nothing to answer.")
    if has_template(tokenizer):
        prompt = render_turns(messages, tokenizer, add_generation_prompt=True, thinking=thinking)
        _check_shown(messages, prompt, tokenizer, thinking)
        check_turns(messages, prompt)
        return prompt
    turns = texts_only(messages, "a tokenizer without a chat template")
    return "".join(f"{NAMES[turn['role']]}: {turn['content']}\n" for turn in turns) + "Assistant:"


@contextmanager
def dated(day: datetime.date) -> Iterator[None]:
    """A context in which chat templates write the date `day` instead of today's, in the whole process."""
    _DAYS.append(day)
    try:
        yield
    finally:
        _DAYS.remove(day)


def apply_template(conversation: list[dict[str, Any]], tokenizer: Tokenizer, **options: Any) -> str:
    """The text that the chat template writes for a conversation. The date that templates ask for is that of the run
    (see `dated`). Raises TutelageError, with the conversation, if the template refuses it."""
    try:
        return tokenizer.apply_chat_template(conversation, tokenize=False, **_options(tokenizer, **options))
    except Exception as error:  # templates are programs that may raise anything
        roles = ", ".join(turn["role"] for turn in conversation)
        first = excerpt(str(conversation[0]["content"]))
        raise TutelageError(
            f"The chat template refuses the conversation that begins with {first} (turns {roles}): {error}"
        ) from error


def _options(tokenizer: Tokenizer, **options: Any) -> dict[str, Any]:
    """Options of a template: without those given, no room for a chain of thought, and the date of the run."""
    return {"enable_thinking": False} | options | dated_template(tokenizer, tools="tools" in options)


def dated_template(tokenizer: Tokenizer, *, tools: bool = False) -> dict[str, str]:
    """The template as an option of `apply_chat_template` if it asks for the date, with the date in place of the calls.
    Of several named ones it is `tool_use` for a conversation with tools, if there is one, and otherwise `default`.
    Raises TutelageError for a call whose format is not a literal."""
    named = tokenizer.chat_template
    name = "tool_use" if tools and isinstance(named, dict) and "tool_use" in named else "default"
    template = named.get(name) if isinstance(named, dict) else named
    if not (isinstance(template, str) and "strftime_now" in template):
        return {}
    now = datetime.datetime.combine(_DAYS[-1], datetime.time()) if _DAYS else datetime.datetime.now()
    dated_text = NOW.sub(lambda call: repr(now.strftime(call[2])), template)
    if "strftime_now(" in dated_text:
        raise TutelageError(
            "The chat template computes the format of its date, so that of the run cannot be put in its place: write "
            "the format of strftime_now as a text in the chat_template, or a fixed date."
        )
    return {"chat_template": dated_text}


def render_turns(
    messages: Messages, tokenizer: Tokenizer, *, add_generation_prompt: bool, thinking: bool = False
) -> str:
    """The text that the chat template writes for messages and their tools."""
    tools = [json.loads(schema) for schema in tools_of(messages)]
    return apply_template(
        [message_row(turn) for turn in messages],
        tokenizer,
        add_generation_prompt=add_generation_prompt,
        enable_thinking=thinking,
        **({"tools": tools} if tools else {}),
    )


def _check_shown(messages: Messages, prompt: str, tokenizer: Tokenizer, thinking: bool) -> None:
    """Raise TutelageError if the chat template writes the same prompt without the tools, the calls or the results."""
    without = {
        "tools": tuple(replace(turn, tools=()) for turn in messages),
        "calls of tools": tuple(replace(turn, calls=()) for turn in messages),
        "results of tools": tuple(replace(turn, content="") if turn.role == "tool" else turn for turn in messages),
    }
    for what, others in without.items():
        if others == messages:
            continue
        try:
            rendered = render_turns(others, tokenizer, add_generation_prompt=True, thinking=thinking)
        except TutelageError:  # it refuses a call without its result, or the reverse, so it reads both
            continue
        if rendered == prompt:
            raise not_shown(what, tokenizer)


def not_shown(what: str, tokenizer: Tokenizer) -> TutelageError:
    """The refusal of a template that leaves out something of a conversation."""
    named = getattr(tokenizer, "name_or_path", "") or "the tokenizer"
    return TutelageError(
        f"The chat template of {named} does not show {what}: the model would not see what the data holds. Choose a "
        "model whose chat template does, or give the tokenizer such a chat_template."
    )


def check_turns(messages: Messages, text: str) -> None:
    """Check that a template wrote every turn. Raises TutelageError, with the first turn that is left out or changed;
    the thoughts of earlier answers may be left out, as they are when a model is used, with a remark."""
    for number, turn in enumerate(messages, start=1):
        if turn.role == "tool" or turn.content.strip() in text:  # templates may write a result as JSON
            continue
        _, end, answer = turn.content.rpartition("</think>")
        if turn.role == "assistant" and end and answer.strip() in text:
            _remark_thoughts()
            continue
        raise TutelageError(
            f"The chat template leaves out or changes the text of turn {number} ({turn.role}), "
            f"{excerpt(turn.content)}: remove the turn, or give the tokenizer a chat_template that writes it."
        )


def are_written(conversations: Sequence[Messages], tokenizer: Tokenizer) -> list[bool]:
    """For each conversation, whether the text of every turn is in what `encode` makes of it: always without a chat
    template. They are rendered at once, in a third of the time."""
    if not has_template(tokenizer):
        return [True] * len(conversations)
    rows = [[message_row(turn) for turn in messages] for messages in conversations]
    try:
        texts = tokenizer.apply_chat_template(rows, tokenize=False, **_options(tokenizer, add_generation_prompt=False))
    except Exception:  # templates are programs that may raise anything
        return [len(rows) > 1 and are_written([messages], tokenizer)[0] for messages in conversations]
    return [_is_written(messages, text) for messages, text in zip(conversations, texts, strict=True)]


def _is_written(messages: Messages, text: str) -> bool:
    try:
        check_turns(messages, text)
    except TutelageError:
        return False
    return True


@lru_cache(maxsize=1)
def _remark_thoughts() -> None:
    log.info("The chat template leaves out the thoughts (<think>) of earlier turns, so they are in no prompt.")


def excerpt(text: str) -> str:
    """The beginning of a text in a message."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def opening(tokenizer: Tokenizer) -> str:
    """The text with which the chat template begins the answer in the prompt, an open thought such as "<think>\\n"; ""
    if there is none."""
    template = tokenizer.chat_template
    return _opening(tokenizer, str(template)) if has_template(tokenizer) else ""


@lru_cache(maxsize=16)
def _opening(tokenizer: Tokenizer, template: str) -> str:
    try:
        begun = THOUGHT.search(render_turns((Message("user", "a"),), tokenizer, add_generation_prompt=True))
    except TutelageError:  # `encode` reports it
        return ""
    return begun[0] if begun else ""
