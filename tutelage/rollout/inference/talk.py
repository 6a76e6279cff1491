"""A conversation of a person with one model, or with several that answer the same questions."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Messages
from tutelage.models.policy import Policy
from tutelage.rollout.inference.conversation import reply

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
                histories = {name: _without_last(past, start) for name, past in histories.items()}
            case "/help":
                write(HELP + "\n")
            case _:
                turn += 1
                for name, policy in models.items():
                    write(f"\n{name if len(models) > 1 else 'model'}: ")
                    messages = (*histories[name], Message("user", line))
                    histories[name] = _continued(policy, messages, sampling, seed + turn, write)


def _without_last(history: Messages, start: Messages) -> Messages:
    return history[:-2] if len(history) > len(start) else history


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
