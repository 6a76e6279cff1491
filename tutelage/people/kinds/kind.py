"""The protocol of a kind of question."""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Protocol

from tutelage.people.answers import Answer, Canonical
from tutelage.people.kinds.simulation import PairJudge, ResponseValues
from tutelage.people.kinds.values import PairVerdict, Screen, Statement, Traits
from tutelage.stats.agreement import Alpha


class Kind(Protocol):
    """A kind of question, as a value. Beside its Python file, a kind NAME has two more: the part of the rater's page,
    `web/templates/kinds/NAME.html`, and the script of that part, `web/static/kinds/NAME.js`."""

    @property
    def name(self) -> str:
        """The name under which studies keep the kind."""

    @property
    def traits(self) -> Traits:
        """The facts about the kind."""

    def check(self, answer: Answer, screen: Screen) -> None:
        """Raises TutelageError for an answer that the question does not allow."""

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        """The answer about responses instead of places: `order[k]` is the canonical index of the response in place k
        from the left."""

    def pairs(self, said: Canonical, places: int) -> Iterable[PairVerdict]:
        """The verdicts on each two of the responses that follow from an answer."""

    def agreements(self, said: Iterable[Statement]) -> Mapping[str, Alpha]:
        """Agreement of raters beyond the pairs, by name."""

    def words(self, said: Canonical) -> str:
        """An answer in words, for owners."""

    def pressed(self, displayed: Mapping[str, object]) -> str:
        """The choice on the screen (`answers.displayed`) in words, for owners."""

    def cells(self, said: Canonical) -> Mapping[str, object]:
        """Columns for a table of votes, beside verdict and strength."""

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        """The inverse of `cells`, for responses in the order of display; None where the columns do not say enough."""

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        """The answer of a simulated rater who has answered so many questions before."""
