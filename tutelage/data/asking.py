"""How a row asks: the columns that become the conversation to answer, and the column that holds one answer."""

from collections.abc import Callable
from typing import TypeAlias

from tutelage.data.fields import Unusable, conversation, optional_text, text, to_answer, turns
from tutelage.data.readers import Values
from tutelage.data.records import Message, Messages, user
from tutelage.data.transcripts import parse_transcript

Ask: TypeAlias = Callable[[Values], Messages]

SYSTEM = ("system", "system_prompt")


def asked(column: str, context: str | None = None) -> Ask:
    """A user turn from one column, with the context column after an empty line, under the system text if there is
    one."""

    def ask(values: Values) -> Messages:
        extra = optional_text(values, context) if context else ""
        question = text(values, column)
        return under_system(values, user(f"{question}\n\n{extra}" if extra.strip() else question))

    return ask


def under_system(values: Values, messages: Messages) -> Messages:
    """The messages below the row's own system text; a blank one says nothing and is none."""
    for column in SYSTEM:
        if optional_text(values, column).strip():
            return (Message("system", optional_text(values, column)), *messages)
    return messages


def prompt_column(values: Values) -> Messages:
    """`prompt` as text or as a list of messages."""
    return under_system(values, conversation(values, "prompt"))


def prompt_transcript(values: Values) -> Messages:
    """`prompt` as "\\n\\nHuman: ...\\n\\nAssistant:"."""
    messages = parse_transcript(text(values, "prompt"))
    return messages[:-1] if messages[-1] == Message("assistant", "") else to_answer(messages, "prompt")


def answer(values: Values, column: str) -> str:
    """One answer: text, or a list with a single assistant message."""
    if not isinstance(values.get(column), list):
        return text(values, column)
    return only_answer(turns(values, column), column)


def only_answer(messages: Messages, column: str) -> str:
    """The text of the assistant message that is all there is."""
    if len(messages) != 1 or messages[0].role != "assistant":
        raise Unusable(f"{column} is not one assistant message after the prompt")
    return messages[0].content
