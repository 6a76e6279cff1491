"""What raters agree to, and what it promises about their votes and their data."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tutelage.base.sentences import Sentence
from tutelage.people.fields import FieldError, check_ranges, number
from tutelage.people.texts import refuse_unstorable

VotesOfForgotten: TypeAlias = Literal["keep", "erase"]
LONGEST_CONSENT = 50_000


@dataclass(frozen=True)
class Consent:
    """A text that raters agree to, and what becomes of their votes and their data."""

    text: str = field(default="", metadata={"file": True})
    """The text in Markdown; empty, it is the standard text."""
    votes: VotesOfForgotten = "keep"
    """What becomes of votes when a rater is forgotten: kept under a number, or erased."""
    retention_days: int | None = number(Sentence("The number of days"), 1, 36_500, default=None)
    """Days after the last sign of life until a rater is forgotten unasked; without it never."""

    def __post_init__(self) -> None:
        if self.votes not in ("keep", "erase"):
            raise FieldError(
                "votes",
                Sentence(
                    "Votes of a forgotten rater are kept under a number (keep) or erased (erase), not “%(given)s”.",
                    given=self.votes[:50],
                ),
            )
        check_ranges(self)
        if len(self.text) > LONGEST_CONSENT:
            raise FieldError(
                "text",
                Sentence(
                    "The text has %(length)s characters; at most %(most)s are kept.",
                    length=len(self.text),
                    most=LONGEST_CONSENT,
                ),
            )
        refuse_unstorable(self.text, Sentence("The text"), "text")
