"""Recruitment of raters on a platform: the platforms, the settings of a study there, and its estimated cost.

Prolific and SONA put identifiers into the address of the study and have an address to return to. A task on Mechanical
Turk adds them by its own page, and its workers paste a code into it. Identifiers are letters, digits, `-` and `_`, 64
at most; anything else was not written by the platform.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import quote, urlsplit

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence
from tutelage.people.validation import FieldError, check_ranges, find_named, number

PlatformName: TypeAlias = Literal["prolific", "mturk", "sona"]
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
SURVEY_CODE = "XXXX"
"""The place of the survey code in the address that SONA gives to return to."""


@dataclass(frozen=True)
class Visitor:
    """A person as a platform names them: person, task (study, HIT), and submission, a stay in the task. `preview`: the
    platform shows the task before it is accepted."""

    worker: str = ""
    task: str = ""
    submission: str = ""
    preview: bool = False


@dataclass(frozen=True)
class Platform:
    """A platform. `worker`, `task` and `submission` name its parameters in the address (`task` may be empty), `filled`
    what it fills in. `no_submission` is the submission of a preview. `code_needed`: everyone returns with the same
    code; `back_needed`: the owner gives the return address."""

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
        """The return address with the code for a submission; empty where there is none. One that only says "done"
        (SONA) is none for those screened out."""
        if self.code_needed:
            return f"https://app.prolific.com/submissions/complete?cc={quote(code, safe='')}" if code else ""
        return "" if screened else return_url.replace(SURVEY_CODE, quote(submission, safe=""))


PROLIFIC = Platform(
    "prolific",
    "Prolific",
    "PROLIFIC_PID",
    "STUDY_ID",
    "SESSION_ID",
    MappingProxyType({name: "{{%" + name + "%}}" for name in ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID")}),
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


LONGEST_CODE = 64


@dataclass(frozen=True)
class Recruitment:
    """How a study recruits raters on a platform, and what the estimate of its cost is made from."""

    platform: PlatformName
    """The platform on which raters are recruited."""
    code: str = ""
    """Completion code, which raters get when they are done. Empty, each visit has its own."""
    screened_code: str = ""
    """Code of those who fail the practice."""
    return_url: str = ""
    """Address that leads back to the platform, where it does not follow from the code: the completion URL of SONA."""
    answers: int = number(Sentence("The number of answers"), 1, 100_000, default=20)
    """Answers of a visit."""
    places: int | None = number(Sentence("The number of places"), 1, 1_000_000, default=None)
    """How many people may take part; without it any number. Whoever leaves gives the place back."""
    again: bool = False
    """Let the same person come a second time."""
    minutes: int = number(Sentence("The number of minutes"), 1, 100_000, default=60)
    """Minutes without a sign of life until a place comes back."""
    pay: float = number(Sentence("The pay"), 0, 1_000_000, default=0.0)
    """Pay per hour."""
    currency: str = ""
    """Its currency."""
    fee: float = number(Sentence("The fee"), 0, 10, share=True, default=0.0)
    """Fee of the platform as a share of the pay: 0.2 is 20 %."""
    seconds: float = number(Sentence("The time of an answer"), 0.1, 86_400, default=45.0)
    """Seconds per answer, until enough are measured."""

    def __post_init__(self) -> None:
        platform = find_platform(self.platform)
        _check_codes(platform, {"code": self.code, "screened_code": self.screened_code})
        _check_return(platform, self.return_url)
        check_ranges(self)
        if len(self.currency) > 10 or not (self.currency + "x").isprintable():
            raise FieldError(
                "currency",
                "The currency is “%(currency)s”; write up to 10 characters, such as GBP.",
                currency=self.currency[:20],
            )


def _check_codes(platform: Platform, codes: Mapping[str, str]) -> None:
    """Raises FieldError for a code, by the name of its field, that cannot be one, and where one is missing."""
    for name, code in codes.items():
        if len(code) > LONGEST_CODE or not code.isascii() or not (code + "x").isprintable() or " " in code:
            raise FieldError(
                name,
                "The code is “%(code)s”; a code has up to %(most)s ASCII characters without spaces.",
                code=code[:50],
                most=LONGEST_CODE,
            )
        if platform.code_needed and not code:
            raise FieldError(
                name,
                "%(platform)s needs a code for those who are done and one for those who are screened out: make "
                "both in the settings of the study there.",
                platform=platform.words,
            )
    if codes["code"] and codes["code"] == codes["screened_code"]:
        raise FieldError(
            "screened_code", "Those who are screened out need a code of their own, not the same one."
        )


def _check_return(platform: Platform, url: str) -> None:
    if not url:
        if platform.back_needed:
            raise FieldError(
                "return_url",
                "%(platform)s needs a return link: the completion URL that it shows for the study (client-side).",
                platform=platform.words,
            )
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc or not url.isprintable() or len(url) > 2_000:
        raise FieldError(
            "return_url",
            "The return link is “%(url)s”; it is an address that begins with https://.",
            url=url[:80],
        )
    if platform.code_needed:
        raise FieldError(
            "return_url",
            "%(platform)s makes its return link from the code; leave it out.",
            platform=platform.words,
        )
    if platform.back_needed and SURVEY_CODE not in url:
        raise FieldError(
            "return_url",
            "The return link has no %(code)s: %(platform)s writes it where the survey code goes; keep it as it is.",
            code=SURVEY_CODE,
            platform=platform.words,
        )


@dataclass(frozen=True)
class Work:
    """The `votes` that the items of a study want, the share of questions `besides` (known answers, repeats), and
    practice questions."""

    votes: int
    besides: float = 0.0
    practice: int = 0


@dataclass(frozen=True)
class Cost:
    """The cost of work; `visits` are people, or visits where they may come again; money in the currency of the
    recruitment."""

    answers: int
    visits: int
    seconds: float
    hours: float
    pay: float
    fee: float
    total: float


def estimate(recruitment: Recruitment, work: Work, seconds: float | None = None) -> Cost:
    """The cost of this work, with `seconds` per answer (those of the recruitment, where nothing is measured):

    answers = votes / (1 - besides), visits = answers / answers per visit, rounded up,
    hours = (answers + visits · practice) · seconds / 3600, total = hours · pay · (1 + fee).
    """
    each = recruitment.seconds if seconds is None else seconds
    answers = math.ceil(work.votes / (1 - work.besides))
    visits = math.ceil(answers / recruitment.answers)
    hours = (answers + visits * work.practice) * each / 3600
    pay = hours * recruitment.pay
    fee = pay * recruitment.fee
    return Cost(answers, visits, each, hours, pay, fee, pay + fee)
