"""`tutelage chat`: talk to a model, or to two side by side."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tutelage import config
from tutelage.data.records import Message, Messages
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.models.policy import Policy

HELP = "/new starts a new conversation, /undo takes back the last turn, /quit (or ctrl-D) ends."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Talk to a model in the terminal. With --against, two models answer the same questions, one after the other."""

    model: config.Model
    against: str = ""
    """A second model."""
    system: str = ""
    """A system message that stands before every conversation."""
    sampling: config.Sampling = field(
        default_factory=lambda: config.Sampling(temperature=0.7, max_new_tokens=256)
    )
    seed: int = 0
    """Seed of the sampling."""


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    paths = [settings.model.path] + ([settings.against] if settings.against else [])
    models = {
        path: Policy(
            load_backbone(config.Model(path=path, dtype=settings.model.dtype, device=settings.model.device))
        )
        for path in paths
    }
    print(f"Talking to {' and '.join(paths)}. {HELP}")
    talk(models, settings, read=lambda: input("\nyou: "), write=lambda text: print(text, end="", flush=True))
    return 0


def talk(
    models: dict[str, "Policy"], settings: Settings, *, read: Callable[[], str], write: Callable[[str], None]
) -> None:
    """The conversation itself: `read` gives what the person types, `write` shows what the models say."""
    start: Messages = (Message("system", settings.system),) if settings.system else ()
    histories = dict.fromkeys(models, start)
    turn = 0
    while True:
        try:
            said = read().strip()
        except EOFError:
            write("\n")
            return
        match said:
            case "":
                continue
            case "/quit" | "/exit":
                return
            case "/new":
                histories = dict.fromkeys(models, start)
                continue
            case "/undo":
                histories = {
                    path: history[:-2] if len(history) > len(start) else history
                    for path, history in histories.items()
                }
                continue
            case "/help":
                write(HELP + "\n")
                continue
        turn += 1
        histories = {
            path: _answered(policy, (*histories[path], Message("user", said)), settings, turn, path, write)
            for path, policy in models.items()
        }


def _answered(
    policy: "Policy",
    messages: Messages,
    settings: Settings,
    turn: int,
    path: str,
    write: Callable[[str], None],
) -> Messages:
    """Let one model answer; returns the conversation with its answer."""
    from tutelage.infer.conversation import reply

    write(f"\n{path}: " if settings.against else "\nmodel: ")
    room = policy.context
    sampling = settings.sampling
    if room is not None:
        sampling = replace(sampling, max_new_tokens=min(sampling.max_new_tokens, max(1, room // 2)))
    try:
        text = reply(policy, messages, sampling, seed=settings.seed + turn, show=write)
    except TutelageError as error:  # a question without room for an answer: the next one may be shorter
        write(f"{error}\n")
        return messages[:-1]
    write("\n")
    return (*messages, Message("assistant", text))
