"""The settings of recruiting on a platform, and what a study will cost there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tutelage.base.sentences import Sentence
from tutelage.people.fields import FieldError, check_ranges, number
from tutelage.people.platforms import SURVEY_CODE, Platform, PlatformName, find_platform

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
                Sentence(
                    "The currency is “%(currency)s”; write up to 10 characters, such as GBP.",
                    currency=self.currency[:20],
                ),
            )


def _check_codes(platform: Platform, codes: Mapping[str, str]) -> None:
    """Raises FieldError for a code, by the name of its field, that cannot be one, and where one is missing."""
    for name, code in codes.items():
        if len(code) > LONGEST_CODE or not code.isascii() or not (code + "x").isprintable() or " " in code:
            raise FieldError(
                name,
                Sentence(
                    "The code is “%(code)s”; a code has up to %(most)s ASCII characters without spaces.",
                    code=code[:50],
                    most=LONGEST_CODE,
                ),
            )
        if platform.code_needed and not code:
            raise FieldError(
                name,
                Sentence(
                    "%(platform)s needs a code for those who are done and one for those who are screened out: make "
                    "both in the settings of the study there.",
                    platform=platform.words,
                ),
            )
    if codes["code"] and codes["code"] == codes["screened_code"]:
        raise FieldError(
            "screened_code",
            Sentence("Those who are screened out need a code of their own, not the same one."),
        )


def _check_return(platform: Platform, url: str) -> None:
    if not url:
        if platform.back_needed:
            raise FieldError(
                "return_url",
                Sentence(
                    "%(platform)s needs a return link: the completion URL that it shows for the study (client-side).",
                    platform=platform.words,
                ),
            )
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc or not url.isprintable() or len(url) > 2_000:
        raise FieldError(
            "return_url",
            Sentence(
                "The return link is “%(url)s”; it is an address that begins with https://.", url=url[:80]
            ),
        )
    if platform.code_needed:
        raise FieldError(
            "return_url",
            Sentence(
                "%(platform)s makes its return link from the code; leave it out.", platform=platform.words
            ),
        )
    if platform.back_needed and SURVEY_CODE not in url:
        raise FieldError(
            "return_url",
            Sentence(
                "The return link has no %(code)s: %(platform)s writes it where the survey code goes; keep it as it is.",
                code=SURVEY_CODE,
                platform=platform.words,
            ),
        )


@dataclass(frozen=True)
class Work:
    """The work in a study: the `votes` that its items want, the share of all questions that are asked besides
    (`besides`, known answers and repeats), and the number of questions to practise on."""

    votes: int
    besides: float = 0.0
    practice: int = 0


@dataclass(frozen=True)
class Cost:
    """What work will cost. `visits` is the number of people (of visits, where one may come again); `pay`, `fee` and
    `total` are in the currency of the recruitment."""

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
