"""Recruitment of raters on platforms: the platforms, the recruitment settings of a study, and a cost estimate.

Prolific and SONA insert identifiers into the URL of the study and provide a return URL. On Mechanical Turk, the page of
the task adds the identifiers, and workers paste a completion code into it. Identifiers consist of up to 64 letters,
digits, `-` and `_`; other values are rejected.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import quote, urlsplit

from tutelage.base.sentences import Sentence
from tutelage.people.validation import FieldError, StudyError, check_ranges, find_named, number

PlatformName: TypeAlias = Literal["prolific", "mturk", "sona"]
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
SURVEY_CODE = "XXXX"
"""Placeholder of the survey code in the completion URL of SONA."""


@dataclass(frozen=True)
class Visitor:
    """A participant as identified by a platform: worker, task (study, HIT) and submission. `preview`: a preview of the
    task before the worker accepts it."""

    worker: str = ""
    task: str = ""
    submission: str = ""
    preview: bool = False


@dataclass(frozen=True)
class Platform:
    """A recruitment platform. `worker`, `task` and `submission` are its URL parameters (`task` may be empty), `filled`
    maps them to the placeholders that the platform replaces. `no_submission` is the submission of a preview.
    `code_needed`: all participants return with the same code; `back_needed`: the owner provides the return URL."""

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
        """The names of the URL parameters, without duplicates."""
        return tuple(dict.fromkeys(filter(None, (self.worker, self.task, self.submission))))

    @property
    def query(self) -> str:
        """The query of the study's URL, with the placeholders of the platform."""
        return "&".join(f"{name}={self.filled[name]}" for name in self.parameters)

    def visitor(self, read: Callable[[str], str]) -> Visitor:
        """The visitor identified by URL parameters. `read` returns the value of a parameter, empty if missing. Raises
        TutelageError if a parameter is missing or is not a valid identifier."""
        if self.no_submission and read(self.submission) == self.no_submission:
            return Visitor(preview=True)
        values = {name: read(name) for name in self.parameters}
        missing = ", ".join(name for name, value in values.items() if not value)
        if missing:
            raise StudyError(
                "The link is not complete, it has no %(missing)s. Open it from %(platform)s, which fills in all of it.",
                missing=missing,
                platform=self.words,
            )
        wrong = [name for name, value in values.items() if not _IDENTIFIER.fullmatch(value)]
        if wrong:
            excerpt = values[wrong[0]][:40]
            raise StudyError(
                "%(name)s begins with “%(shown)s”, which %(platform)s would not write: an identifier has up to 64 "
                "letters, digits, - and _. Open the link from %(platform)s.",
                name=wrong[0],
                shown=excerpt,
                platform=self.words,
            )
        task = values[self.task] if self.task else ""
        return Visitor(values[self.worker], task, values[self.submission])

    def way_back(self, code: str, return_url: str, submission: str, *, screened: bool = False) -> str:
        """The return URL of a submission with its code; empty if there is none. SONA has none for screened-out
        participants."""
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
    """The platform with this name. Raises FieldError if there is none."""
    refusal = Sentence("There is no platform “%(given)s” here; choose %(known)s.")
    return find_named("platform", name, PLATFORMS, refusal)


LONGEST_CODE = 64


@dataclass(frozen=True)
class Recruitment:
    """Recruitment of raters on a platform, with the parameters of the cost estimate."""

    platform: PlatformName
    """Recruitment platform."""
    code: str = ""
    """Completion code shown to raters at the end; if empty, each visit has its own."""
    screened_code: str = ""
    """Completion code for raters who fail the practice."""
    return_url: str = ""
    """Return URL, if it does not follow from the code: the completion URL of SONA."""
    answers: int = number(Sentence("The number of answers"), 1, 100_000, default=20)
    """Answers per visit."""
    places: int | None = number(Sentence("The number of places"), 1, 1_000_000, default=None)
    """Maximum number of participants (default: unlimited). Leaving frees a place."""
    again: bool = False
    """Allow repeated participation."""
    minutes: int = number(Sentence("The number of minutes"), 1, 100_000, default=60)
    """Minutes of inactivity after which a place is freed."""
    pay: float = number(Sentence("The pay"), 0, 1_000_000, default=0.0)
    """Pay per hour."""
    currency: str = ""
    """Currency of the pay, such as GBP."""
    fee: float = number(Sentence("The fee"), 0, 10, share=True, default=0.0)
    """Platform fee as a share of the pay: 0.2 is 20 %."""
    seconds: float = number(Sentence("The time of an answer"), 0.1, 86_400, default=45.0)
    """Assumed seconds per answer until enough answers are measured."""

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
    """Raises FieldError for an invalid or missing code; `codes` is by field."""
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
                "%(platform)s needs a completion code and a screen-out code: make both in the settings of the study "
                "there.",
                platform=platform.words,
            )
    if codes["code"] and codes["code"] == codes["screened_code"]:
        raise FieldError("screened_code", "The screen-out code must differ from the completion code.")


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
            "return_url", "The return link is “%(url)s”; it is an address that begins with https://.", url=url[:80]
        )
    if platform.code_needed:
        raise FieldError(
            "return_url", "%(platform)s makes its return link from the code; leave it out.", platform=platform.words
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
    """The work in a study: `votes` needed by its items, the share `besides` of known answers and repeats, and practice
    questions per visit."""

    votes: int
    besides: float = 0.0
    practice: int = 0


@dataclass(frozen=True)
class Cost:
    """The cost of work, in the currency of the recruitment. `visits` equals the number of participants unless repeated
    participation is allowed."""

    answers: int
    visits: int
    seconds: float
    hours: float
    pay: float
    fee: float
    total: float


def estimate(recruitment: Recruitment, work: Work, seconds: float | None = None) -> Cost:
    """The cost of this work, with measured `seconds` per answer (by default those of the recruitment):

    answers = votes / (1 - besides), visits = answers / answers per visit, rounded up,
    hours = (answers + visits · practice) · seconds / 3600, total = hours · pay · (1 + fee).
    """
    answers = math.ceil(work.votes / (1 - work.besides))
    return _cost(recruitment, work, answers, math.ceil(answers / recruitment.answers), seconds)


def estimate_places(recruitment: Recruitment, work: Work, seconds: float | None = None) -> Cost | None:
    """The cost of one visit to each place, which the platform charges; None if places are unlimited."""
    visits = recruitment.places
    return None if visits is None else _cost(recruitment, work, visits * recruitment.answers, visits, seconds)


def _cost(recruitment: Recruitment, work: Work, answers: int, visits: int, seconds: float | None) -> Cost:
    each = recruitment.seconds if seconds is None else seconds
    hours = (answers + visits * work.practice) * each / 3600
    pay = hours * recruitment.pay
    fee = pay * recruitment.fee
    return Cost(answers, visits, each, hours, pay, fee, pay + fee)
