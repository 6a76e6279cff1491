"""Self-consistency of raters: how often a question that is asked again gets the same answer. It needs no other
votes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tutelage.stats.intervals import Interval, wilson


@dataclass(frozen=True)
class Repeats:
    """The consistency of a rater: of `seen` questions that were asked again, `same` got the answer of the first
    time."""

    same: int
    seen: int

    @property
    def share(self) -> Interval:
        """same / seen with Wilson's interval."""
        return wilson(self.same, self.seen)

    def reliability(self, classes: int = 2) -> float | None:
        """The accuracy a at which independent errors, spread evenly over K classes, repeat an answer as often:

            c = a² + (1 − a)²/(K − 1),   a = (1 + √((K − 1)(K c − 1)))/K

        An upper bound where errors are habits (whoever always prefers the longer answer never contradicts himself).
        None without repeats; 1/K where they agree no more than chance.
        """
        if not self.seen:
            return None
        excess = max(0.0, classes * self.same / self.seen - 1)
        return (1 + math.sqrt((classes - 1) * excess)) / classes


def self_consistency(item: Sequence[str], rater: Sequence[str], choice: Sequence[str]) -> dict[str, Repeats]:
    """The `Repeats` of each rater: later choices on an item against the first, in the order of the columns. Raters who
    were never asked again are left out. For repeats with swapped sides, `choice` names the response, not the side."""
    first: dict[tuple[str, str], str] = {}
    answers: dict[str, list[bool]] = {}
    for one, who, said in zip(item, rater, choice, strict=True):
        if (one, who) in first:
            answers.setdefault(who, []).append(said == first[one, who])
        else:
            first[one, who] = said
    return {who: Repeats(sum(same), len(same)) for who, same in answers.items()}
