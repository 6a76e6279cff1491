"""Tokenisation of conversations: boundaries of prompts and responses, and end tokens.

Tokenizers with a chat template use it. Others use the plain form

    System: Be brief.
    User: What is rain?
    Assistant: Water that falls from clouds.
    User: And snow?
    Assistant:

whose response is a space, the text and the end token. Prompt and response are tokenised separately, so the boundary
between them is a token boundary by construction, and the same in training and sampling. User input is always plain
text: a special token spelled out in a message does not become that token.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.records import Message, Messages
from tutelage.data.tokenizer import CLOSE, END, OPEN, Tokenizer, encode_markup, encode_text, facts

NAMES: Mapping[str, str] = {"system": "System", "user": "User", "assistant": "Assistant"}

STOP_STRINGS = ("\nUser:",)
"""In the plain form a model may write the next question itself; the response ends where that begins."""


def has_template(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer has a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def stop_strings(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Strings that end a sampled response, in addition to the end tokens."""
    return () if has_template(tokenizer) else STOP_STRINGS


# Prompt and response as text -----------------------------------------------------------------------------------------


def render_prompt(messages: Messages, tokenizer: Tokenizer) -> str:
    """Render the conversation as text up to the assistant's turn; "" without messages.

    Raises TutelageError if the last message is the assistant's or the chat template refuses the conversation.
    """
    if not messages:
        return ""
    if messages[-1].role == "assistant":
        raise TutelageError("The conversation ends with an assistant turn, so there is nothing to answer.")
    if has_template(tokenizer):
        return _through_template(messages, tokenizer, add_generation_prompt=True)
    return "".join(f"{NAMES[message.role]}: {message.content}\n" for message in messages) + "Assistant:"


def _through_template(messages: Messages, tokenizer: Tokenizer, *, add_generation_prompt: bool) -> str:
    conversation: list[dict[str, str]] = [{"role": turn.role, "content": turn.content} for turn in messages]
    try:
        return tokenizer.apply_chat_template(
            conversation,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=False,  # for templates that otherwise leave room for a chain of thought
        )
    except Exception as error:  # templates are programs that may raise anything
        roles = ", ".join(turn.role for turn in messages)
        raise TutelageError(f"The chat template refuses a conversation of the turns {roles}: {error}") from error


# Prompt and response as tokens ---------------------------------------------------------------------------------------


def encode(messages: Messages, response: str | None, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """(prompt ids, response ids). Response ids end with the end token; they are [] if `response` is None.

    A prompt is never empty: without messages it is the start token (or the end token if there is none), so that the
    first token of the response has a predecessor.

    Raises TutelageError without an end token, or if the chat template renders a finished conversation so that it
    does not begin with the prompt, or changes the response: no boundary between the two would then be correct.
    """
    if has_template(tokenizer) and messages:
        return _encode_through_template(messages, response, tokenizer)
    special = facts(tokenizer)
    prompt = [*special.start, *encode_text(render_prompt(messages, tokenizer), tokenizer)]
    prompt = prompt or [_start_of_nothing(tokenizer)]
    if response is None:
        return prompt, []
    lead = "" if not messages or special.leads or response[:1].isspace() else " "
    return prompt, [*encode_text(lead + response, tokenizer), plain_end_id(tokenizer)]


def _encode_through_template(
    messages: Messages, response: str | None, tokenizer: Tokenizer
) -> tuple[list[int], list[int]]:
    guard = _Guard(tokenizer)
    hidden = tuple(Message(turn.role, guard.hide(turn.content)) for turn in messages)
    prompt = render_prompt(hidden, tokenizer)
    if response is None:
        return guard.encode(prompt), []
    answer = guard.hide(response)
    body, ending = _split_answer(prompt, hidden, answer, tokenizer)
    return guard.encode(prompt), [*guard.encode(body), *_ending_ids(ending, tokenizer)]


def _split_answer(prompt: str, conversation: Messages, answer: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """(template text after the prompt up to the end of the response, template text after the response)."""
    whole = _through_template(
        (*conversation, Message("assistant", answer + END)), tokenizer, add_generation_prompt=False
    )
    if not whole.startswith(prompt):
        same = next((i for i, (a, b) in enumerate(zip(whole, prompt, strict=False)) if a != b), len(whole))
        raise TutelageError(
            "The chat template writes an answered conversation differently from the prompt it asks for: after "
            f"{prompt[max(0, same - 20) : same]!r} the prompt goes on with {prompt[same : same + 20]!r}, the answered "
            f"conversation with {whole[same : same + 20]!r}. Give the tokenizer a chat_template whose generation "
            "prompt is the beginning of the assistant's turn, or none at all to use the User:/Assistant: form."
        )
    body, _, ending = whole[len(prompt) :].partition(END)
    if answer.strip() not in body or END not in whole:
        raise TutelageError(
            f"The chat template changes the text of the answer {answer[:40]!r}, so it cannot be trained on as written; "
            "give the tokenizer a chat_template that writes the content as it is."
        )
    return body, ending


def _ending_ids(ending: str, tokenizer: Tokenizer) -> list[int]:
    """Tokens that the template writes after a response, up to its first control token; the plain end token if it
    writes none."""
    ids, control = encode_markup(ending, tokenizer), facts(tokenizer).control
    at = next((index for index, token in enumerate(ids) if token in control), None)
    return [plain_end_id(tokenizer)] if at is None else ids[: at + 1]


class _Guard:
    """Protects special tokens in user text from being parsed as such.

    They pass through the template as numbers between two noncharacters, and are then tokenised as plain text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.hidden: list[str] = []

    def hide(self, text: str) -> str:
        return facts(self.tokenizer).special.sub(self._hide, text)

    def _hide(self, match: re.Match[str]) -> str:
        self.hidden.append(match[0])
        return f"{OPEN}{len(self.hidden) - 1}{CLOSE}"

    def encode(self, rendered: str) -> list[int]:
        ids: list[int] = []
        for index, piece in enumerate(re.split(f"{OPEN}(\\d+){CLOSE}", rendered)):
            if index % 2:
                ids += encode_text(self.hidden[int(piece)], self.tokenizer)
            else:
                ids += encode_markup(piece, self.tokenizer)
        return ids


# Tokens that start, end and pad --------------------------------------------------------------------------------------


def _start_of_nothing(tokenizer: Tokenizer) -> int:
    return tokenizer.bos_token_id if tokenizer.bos_token_id is not None else plain_end_id(tokenizer)


def plain_end_id(tokenizer: Tokenizer) -> int:
    """The tokenizer's end token. Raises TutelageError if it has none."""
    if tokenizer.eos_token_id is None:
        raise TutelageError(
            "The tokenizer has no end token, so a model could not learn to stop: set eos_token in its "
            "tokenizer_config.json (for example to '<|endoftext|>' if the vocabulary has it)."
        )
    return tokenizer.eos_token_id


def pad_token_id(tokenizer: Tokenizer) -> int:
    """Padding token: the pad token, else the end token. Masks determine padding, not ids."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else plain_end_id(tokenizer)


class GenerationConfig(Protocol):
    """Fields of a transformers generation configuration that are used here."""

    eos_token_id: int | list[int] | None


def end_token_ids(tokenizer: Tokenizer, generation_config: GenerationConfig | None = None) -> tuple[int, ...]:
    """All ids that end a response; the first is the one with which `encode` ends a response.

    They are the chat template's end of an assistant turn, the tokenizer's end token, and those of the model's
    generation configuration. Raises TutelageError if there are none.
    """
    ids: list[int] = []
    if has_template(tokenizer):
        ids.append(encode((Message("user", "a"),), "b", tokenizer)[1][-1])
    if tokenizer.eos_token_id is not None:
        ids.append(tokenizer.eos_token_id)
    configured = generation_config.eos_token_id if generation_config is not None else None
    ids += configured if isinstance(configured, list) else [configured] if configured is not None else []
    return tuple(dict.fromkeys(ids or [plain_end_id(tokenizer)]))


def decode_response(ids: Sequence[int], tokenizer: Tokenizer, end_ids: Iterable[int]) -> str:
    """Text of a response up to the first end token, without surrounding white space, which differs between templates.

    Inverse of `encode` for texts without surrounding white space that the tokenizer does not change.
    """
    ends = set(end_ids)
    length = next((index for index, token in enumerate(ids) if token in ends), len(ids))
    text = tokenizer.decode(list(ids[:length]), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.strip()


# Length --------------------------------------------------------------------------------------------------------------


class NoRoomError(TutelageError):
    """Raised if a prompt leaves no room for a response. Catch it to skip and count the row; its text is the reason."""


@dataclass(frozen=True)
class Shortening:
    """Prompt and response that fit, and which of them were truncated. A truncated response has no end token."""

    prompt: list[int]
    response: list[int]
    prompt_cut: bool
    response_cut: bool


def shorten(
    prompt: Sequence[int], response: Sequence[int], max_length: int, *, max_prompt: int | None = None
) -> Shortening:
    """Fit prompt and response into `max_length` tokens: the prompt is truncated at its start, but not below
    `max_prompt` tokens; the response at its end.

    Raises NoRoomError if the prompt leaves no room for a single response token.
    """
    if max_prompt is not None and not 0 < max_prompt < max_length:
        raise TutelageError(f"max_prompt is {max_prompt}; it must be above 0 and below max_length, {max_length}.")
    rest = list(prompt if max_prompt is None else prompt[-max_prompt:])
    room = max_length - len(rest)
    if room < 1:
        raise NoRoomError(
            f"The prompt has {counted(len(rest), 'token')} and the limit is {max_length}: there is no room for a "
            "response. Allow more tokens, or let prompts be cut."
        )
    return Shortening(rest, list(response[:room]), len(rest) < len(prompt), room < len(response))
