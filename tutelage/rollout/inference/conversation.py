"""Interactive conversation of a person with one model or several, streamed."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_template import opening, stop_strings
from tutelage.data.chat_tokens import encode
from tutelage.data.records import Message, Messages
from tutelage.data.tokenizer import TextStream
from tutelage.models.policy import Policy
from tutelage.rollout.generator import PromptTokens
from tutelage.rollout.local import LocalGenerator


def reply(
    policy: Policy, messages: Messages, sampling: config.Sampling, *, seed: int, show: Callable[[str], None]
) -> str:
    """Next turn of the model. `show` receives each new piece of text as soon as it is final.

    A completion stops where it starts to write the next question.
    """
    tokens = _fitting(policy, messages, sampling.max_new_tokens)
    sampling = replace(sampling, stop=(*sampling.stop, *stop_strings(policy.tokenizer)))
    text, written = TextStream(policy.tokenizer, sampling.stop, strips=True, opening=opening(policy.tokenizer)), ""

    def say(piece: str) -> None:
        nonlocal written
        written += piece
        show(piece)

    def on_token(token: Tensor) -> None:
        if text.found is None and int(token[0]) not in policy.end_ids:
            say(text.push(int(token[0])))

    prompts = PromptTokens((tokens,), ("chat",))
    LocalGenerator(policy).generate(prompts, 1, sampling, seed=seed, on_token=on_token)
    say(text.finish())
    return written


def _fitting(policy: Policy, messages: Messages, room: int) -> tuple[int, ...]:
    """Conversation as tokens, without its oldest turns if they exceed the context."""
    system: tuple[Message, ...] = messages[:1] if messages[0].role == "system" else ()
    rest = messages[len(system) :]
    tokens = encode(messages, None, policy.tokenizer)[0]
    while policy.context is not None and len(tokens) + room > policy.context and len(rest) > 2:
        rest = rest[2:]  # a question and its reply; the system turn stays
        tokens = encode(system + rest, None, policy.tokenizer)[0]
    return tuple(tokens)


HELP = "/new starts a new conversation, /undo takes back the last turn, /quit (or ctrl-D) ends."


def talk(
    models: Mapping[str, Policy],
    *,
    system: str,
    sampling: config.Sampling,
    seed: int,
    read: Callable[[], str],
    write: Callable[[str], None],
) -> None:
    """Run an interactive conversation until the user ends it.

    Args:
        models: models by name, which reply in this order.
        system: system message of every conversation; empty for none.
        sampling: sampling settings; replies use at most half of a model's context.
        seed: base seed; every turn has a seed of its own.
        read: returns the user's input; raises EOFError at the end.
        write: writes the replies, piece by piece.
    """
    start: Messages = (Message("system", system),) if system else ()
    histories = dict.fromkeys(models, start)
    turn = 0
    while True:
        try:
            line = read().strip()
        except EOFError:
            write("\n")
            return
        match line:
            case "":
                continue
            case "/quit" | "/exit":
                return
            case "/new":
                histories = dict.fromkeys(models, start)
            case "/undo":
                histories = {name: past[:-2] if len(past) > len(start) else past for name, past in histories.items()}
            case "/help":
                write(HELP + "\n")
            case _:
                turn += 1
                for name, policy in models.items():
                    write(f"\n{name if len(models) > 1 else 'model'}: ")
                    messages = (*histories[name], Message("user", line))
                    histories[name] = _continued(policy, messages, sampling, seed + turn, write)


def _continued(
    policy: Policy, messages: Messages, sampling: config.Sampling, seed: int, write: Callable[[str], None]
) -> Messages:
    """Conversation with the model's reply, or without the last question if a reply does not fit."""
    if policy.context is not None:
        sampling = replace(sampling, max_new_tokens=min(sampling.max_new_tokens, max(1, policy.context // 2)))
    try:
        text = reply(policy, messages, sampling, seed=seed, show=write)
    except TutelageError as error:  # a question without room for a reply: the next one may be shorter
        write(f"{error}\n")
        return messages[:-1]
    write("\n")
    return (*messages, Message("assistant", text))
