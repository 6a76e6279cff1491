"""`tutelage iterate`: the next round of a study, about the policy that came of the last one."""

import shlex
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import tyro

from tutelage.base import config
from tutelage.base.config.bases import EngineSettings
from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.study import CollectSettings, open_existing

if TYPE_CHECKING:
    from tutelage.commands.collect.settings import Init
    from tutelage.people import Round

OWN = "none"
"""The value of --against that compares the new policy's answers with each other."""


@dataclass(frozen=True, kw_only=True)
class IterateSettings(EngineSettings):
    """Open the next round of a study: sample answers of the new policy, beside those of the older one, as new questions
    to the raters. Where the policy comes from (weights, reward model, judgements) is kept in the study, and the owner's
    page shows how agreement, ties and wins move from round to round."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """The study: its database file, the folder that holds it as study.sqlite, or with --db its name."""
    policy: str
    """The new policy: a folder, such as RUN/model of `tutelage improve`, or hub name."""
    prompts: str
    """Prompts to answer: a file or hub data set."""
    against: str = ""
    """The older policy; the one that the last round was about when empty, "none" to compare the new one's answers with
    each other."""
    pairs: int = 1
    """Pairs of answers to ask about per prompt."""
    limit: int | None = None
    """Prompts at most."""
    db: str = ""
    """Database to use instead of a file: a postgresql:// URL."""
    name: str = ""
    """The study's name, where a file holds several."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Seed of the sampling."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, pairs=1)


def main(settings: IterateSettings) -> int:
    """Open the next round of a study with questions about the new policy, and print what comes after it."""
    from tutelage.commands.study_creation import make
    from tutelage.commands.study_lineage import lineage_of
    from tutelage.people import survey

    store, study = open_existing(CollectSettings(study=settings.study, db=settings.db, name=settings.name))
    with closing(store):
        rounds = survey(store, study.id).rounds
    last = rounds[-1] if rounds else None
    older = _older(settings, last)
    number = last.number + 1 if last else 1
    lineage = lineage_of(settings.policy) | ({"against": older} if older else {})
    lineage |= {"after_round": last.number} if last else {}
    print(f"Round {number} of {study.name}: {settings.policy}{f' beside {older}' if older else ''}")
    make(_questions(settings, study.name, number, older), lineage)
    _advise(settings)
    return 0


def _older(settings: IterateSettings, last: "Round | None") -> str:
    """The model to compare with; empty for none."""
    if settings.against:
        return "" if settings.against == OWN else settings.against
    known = ((last.policy,) if last.policy else last.samplers) if last else ()
    rivals = [name for name in known if name and name != settings.policy]
    if len(rivals) != 1:
        told = f"its models are {', '.join(rivals)}" if rivals else "it names no other model"
        raise TutelageError(
            f"The last round does not say which policy the new one is to be compared with ({told}): name it with "
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
    """What comes once the raters have answered."""
    data = settings.db or settings.study
    words = ["tutelage", "reward", "--model", settings.policy, "--data", data, "--out", "RUN"]
    if settings.db or settings.name:
        words += ["--study", settings.name or settings.study]
    print(f"Once they have answered: {shlex.join(words)}")
    print("and `tutelage improve` with that reward; its policy is what the next round is about.")
