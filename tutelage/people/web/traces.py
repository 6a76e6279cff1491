"""Messages and steps as safe HTML: texts, thinking (folded), and calls of tools with their results as cards.

Everything beside the HTML that is written here passes through an `Html` or `reveal_text`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from markdown_it.common.utils import escapeHtml

from tutelage.data.records import Message, Messages, Step, ToolCall
from tutelage.data.transcripts import transcript_text
from tutelage.people.images import as_markdown, as_parts
from tutelage.people.languages import Sentence, say
from tutelage.people.web.render import direction_of, reveal_text

Html: TypeAlias = Callable[[str], str]
"""The HTML of a text, `Call.html`."""
SHOWN_LINES, SHOWN_CHARACTERS = 14, 1_500
"""Beginning of a result or argument that is shown; the rest is folded."""
MOST_ARGUMENTS = 40


def messages_data(messages: Messages, html: Html, language: str) -> list[dict[str, str]]:
    """A conversation, each message as raw text and as HTML."""
    names = call_names(messages)
    return [
        {
            "role": message.role,
            "html": message_html(message, names, html, language),
            "text": message.content if message.is_text else transcript_text((message,)),
        }
        for message in messages
    ]


def steps_data(steps: Sequence[Step], html: Html, language: str) -> list[dict[str, str]]:
    """The steps of a response, each as raw text and as HTML; of a trace also the text that the model wrote in it."""
    return [
        {"html": step_html(step, html, language)}
        | ({"text": step} if isinstance(step, str) else {"text": transcript_text(step), "own": step[0].content})
        for step in steps
    ]


def step_html(step: Step, html: Html, language: str) -> str:
    """A step: its text, or its messages."""
    if isinstance(step, str):
        return html(step)
    names = call_names(step)
    return "".join(message_html(message, names, html, language, named=message.role != "assistant") for message in step)


def call_names(messages: Messages) -> Mapping[str, str]:
    """The names of tools by the ids of their calls."""
    return {call.id: call.name for message in messages for call in message.calls if call.id}


def message_html(message: Message, names: Mapping[str, str], html: Html, language: str, *, named: bool = False) -> str:
    """A message; with `named`, one of a person is introduced as such. `names` are the tools of calls by id."""
    if message.role == "tool":
        return _result(message, message.name or names.get(message.call_id, ""), html, language)
    who = f'<p class="who">{_translated(WHO[message.role], language)}</p>' if named else ""
    parts = [_thinking(message.thinking, html, language)] if message.thinking else []
    parts += [html(message.content)] if message.content.strip() else []
    parts += [_call(call, language) for call in message.calls]
    parts += [_offered(message.tools, language)] if message.tools else []
    return who + "".join(parts)


WHO = {"system": Sentence("Instructions"), "user": Sentence("Person"), "assistant": Sentence("Model")}


def _translated(sentence: str, language: str) -> str:
    return escapeHtml(say(sentence, language))


def _thinking(text: str, html: Html, language: str) -> str:
    head = _translated(Sentence("Thinking"), language)
    return f'<details class="thinking"><summary>{head}</summary>{html(text)}</details>'


def _card(kind: str, head: Sentence, name: str, body: str, language: str) -> str:
    tool = f' <bdi class="tool">{reveal_text(name)}</bdi>' if name else ""
    none = Sentence("(nothing)")
    note = body or f'<p class="note">{_translated(none, language)}</p>'
    return f'<div class="card {kind}"><p class="card-head">{_translated(head, language)}{tool}</p>{note}</div>'


def _call(call: ToolCall, language: str) -> str:
    arguments = "".join(
        f"<dt>{reveal_text(name)}</dt><dd>{_folded(text, language)}</dd>" for name, text in _arguments(call)
    )
    return _card("call", Sentence("Call"), call.name, f"<dl>{arguments}</dl>" if arguments else "", language)


def _arguments(call: ToolCall) -> Iterator[tuple[str, str]]:
    """The arguments by name: texts as they are, other values as JSON."""
    try:
        arguments: Any = json.loads(call.arguments)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict) or len(arguments) > MOST_ARGUMENTS:
        yield "", call.arguments
        return
    for name, value in arguments.items():
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _result(message: Message, name: str, html: Html, language: str) -> str:
    """A result as plain text, and after it its images."""
    text, images = as_parts(message.content)
    body = _folded(text, language) if text.strip() else ""
    body += "".join(html(as_markdown(image.words, image.address)) for image in images)
    if is_error(message.content):
        return _card("result error", Sentence("Error"), name, body, language)
    return _card("result", Sentence("Result"), name, body, language)


def is_error(content: str) -> bool:
    """Whether the result of a tool says that it failed: it begins with "error", a Python traceback, or is a JSON object
    with an `error`."""
    start = content.lstrip()[:40].lower()
    if start.startswith(("error:", "error ", "traceback (most recent call last)")):
        return True
    if not start.startswith("{"):
        return False
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value.get("error") or value.get("is_error") or value.get("isError"))


def _folded(text: str, language: str) -> str:
    """Plain text, of which a long rest is folded."""
    lines = text.split("\n")
    start = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARACTERS]
    rest = text[len(start) :]
    direction = f' dir="{base}"' if (base := direction_of(text[:1_000])) else ""
    begin = f'<pre class="plain"{direction} tabindex="0">{reveal_text(start)}</pre>'
    if len(rest) < SHOWN_CHARACTERS // 10 and rest.count("\n") < 4:
        return f'<pre class="plain"{direction} tabindex="0">{reveal_text(text)}</pre>'
    count = Sentence("the rest, %(count)s characters", count=f"{len(rest):,}")
    more = f"<summary>{_translated(count, language)}</summary>"
    tail = f'<pre class="plain"{direction} tabindex="0">{reveal_text(rest.removeprefix(chr(10)))}</pre>'
    return f'{begin}<details class="rest">{more}{tail}</details>'


def _offered(tools: Sequence[str], language: str) -> str:
    """The tools that a conversation offers, each with its schema."""
    rows = "".join(
        f"<dt>{reveal_text(name)}</dt><dd>{reveal_text(description)}</dd>" for name, description in map(_tool, tools)
    )
    head = _translated(Sentence("Tools offered (%(count)s)", count=len(tools)), language)
    return f'<details class="offered"><summary>{head}</summary><dl>{rows}</dl></details>'


def _tool(schema: str) -> tuple[str, str]:
    try:
        value: Any = json.loads(schema)
    except ValueError:
        return "", schema
    function = value.get("function", value) if isinstance(value, dict) else {}
    function = function if isinstance(function, dict) else {}
    return str(function.get("name", "")), str(function.get("description", "")) or schema
