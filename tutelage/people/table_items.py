"""Prompts, responses and items from the cells of tables and from records of data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tutelage.data.message_values import to_answer, turns
from tutelage.data.records import CompletionRecord, Messages, Prompt, Split, Step, prompt_id, stable_id, step_value
from tutelage.data.row_values import Unusable
from tutelage.data.step_formats import steps_in
from tutelage.data.traces import split_text
from tutelage.data.vote_rows import cell_text
from tutelage.people.languages import Sentence
from tutelage.people.store.items import Item
from tutelage.people.validation import refuse_unstorable

HELD_OUT_SHARE = 10


def read_steps(values: Mapping[str, object], column: str) -> tuple[Step, ...]:
    """The steps of a response: a list of texts or of lists of messages, also as JSON, or the parts of a text between
    blank lines."""
    value = values.get(column)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return split_text(value)
    if not isinstance(value, list | tuple):
        return split_text(cell_text(values, column))
    return steps_in({column: value}, column)


def conversation_in(values: Mapping[str, object], columns: Sequence[str]) -> Messages:
    """The messages of a prompt that is a list of them; empty for a text."""
    value = values.get(columns[0])
    if len(columns) > 1 or not isinstance(value, list):
        return ()
    messages = to_answer(turns(values, columns[0]), columns[0])
    if not messages or not all(message.is_text for message in messages):
        raise Unusable(Sentence("the prompt has no messages, or calls of tools, which raters' pages cannot show"))
    for message in messages:
        refuse_unstorable(message.content, Sentence("A text"))
    return messages


def is_conversation(text: str) -> bool:
    """Whether a text is a list of messages as JSON."""
    if not (text.startswith("[{") and text.endswith("}]")):
        return False
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError):
        return False
    keys = [each.keys() for each in messages if isinstance(each, dict)]
    return len(keys) == len(messages) and all({"role", "content"} <= each or {"from", "value"} <= each for each in keys)


def prompt_of(messages: Messages) -> Prompt:
    """The prompt of messages, with their hash as its id; one in ten prompts is held out."""
    key = prompt_id(messages)
    split: Split = "held_out" if int(stable_id("split", key), 16) % HELD_OUT_SHARE == 0 else "train"
    return Prompt(key, messages, split)


def completion_of(prompt: Prompt, text: str, sampler: str) -> CompletionRecord:
    """The record of a response, with its hash as the id."""
    return CompletionRecord(stable_id(prompt.id, sampler, text), prompt.id, text, sampler)


def in_steps(prompt: Prompt, completion: CompletionRecord, steps: tuple[Step, ...]) -> CompletionRecord:
    """A response with its steps. If they are not the parts of its text, its id is theirs: the text leaves thinking
    out."""
    if steps == split_text(completion.text):
        return replace(completion, steps=steps)
    key = stable_id(prompt.id, completion.sampler, json.dumps(list(map(step_value, steps))))
    return replace(completion, id=key, steps=steps)


def item_of(prompt: Prompt, responses: Sequence[str], origin: str) -> Item:
    """A pair, or a single response, as an item. The canonical order of a pair is that of the response ids, which are
    hashes and thus effectively random."""
    ordered = tuple(sorted(responses))
    return Item(stable_id(prompt.id, *ordered), prompt.id, ordered, origin)
