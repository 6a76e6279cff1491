"""A conversation with a model, streamed as it speaks."""

from collections.abc import Callable

from torch import Tensor

from tutelage import config
from tutelage.data.chat import decode_response, encode, stop_strings
from tutelage.data.records import Message, Messages
from tutelage.models.policy import Policy
from tutelage.rollout.generator import PromptTokens
from tutelage.rollout.local import LocalGenerator


def reply(
    policy: Policy, messages: Messages, sampling: config.Sampling, *, seed: int, show: Callable[[str], None]
) -> str:
    """The model's next turn. `show` gets each new piece of text as soon as it is certain.

    An answer that begins to write the next question itself ends there.
    """
    tokens = _fitting(policy, messages, sampling.max_new_tokens)
    said: list[int] = []
    shown = 0

    def on_token(token: Tensor) -> None:
        nonlocal shown
        said.append(int(token[0]))
        text = decode_response(said, policy.tokenizer, policy.end_ids)
        if not text.endswith("\ufffd"):  # the token ends inside a character
            certain = _before_stop(text, stop_strings(policy.tokenizer))
            show(certain[shown:])
            shown = max(shown, len(certain))

    prompts = PromptTokens((tokens,), ("chat",))
    LocalGenerator(policy).generate(prompts, 1, sampling, seed=seed, on_token=on_token)
    text = decode_response(said, policy.tokenizer, policy.end_ids)
    for stop in stop_strings(policy.tokenizer):
        text = text.partition(stop)[0]
    show(text[shown:])
    return text.strip()


def _before_stop(text: str, stops: tuple[str, ...]) -> str:
    """The part of `text` that no stop string can take away any more."""
    for stop in stops:
        if stop in text:
            return text.partition(stop)[0]
        for size in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:size]):
                return text[:-size]
    return text


def _fitting(policy: Policy, messages: Messages, room: int) -> tuple[int, ...]:
    """The conversation as tokens, without its oldest turns where the context is too short for all of them."""
    system: tuple[Message, ...] = messages[:1] if messages[0].role == "system" else ()
    rest = messages[len(system) :]
    tokens = encode(messages, None, policy.tokenizer)[0]
    while policy.context is not None and len(tokens) + room > policy.context and len(rest) > 2:
        rest = rest[2:]  # a question and its answer; the system turn stays
        tokens = encode(system + rest, None, policy.tokenizer)[0]
    return tuple(tokens)
