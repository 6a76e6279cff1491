"""A conversation of a person with one model, or with several that answer the same questions, streamed as they write."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from tutelage.base import config
from tutelage.base.errors import TutelageError
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
    text, written = TextStream(policy.tokenizer, sampling.stop, strips=True), ""

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
    """The conversation as tokens, without its oldest turns where the context is too short for all of them."""
    system: tuple[Message, ...] = messages[:1] if messages[0].role == "system" else ()
    rest = messages[len(system) :]
    tokens = encode(messages, None, policy.tokenizer)[0]
    while policy.context is not None and len(tokens) + room > policy.context and len(rest) > 2:
        rest = rest[2:]  # a question and its answer; the system turn stays
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
    """Hold a conversation until its end is typed.

    Args:
        models: the models by name, which answer in this order.
        system: a system message before every conversation; empty for none.
        sampling: how answers are sampled; they get half of a model's context at most.
        seed: seed of the sampling; every turn has its own.
        read: returns what the person types; raises EOFError at the end.
        write: shows what the models say, piece by piece.
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
                histories = {
                    name: past[:-2] if len(past) > len(start) else past for name, past in histories.items()
                }
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
    """The conversation with the model's answer, or without the question where there is no room for an answer."""
    if policy.context is not None:
        sampling = replace(sampling, max_new_tokens=min(sampling.max_new_tokens, max(1, policy.context // 2)))
    try:
        text = reply(policy, messages, sampling, seed=seed, show=write)
    except TutelageError as error:  # a question without room for an answer: the next one may be shorter
        write(f"{error}\n")
        return messages[:-1]
    write("\n")
    return (*messages, Message("assistant", text))
