"""`tutelage iterate`: the next round of a study, for the policy trained on the last one."""

import shlex
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tutelage.base import config
from tutelage.base.config.bases import EngineSettings, EpisodeSettings
from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.study import CollectSettings, open_existing

if TYPE_CHECKING:
    from tutelage.commands.collect.settings import Init
    from tutelage.people import Round

OWN = "none"
"""Value of --against that compares the new policy's completions with each other."""


@dataclass(frozen=True, kw_only=True)
class IterateSettings(CollectSettings, EngineSettings, EpisodeSettings):
    """Open the next round of a study: sample completions of the new policy, and of the older one, as new questions;
    with --environment, --tools or --agent they are episodes, whose turns are their steps. The study records the
    provenance of the policy (weights, reward model, judgements), and the owner's page shows agreement, ties and wins by
    round."""

    policy: str
    """New policy: a folder, such as RUN/model of `tutelage improve`, or hub name."""
    prompts: str
    """Prompts: a file or hub data set."""
    against: str = ""
    """Older policy; by default the policy of the last round. "none" compares completions of the new one with each
    other."""
    pairs: int = 1
    """Pairs of completions per prompt."""
    limit: int | None = None
    """Maximum number of prompts."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Random seed of sampling."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, pairs=1, limit=1)
        self.check_episodes()


def main(settings: IterateSettings) -> int:
    """Open the next round of a study with questions about the new policy, and print the next steps."""
    from tutelage.commands.study_creation import make
    from tutelage.commands.study_data import lineage_of
    from tutelage.people import survey

    store, study = open_existing(settings)
    with closing(store):
        rounds = survey(store, study.id).rounds
    last = rounds[-1] if rounds else None
    older = _older(settings, last)
    number = last.number + 1 if last else 1
    lineage = lineage_of(settings.policy) | ({"against": older} if older else {})
    lineage |= {"after_round": last.number} if last else {}
    print(f"Round {number} of {study.name}: {settings.policy}{f' against {older}' if older else ''}")
    make(_questions(settings, study.name, number, older), lineage, settings if settings.has_episodes else None)
    _advise(settings)
    return 0


def _older(settings: IterateSettings, last: "Round | None") -> str:
    """Return the model to compare with, or "" for none."""
    if settings.against:
        return "" if settings.against == OWN else settings.against
    candidates = ((last.policy,) if last.policy else last.samplers) if last else ()
    rivals = [name for name in candidates if name and name != settings.policy]
    if len(rivals) != 1:
        reason = f"its models are {', '.join(rivals)}" if rivals else "it names no other model"
        raise TutelageError(
            f"The last round does not determine the policy to compare with ({reason}): name it with "
            f"--against, or --against {OWN}."
        )
    return rivals[0]


def _questions(settings: IterateSettings, name: str, number: int, older: str) -> "Init":
    from tutelage.commands.collect.settings import Init

    return Init(
        study=name if settings.db else settings.study,
        db=settings.db,
        name="" if settings.db else name,
        prompts=settings.prompts,
        model=settings.policy,
        against=older,
        pairs=settings.pairs,
        sampling=settings.sampling,
        engine=settings.engine,
        seed=settings.seed,
        limit=settings.limit,
        round=number,
    )


def _advise(settings: IterateSettings) -> None:
    """Print the commands that follow once the raters have answered."""
    data = settings.db or settings.study
    words = ["tutelage", "reward", "--model", settings.policy, "--data", data, "--out", "RUN"]
    if settings.db or settings.name:
        words += ["--study", settings.name or settings.study]
    print(f"Once they have answered: {shlex.join(words)}")
    print("and `tutelage improve` with that reward; its policy is for the next round.")
