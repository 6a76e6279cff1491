"""`tutelage chat`: talk to a model, or to two models side by side."""

from dataclasses import dataclass, field, replace

from tutelage.base import config
from tutelage.base.config.bounds import a_seed


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """Talk to a model in the terminal. With --against, two models answer the same questions in turn."""

    model: config.Model
    against: str = ""
    """A second model to compare with."""
    system: str = ""
    """System message at the start of every conversation."""
    sampling: config.Sampling = field(default_factory=lambda: config.Sampling(temperature=0.7, max_new_tokens=256))
    seed: int = 0
    """Random seed of sampling."""

    def __post_init__(self) -> None:
        a_seed(self)


def main(settings: ChatSettings) -> int:
    """Load the models and start the conversation."""
    from tutelage.commands.loading import load_policy
    from tutelage.commands.terminal import remarks
    from tutelage.rollout.inference.conversation import HELP, talk

    model = settings.model
    paths = [model.path, *([settings.against] if settings.against else [])]
    with remarks(quiet=False):
        models = {path: load_policy(replace(model, path=path)) for path in paths}
    print(f"Talking to {' and '.join(paths)}. {HELP}")
    talk(
        models,
        system=settings.system,
        sampling=settings.sampling,
        seed=settings.seed,
        read=lambda: input("\nyou: "),
        write=lambda text: print(text, end="", flush=True),
    )
    return 0
