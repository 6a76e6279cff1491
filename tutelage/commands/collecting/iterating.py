"""The next round of a study: what it is compared with, and its questions."""

import shlex
from contextlib import closing
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.lineage import lineage_of
from tutelage.commands.collecting.making import make
from tutelage.commands.collecting.place import open_existing
from tutelage.commands.collecting.settings import Status
from tutelage.commands.collecting.settings_making import Init, IterateSettings

if TYPE_CHECKING:
    from tutelage.people import Round

OWN = "none"
"""The value of --against that compares the new policy's answers with each other."""


def open_round(settings: IterateSettings) -> None:
    """Open the next round of a study with questions about the new policy, and print what comes after it."""
    from tutelage.people import survey

    store, study = open_existing(Status(study=settings.study, db=settings.db, name=settings.name))
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


def _questions(settings: IterateSettings, name: str, number: int, older: str) -> Init:
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
