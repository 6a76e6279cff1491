"""A conversation with a model, streamed as it speaks."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from tutelage.base import config
from tutelage.data.chat_tokens import encode, stop_strings
from tutelage.data.records import Message, Messages
from tutelage.data.tokenizer import TextStream
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
    sampling = replace(sampling, stop=(*sampling.stop, *stop_strings(policy.tokenizer)))
    text, said = TextStream(policy.tokenizer, sampling.stop, strips=True), ""

    def say(piece: str) -> None:
        nonlocal said
        said += piece
        show(piece)

    def on_token(token: Tensor) -> None:
        if text.found is None and int(token[0]) not in policy.end_ids:
            say(text.push(int(token[0])))

    prompts = PromptTokens((tokens,), ("chat",))
    LocalGenerator(policy).generate(prompts, 1, sampling, seed=seed, on_token=on_token)
    say(text.finish())
    return said


def _fitting(policy: Policy, messages: Messages, room: int) -> tuple[int, ...]:
    """The conversation as tokens, without its oldest turns where the context is too short for all of them."""
    system: tuple[Message, ...] = messages[:1] if messages[0].role == "system" else ()
    rest = messages[len(system) :]
    tokens = encode(messages, None, policy.tokenizer)[0]
    while policy.context is not None and len(tokens) + room > policy.context and len(rest) > 2:
        rest = rest[2:]  # a question and its answer; the system turn stays
        tokens = encode(system + rest, None, policy.tokenizer)[0]
    return tuple(tokens)
