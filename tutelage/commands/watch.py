"""`tutelage watch`: wait until a study meets conditions, then run commands, and offer a promotion."""

import contextlib
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.signals import handled
from tutelage.commands.study import CollectSettings, open_existing

if TYPE_CHECKING:
    from tutelage.people.programs.study_progress import Condition, Progress, Source

SHORTEST = 0.1
"""Minimum seconds between two checks."""
ROUND = "{round}"
"""What stands for the number of the round in commands and in the candidate's name."""


@dataclass(frozen=True, kw_only=True)
class WatchSettings(CollectSettings):
    """Wait until a study meets all given conditions at once, then run commands, until one fails, whose exit status is
    returned. Without --then nothing is run, and the status is 0."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """Study: its database file, the folder that contains study.sqlite, with --db its name, or the address of its site,
    which needs a token with the right `read` in TUTELAGE_TOKEN."""
    then: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Command to run, with its arguments in one text; it is not run in a shell. May be repeated: each runs once the one
    before it has ended with status 0. {round} stands for the number of the round, from 1, so that each has folders of
    its own."""
    offer: Path | None = None
    """Run of a candidate, which the commands may write: print the state of its evidence, from the users of
    `tutelage serve --feedback` of this study, and the command that promotes it. Nothing is promoted. With {round} in
    it, the first round is the first one whose candidate is not there."""
    split: float = 0.5
    """Share of the users who were assigned to the candidate of --offer."""
    votes: int | None = None
    """Wait for this many votes."""
    items_done: str = ""
    """Wait for this many items with all their answers, or `all`."""
    agreement: float | None = None
    """Wait for this agreement, a share such as 0.7."""
    every: float = 30.0
    """Seconds between two checks."""
    once: bool = True
    """Run the command once; --no-once runs it again after every further --votes, until it fails."""

    def __post_init__(self) -> None:
        self.condition  # noqa: B018  # refuses invalid conditions
        if not self.every >= SHORTEST:
            raise TutelageError(f"--every is {self.every:g}; it must be at least {SHORTEST:g} seconds.")
        if not self.once and (self.votes is None or not self.then):
            raise TutelageError("--no-once needs --votes and --then: the command runs after every so many votes.")
        if self.offer is not None and self.is_remote:
            raise TutelageError(
                "--offer reads the database of the study; give that instead of the address of its site."
            )
        if self.offer is None and self.split != 0.5:
            raise TutelageError("--split is about --offer; give that too.")
        self.words  # noqa: B018  # refuses invalid commands
        if self.is_remote and (self.db or self.name):
            raise TutelageError("An address selects the study by its token: omit --db and --name.")

    @property
    def is_remote(self) -> bool:
        """Whether the study is behind the API of its site."""
        return self.study.startswith(("http://", "https://"))

    @property
    def condition(self) -> "Condition":
        """Condition to wait for. Raises TutelageError for an invalid one."""
        from tutelage.people.programs.study_progress import Condition

        items = self.items_done
        number = int(items) if items.isascii() and items.isdecimal() and len(items) < 10 else items
        return Condition(self.votes, None if number == "" else number, self.agreement)

    @property
    def words(self) -> list[list[str]]:
        """The commands; `tutelage` is that of this Python. Raises TutelageError if there is no such program."""
        return list(map(_words, self.then))

    def of_round(self, number: int) -> "WatchSettings":
        """The settings with the number of the round in the commands and the candidate."""
        filled = None if self.offer is None else Path(str(self.offer).replace(ROUND, str(number)))
        return replace(self, then=tuple(each.replace(ROUND, str(number)) for each in self.then), offer=filled)

    @property
    def first_round(self) -> int:
        """The first round whose candidate is not there; 1 if its name is the same in every round."""
        if self.offer is None or ROUND not in str(self.offer):
            return 1
        names = str(self.offer)
        return next(n for n in count(1) if not (Path(names.replace(ROUND, str(n))) / "summary.json").is_file())


def _words(then: str) -> list[str]:
    try:
        words = shlex.split(then)
    except ValueError as error:
        raise TutelageError(f"--then cannot be read ({error}); check its quotation marks.") from error
    if not words:
        raise TutelageError("--then is empty; give a command, or omit it.")
    if words[0] == "tutelage":
        return [sys.executable, "-m", *words]
    if shutil.which(words[0]) is None:
        raise TutelageError(f"--then names '{words[0]}', but there is no such program.")
    return words


def main(settings: WatchSettings) -> int:
    """Wait, run the command, and repeat with --no-once."""
    from tutelage.people.programs.study_progress import looks

    condition, number = settings.condition, settings.first_round
    with _source(settings) as source:
        while True:
            before: Progress | None = None
            with interruptible() as sleep:
                for progress in looks(source, condition, every=settings.every, sleep=sleep):
                    if progress != before:
                        print(_line(progress, condition), file=sys.stderr, flush=True)
                    before = progress
            assert before is not None, "there is at least one check"
            this = settings.of_round(number)
            status = _run_all(this)
            if status:
                return status
            if this.offer is not None:
                offer(this, this.offer)
            if settings.once:
                return 0
            condition, number = replace(condition, votes=before.votes + (settings.votes or 0)), number + 1


def _run_all(settings: WatchSettings) -> int:
    """Run the commands until one fails; returns the last exit status."""
    for then, words in zip(settings.then, settings.words, strict=True):
        print(f"running {then}", file=sys.stderr, flush=True)
        if status := run(words):
            return status
    return 0


def offer(settings: WatchSettings, candidate: Path) -> None:
    """Print what the users of a candidate show so far, and the command that promotes it, without the password of a
    database."""
    from tutelage.commands.promote.settings import PromoteSettings
    from tutelage.commands.split_evidence import NoResponses, condition_lines, evidence_of
    from tutelage.people.store.engine import without_password

    study = settings.db or settings.study
    name = settings.study if settings.db else settings.name
    promotion = PromoteSettings(run=candidate, outcomes=study, study=name, split=settings.split)
    words = ["tutelage", "promote", str(candidate), "--outcomes", without_password(study)]
    words += [
        *(["--study", name] if name else []),
        *(["--split", f"{settings.split:g}"] if settings.split != 0.5 else []),
    ]
    try:
        for line in condition_lines(evidence_of(promotion).test):
            print(line)
    except NoResponses as error:
        print(error)
    print(f"To promote it, once its evidence suffices: {shlex.join(words)}")


@contextlib.contextmanager
def _source(settings: WatchSettings) -> "Iterator[Source]":
    """Open the source of the progress."""
    from tutelage.people.programs.study_progress import ClientSource, DatabaseSource

    if settings.is_remote:
        from tutelage.people.programs.client import StudyClient

        with StudyClient(settings.study) as client:
            yield ClientSource(client)
        return
    store, study = open_existing(settings)
    with closing(store):
        yield DatabaseSource(store, study.id)


def _line(progress: "Progress", condition: "Condition") -> str:
    """Describe the progress of the study towards the condition."""
    parts = []
    if condition.votes is not None:
        parts.append(f"{progress.votes:,} of {counted(condition.votes, 'vote')}")
    if condition.items_done is not None:
        target = progress.items if condition.items_done == "all" else int(condition.items_done)
        parts.append(f"{progress.items_done:,} of {counted(target, 'item')} done")
    if condition.agreement is not None:
        agreement = "unknown" if progress.agreement is None else f"{progress.agreement:.1%}"
        parts.append(f"agreement {agreement}, waiting for {condition.agreement:.1%}")
    return "; ".join(parts)


def run(words: Sequence[str]) -> int:
    """Run a command to its end and return its exit status, or 128 plus the number of the signal that ended it.

    SIGINT and SIGTERM are passed on to the command, which decides how to handle them.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, frame: object) -> None:
        if number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty():
            return  # the terminal has sent it to the child as well
        if started:
            started[0].send_signal(number)
        else:
            early.append(number)

    with handled(forward), subprocess.Popen(words) as child:
        started.append(child)
        for number in early:
            child.send_signal(number)
        status = child.wait()
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[float], None]]:
    """Yield a sleep function that SIGINT ends with KeyboardInterrupt.

    Within the context the signal is recorded, and raised only by the sleep: Python loses an interrupt that arrives
    while a finaliser runs.
    """
    noted = threading.Event()

    def sleep(seconds: float) -> None:
        if noted.wait(seconds):
            raise KeyboardInterrupt

    with handled(lambda number, frame: noted.set(), numbers=(signal.SIGINT,)):
        yield sleep
    if noted.is_set():
        raise KeyboardInterrupt
