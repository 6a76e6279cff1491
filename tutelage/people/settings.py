"""Settings of a study: the plan for assigning questions, and the consent text."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from tutelage.base.sentences import Sentence, Share
from tutelage.people.validation import FieldError, check_ranges, find_named, number, refuse_unstorable

Unranked: TypeAlias = Literal["finish_first", "random"]
Policy: TypeAlias = Literal[Unranked, "priority"]
MOST_KNOWN = 0.5
"""Maximum share of questions that have a known answer or are repeats."""


@dataclass(frozen=True)
class Plan:
    """The plan for assigning questions to raters."""

    overlap: int = number(Sentence("The number of raters"), 1, 100, default=2)
    """Raters per item."""
    policy: Policy = "finish_first"
    """Order of items: finish_first, started items, then new ones at random; random, any open item; priority, new items
    by the priorities set with `collect next`."""
    gold_rate: float = number(Sentence("The share of known answers"), 0, MOST_KNOWN, share=True, default=0.05)
    """Share of questions with a known answer."""
    repeat_rate: float = number(Sentence("The share asked again"), 0, MOST_KNOWN, share=True, default=0.04)
    """Share of questions that are repeated with swapped sides."""
    training_pass: float = number(Sentence("The share of practice"), 0, 1, share=True, default=0.8)
    """Share of right answers required to pass the practice."""
    lease_seconds: int = number(Sentence("The time"), 1, 86_400, default=900)
    """Seconds for which a question is reserved for a rater."""

    def __post_init__(self) -> None:
        refusal = Sentence("There is no order “%(given)s” of items; it is %(known)s.")
        find_named("policy", self.policy, dict.fromkeys(get_args(Policy)), refusal)
        check_ranges(self)
        if self.gold_rate + self.repeat_rate > MOST_KNOWN:
            raise FieldError(
                "gold_rate",
                "Known answers (%(gold)s) and questions asked again (%(repeats)s) must not be negative, nor take "
                "more than half of all questions together.",
                gold=Share(self.gold_rate),
                repeats=Share(self.repeat_rate),
            )


VotesOfForgotten: TypeAlias = Literal["keep", "erase"]
LONGEST_CONSENT = 50_000


@dataclass(frozen=True)
class Consent:
    """The consent text of raters, and the retention of their votes and data."""

    text: str = field(default="", metadata={"file": True})
    """Consent text in Markdown (default: the standard text)."""
    votes: VotesOfForgotten = "keep"
    """Votes of a forgotten rater: keep (under a number) or erase."""
    retention_days: int | None = number(Sentence("The number of days"), 1, 36_500, default=None)
    """Days of inactivity after which a rater is forgotten automatically (default: never)."""

    def __post_init__(self) -> None:
        if self.votes not in ("keep", "erase"):
            raise FieldError(
                "votes",
                "Votes of a forgotten rater are kept under a number (keep) or erased (erase), not “%(given)s”.",
                given=self.votes[:50],
            )
        check_ranges(self)
        if len(self.text) > LONGEST_CONSENT:
            raise FieldError(
                "text",
                "The text has %(length)s characters; at most %(most)s are kept.",
                length=len(self.text),
                most=LONGEST_CONSENT,
            )
        refuse_unstorable(self.text, Sentence("The text"), "text")
