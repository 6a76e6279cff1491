"""Tokenisation of conversations: boundaries of prompts and responses, and end tokens.

Prompt and response are tokenised separately, so the boundary between them is a token boundary by construction, and the
same in training and sampling. User input is always plain text: a special token spelled out in a message does not become
that token. Without a chat template a response is a space, the text and the end token.

The opening with which a chat template begins the answer, such as an open <think>, is part of the prompt's tokens and of
the answer's text: a decoded response has it, and a response to encode may have it. A response covers the calls of tools
of its turn.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.chat_template import (
    check_turns,
    excerpt,
    has_template,
    not_shown,
    opening,
    render_prompt,
    render_turns,
)
from tutelage.data.records import AssistantTurn, Message, Messages, text_only
from tutelage.data.tokenizer import CLOSE, END, OPEN, Tokenizer, encode_markup, encode_text, facts

# Prompt and response as tokens ---------------------------------------------------------------------------------------


def encode(messages: Messages, response: AssistantTurn | None, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """(prompt ids, response ids). Response ids end with the end token; they are [] if `response` is None.

    A prompt is never empty: without messages it is the start token (or the end token if there is none), so that the
    first token of the response has a predecessor.

    Raises TutelageError without an end token, if the chat template does not show tools, calls or thinking of the
    conversation, or if it renders a finished conversation so that it does not begin with the prompt, or changes the
    response: no boundary between the two would then be correct.
    """
    if has_template(tokenizer) and messages:
        return _encode_through_template(messages, response, tokenizer)
    special = facts(tokenizer)
    prompt = [*special.start, *encode_text(render_prompt(messages, tokenizer), tokenizer)]
    start = tokenizer.bos_token_id
    prompt = prompt or [plain_end_id(tokenizer) if start is None else start]
    if response is None:
        return prompt, []
    response = text_only(response, "a tokenizer without a chat template")
    lead = _lead(messages, response, tokenizer)
    return prompt, [*encode_text(lead + response, tokenizer), plain_end_id(tokenizer)]


def _encode_through_template(
    messages: Messages, response: AssistantTurn | None, tokenizer: Tokenizer
) -> tuple[list[int], list[int]]:
    guard = _Guard(tokenizer)
    hidden = tuple(map(guard.hide_in, messages))
    answer = Message("assistant", response) if isinstance(response, str) else response
    prompt = render_prompt(hidden, tokenizer, thinking=answer is not None and bool(answer.thinking))
    if answer is None:
        return guard.encode(prompt), []
    if not answer.is_text:
        turn = _answer_turn(prompt, hidden, guard.hide_in(answer), tokenizer)
        return guard.encode(prompt), guard.encode_turn(turn)
    body, ending = _body(prompt, hidden, answer.content, guard)
    # what the template writes after the response, up to its first control token
    ids = encode_markup(ending, tokenizer)
    end = ids[: _end_of(ids, tokenizer)] or [plain_end_id(tokenizer)]
    return guard.encode(prompt), [*guard.encode(body), *end]


def _body(prompt: str, conversation: Messages, answer: str, guard: "_Guard") -> tuple[str, str]:
    """(template text after the prompt up to the end of a response of text, template text after the response)."""
    begun = opening(guard.tokenizer)
    tag, text = begun.rstrip(), answer.lstrip()
    if begun and text.startswith(tag):
        body = guard.hide(text.removeprefix(tag).removeprefix(begun.removeprefix(tag)))
        return body, _answered(conversation, body, guard.tokenizer).partition(END)[2]
    return _split_answer(prompt, conversation, guard.hide(answer), guard.tokenizer)


def encode_pieces(messages: Messages, pieces: Sequence[str], tokenizer: Tokenizer) -> tuple[list[int], list[list[int]]]:
    """(prompt ids, ids of each piece of a response), without an end token.

    Each piece is tokenised by itself, so that the end of a piece is a token boundary by construction, and the tokens of
    a piece do not depend on whether another follows.
    """
    first, others = pieces[0], [encode_text(piece, tokenizer) for piece in pieces[1:]]
    if has_template(tokenizer) and messages:
        guard = _Guard(tokenizer)
        hidden = tuple(map(guard.hide_in, messages))
        prompt = render_prompt(hidden, tokenizer)
        bare = first.rstrip()  # templates may take off white space at the end
        begun = guard.encode(_body(prompt, hidden, bare, guard)[0] + first[len(bare) :])
        return guard.encode(prompt), [begun, *others]
    lead = _lead(messages, first, tokenizer)
    return encode(messages, None, tokenizer)[0], [encode_text(lead + first, tokenizer), *others]


def _lead(messages: Messages, response: str, tokenizer: Tokenizer) -> str:
    """The space before a response without a chat template, unless the tokenizer writes it or there is one."""
    return "" if not messages or facts(tokenizer).leads or response[:1].isspace() else " "


def write_turn(conversation: Messages, turn: Message, tokenizer: Tokenizer) -> str:
    """What the chat template writes of a turn of the assistant after the first question of a conversation, and so
    probably after all of it; "" if that cannot be told apart. Raises TutelageError if it refuses the turn."""
    asked = next((place for place, message in enumerate(conversation, start=1) if message.role == "user"), None)
    guard = _Guard(tokenizer)
    *before, own = map(guard.hide_in, (*conversation[:asked], turn))
    whole = render_turns((*before, own), tokenizer, add_generation_prompt=False)
    prompt = render_turns(tuple(before), tokenizer, add_generation_prompt=True)
    return whole[len(prompt) :] if whole.startswith(prompt) and not guard.hidden else ""


class NextTokens(NamedTuple):
    """Tokens before the next turn of the assistant, whether they continue those of the last one, and the `text` that
    the chat template writes of the whole conversation, with special tokens of messages hidden ("" without one)."""

    ids: list[int]
    continues: bool
    text: str = ""


def encode_next(
    messages: Messages, new: Messages, tokenizer: Tokenizer, *, ended: bool = False, prompt: str = "", turn: str = ""
) -> NextTokens:
    """Tokens before the next turn of the assistant, after `messages`, which end with its last one, and `new`; the last
    one has an end token if it is `ended`.

    They continue those of the last turn if the chat template writes its prompt as it did, and then the turn: they are
    then the difference of what it writes with and without `new`, from the end of the turn on, so that nothing sampled
    is tokenised again. Otherwise, for example if the template leaves out thoughts of earlier turns or moves the
    system's message, and without a chat template, they are those of the whole conversation. `prompt` is the text before
    the last turn and `turn` is `write_turn` of it, if they are known: the conversation is then written once.

    Raises TutelageError if the chat template refuses the conversation or does not write `new`.
    """
    if not has_template(tokenizer) or len(messages) == 1:
        return NextTokens(encode((*messages, *new), None, tokenizer)[0], continues=False)
    guard = _Guard(tokenizer)
    before, after = tuple(map(guard.hide_in, messages)), tuple(map(guard.hide_in, new))
    whole = render_turns((*before, *after), tokenizer, add_generation_prompt=True)
    check_turns(after, whole)
    prompt = prompt or render_turns(before[:-1], tokenizer, add_generation_prompt=True)
    written = prompt + (turn or write_turn(messages[:-1], messages[-1], tokenizer))
    if guard.hidden or written == prompt or not whole.startswith(written):
        written = render_turns(before, tokenizer, add_generation_prompt=False)
    if not (whole.startswith(written) and whole.startswith(prompt)):
        return NextTokens(guard.encode(whole), continues=False, text=whole)
    ending = _ending(tokenizer, str(tokenizer.chat_template))
    ids = guard.encode(ending + whole[len(written) :])
    return NextTokens(ids[_end_of(encode_markup(ending, tokenizer), tokenizer) if ended else 0 :], True, whole)


@lru_cache(maxsize=16)
def _ending(tokenizer: Tokenizer, template: str) -> str:
    """What the chat template writes after an answer."""
    return _answered((Message("user", "a"),), f"{opening(tokenizer)}b", tokenizer).partition(END)[2]


def _split_answer(prompt: str, conversation: Messages, answer: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """(template text after the prompt up to the end of the response, template text after the response)."""
    whole = _answered(conversation, answer, tokenizer)
    if not whole.startswith(prompt) and len(conversation) > 1 and conversation[0].role == "system":
        prompt, whole = _without_system(conversation, answer, tokenizer) or (prompt, whole)
    if not whole.startswith(prompt) and (begun := opening(tokenizer).strip()):
        raise TutelageError(
            f"The chat template begins the answer in the prompt with {begun}, and the answer {excerpt(answer)} does "
            f"not: write it as {begun}…</{begun[1:]}…, or give the tokenizer a chat_template without {begun}."
        )
    body, _, ending = _after_prompt(prompt, whole).partition(END)
    if answer.strip() not in body:
        raise _changed(answer)
    return body, ending


def _without_system(conversation: Messages, answer: str, tokenizer: Tokenizer) -> tuple[str, str] | None:
    """(prompt, answered conversation) without the system message, if the one begins with the other. Mistral's templates
    write the system text before the last user turn, and not at all once it is answered; the response is the same."""
    try:
        prompt = render_turns(conversation[1:], tokenizer, add_generation_prompt=True)
        whole = _answered(conversation[1:], answer, tokenizer)
    except TutelageError:
        return None
    return (prompt, whole) if whole.startswith(prompt) else None


def _answered(conversation: Messages, answer: str, tokenizer: Tokenizer) -> str:
    """What the template writes for an answered conversation, with END after the text of the answer."""
    turn = Message("assistant", answer + END)
    whole = render_turns((*conversation, turn), tokenizer, add_generation_prompt=False)
    if END not in whole:
        raise _changed(answer)
    return whole


def _changed(answer: str) -> TutelageError:
    return TutelageError(
        f"The chat template changes the text of the answer {excerpt(answer)}, so it cannot be trained on as written; "
        "give the tokenizer a chat_template that writes the content as it is."
    )


def _answer_turn(prompt: str, conversation: Messages, answer: Message, tokenizer: Tokenizer) -> str:
    """Template text after the prompt: a turn with calls or thinking, and what ends it."""
    thinking = bool(answer.thinking)
    whole = render_turns((*conversation, answer), tokenizer, add_generation_prompt=False, thinking=thinking)
    turn = _after_prompt(prompt, whole)
    parts = {"calls of tools": [call.name for call in answer.calls], "thinking": [answer.thinking.strip()]}
    for what, texts in parts.items():
        if any(text not in turn for text in texts):
            raise not_shown(what, tokenizer)
    if answer.content.strip() not in turn:
        raise not_shown("the text of an answer beside its calls or thinking", tokenizer)
    return turn


def _after_prompt(prompt: str, whole: str) -> str:
    """Template text of an answered conversation after that of its prompt."""
    if not whole.startswith(prompt):
        same = next((i for i, (a, b) in enumerate(zip(whole, prompt, strict=False)) if a != b), len(whole))
        raise TutelageError(
            "The chat template writes an answered conversation differently from the prompt it asks for: after "
            f"{prompt[max(0, same - 20) : same]!r} the prompt goes on with {prompt[same : same + 20]!r}, the answered "
            f"conversation with {whole[same : same + 20]!r}. Give the tokenizer a chat_template whose generation "
            "prompt is the beginning of the assistant's turn, or none at all to use the User:/Assistant: form."
        )
    return whole[len(prompt) :]


def _end_of(ids: Sequence[int], tokenizer: Tokenizer) -> int:
    """Number of tokens up to the first control token, with it; 0 without any."""
    control = facts(tokenizer).control
    return next((count for count, token in enumerate(ids, start=1) if token in control), 0)


_ESCAPED = re.compile(r"\\ufdd0\d+\\ufdd1")
"""A hidden token (see `_Guard`) as JSON escapes it."""


class _Guard:
    """Protects special tokens in user text from being parsed as such.

    They pass through the template as numbers between two noncharacters, and are then tokenised as plain text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.hidden: list[str] = []

    def hide_in(self, message: Message) -> Message:
        """The message with every special token in it hidden."""
        if message.is_text:
            return Message(message.role, self.hide(message.content))
        calls = (replace(c, name=self.hide(c.name), arguments=self.hide(c.arguments)) for c in message.calls)
        return replace(
            message,
            content=self.hide(message.content),
            thinking=self.hide(message.thinking),
            calls=tuple(calls),
            name=self.hide(message.name),
            call_id=self.hide(message.call_id),
            tools=tuple(map(self.hide, message.tools)),
        )

    def hide(self, text: str) -> str:
        return facts(self.tokenizer).special.sub(self._hide, text)

    def _hide(self, match: re.Match[str]) -> str:
        self.hidden.append(match[0])
        return f"{OPEN}{len(self.hidden) - 1}{CLOSE}"

    def encode_turn(self, rendered: str) -> list[int]:
        """Tokens of a rendered turn up to the special token that ends it; the plain end token if none does."""
        ids = self.encode(rendered.rstrip())
        last = self.tokenizer.added_tokens_decoder.get(ids[-1])
        return ids if last is not None and last.special else [*ids, plain_end_id(self.tokenizer)]

    def encode(self, rendered: str) -> list[int]:
        if self.hidden and _ESCAPED.search(rendered):
            raise TutelageError(
                f"The chat template escapes characters of tools, so that {self.hidden[0]!r} in them cannot be kept "
                "from being read as a special token; remove it from the data."
            )
        ids: list[int] = []
        for index, piece in enumerate(re.split(f"{OPEN}(\\d+){CLOSE}", rendered)):
            if index % 2:
                ids += encode_text(self.hidden[int(piece)], self.tokenizer)
            else:
                ids += encode_markup(piece, self.tokenizer)
        return ids


# Tokens that start, end and pad --------------------------------------------------------------------------------------


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
        ids.append(encode((Message("user", "a"),), f"{opening(tokenizer)}b", tokenizer)[1][-1])
    if tokenizer.eos_token_id is not None:
        ids.append(tokenizer.eos_token_id)
    configured = generation_config.eos_token_id if generation_config is not None else None
    ids += configured if isinstance(configured, list) else [configured] if configured is not None else []
    return tuple(dict.fromkeys(ids or [plain_end_id(tokenizer)]))


def decode_response(ids: Sequence[int], tokenizer: Tokenizer, end_ids: Iterable[int]) -> str:
    """Text of a response up to the first end token, from the `opening` of the chat template on, without surrounding
    white space, which differs between templates.

    Inverse of `encode` for texts without surrounding white space that the tokenizer does not change.
    """
    ends = set(end_ids)
    length = next((index for index, token in enumerate(ids) if token in ends), len(ids))
    text = tokenizer.decode(list(ids[:length]), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return (opening(tokenizer) + text).strip()


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
