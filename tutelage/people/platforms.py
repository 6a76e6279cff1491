"""The platforms on which raters are recruited: how each names those who come, and how each is told that they are done.

Prolific and SONA put identifiers into the address of the study and have an address to return to. A task on Mechanical
Turk adds them by its own page, and its workers paste a code into it. Identifiers are letters, digits, `-` and `_`, 64
at most; anything else was not written by the platform.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import quote

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence
from tutelage.people.fields import find_named

PlatformName: TypeAlias = Literal["prolific", "mturk", "sona"]
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
SURVEY_CODE = "XXXX"
"""The place of the survey code in the address that SONA gives to return to."""


@dataclass(frozen=True)
class Visitor:
    """Somebody as a platform names them: the person, the task (study, HIT), and the submission, which is a stay of the
    person in the task. `preview` where the platform shows the task to somebody who has not accepted it."""

    worker: str = ""
    task: str = ""
    submission: str = ""
    preview: bool = False


@dataclass(frozen=True)
class Platform:
    """A platform. `worker`, `task` and `submission` are the names of its parameters in the address (`task` is empty
    where there is none), `filled` what the platform fills in for them.
    `no_submission` is what stands in for the submission while a task is only looked at. `code_needed` where everybody
    is sent back with one and the same code, `back_needed` where the owner has to say the address to return to."""

    name: str
    words: str
    worker: str
    task: str
    submission: str
    filled: Mapping[str, str]
    no_submission: str = ""
    code_needed: bool = False
    back_needed: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, each once."""
        return tuple(dict.fromkeys(filter(None, (self.worker, self.task, self.submission))))

    @property
    def query(self) -> str:
        """The query of the address that the platform is given, with its own words for what it fills in."""
        return "&".join(f"{name}={self.filled[name]}" for name in self.parameters)

    def visitor(self, read: Callable[[str], str]) -> Visitor:
        """The visitor of an address; `read` gives the value of a parameter, empty where there is none.

        Raises:
            TutelageError: a parameter is missing, or is none that the platform fills in.
        """
        if self.no_submission and read(self.submission) == self.no_submission:
            return Visitor(preview=True)
        values = {name: read(name) for name in self.parameters}
        missing = ", ".join(name for name, value in values.items() if not value)
        if missing:
            raise TutelageError(
                Sentence(
                    "The link is not complete, it has no %(missing)s. Open it from %(platform)s, which fills in all of "
                    "it.",
                    missing=missing,
                    platform=self.words,
                )
            )
        wrong = [name for name, value in values.items() if not _IDENTIFIER.fullmatch(value)]
        if wrong:
            shown = values[wrong[0]][:40]
            raise TutelageError(
                Sentence(
                    "%(name)s begins with “%(shown)s”, which %(platform)s would not write: an identifier has up to 64 "
                    "letters, digits, - and _. Open the link from %(platform)s.",
                    name=wrong[0],
                    shown=shown,
                    platform=self.words,
                )
            )
        task = values[self.task] if self.task else ""
        return Visitor(values[self.worker], task, values[self.submission])

    def way_back(self, code: str, return_url: str, submission: str, *, screened: bool = False) -> str:
        """The address that tells the platform that a submission is done, with the code for it; empty where there is
        none. One that says nothing but "done", as SONA's, is none for those who were screened out."""
        if self.code_needed:
            return f"https://app.prolific.com/submissions/complete?cc={quote(code, safe='')}" if code else ""
        return "" if screened else return_url.replace(SURVEY_CODE, quote(submission, safe=""))


PROLIFIC = Platform(
    "prolific",
    "Prolific",
    "PROLIFIC_PID",
    "STUDY_ID",
    "SESSION_ID",
    MappingProxyType(
        {name: "{{%" + name + "%}}" for name in ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID")},
    ),
    code_needed=True,
)
MTURK = Platform(
    "mturk",
    "Mechanical Turk",
    "workerId",
    "hitId",
    "assignmentId",
    MappingProxyType({name: "${" + name + "}" for name in ("workerId", "hitId", "assignmentId")}),
    no_submission="ASSIGNMENT_ID_NOT_AVAILABLE",
)
SONA = Platform(
    "sona",
    "SONA",
    "survey_code",
    "",
    "survey_code",
    MappingProxyType({"survey_code": "%SURVEY_CODE%"}),
    back_needed=True,
)
PLATFORMS: Mapping[str, Platform] = MappingProxyType({each.name: each for each in (PROLIFIC, MTURK, SONA)})


def find_platform(name: str) -> Platform:
    """The platform of that name. Raises FieldError where there is none."""
    refusal = Sentence("There is no platform “%(given)s” here; choose %(known)s.")
    return find_named("platform", name, PLATFORMS, refusal)
