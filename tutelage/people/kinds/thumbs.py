"""Feedback from use: a single response is good or bad, as a thumb up or down; of two, one is better, as in `pair`.

A study of this kind takes what users of a served model say (`people.user_feedback`), and asks raters the same. A
verdict on a single response has 0 as both indices, like one on a step: `a` (good) or `b` (bad).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

from tutelage.people.answers import BAD, GOOD, Answer, Canonical
from tutelage.people.kinds.kind import KindTraits, PairJudge, PairVerdict, ResponseValues, Screen, check_answer, timed
from tutelage.people.kinds.pair import PAIR, Pair
from tutelage.people.languages import Sentence

CHOICES = (GOOD, BAD, "skip")
"""Choices about a single response."""
VERDICTS = {GOOD: "a", BAD: "b"}
_WORDS = {GOOD: Sentence("good"), BAD: Sentence("bad")}
TRAITS = replace(
    PAIR.traits,
    does="judges feedback from use",
    question=Sentence("Is it a good response? Of two, which is better?"),
    invitation=Sentence("You see a response at a time and say whether it is good, or two and say which is better."),
    asked=Sentence("That is what you will be asked, again and again, about one response or two to the same prompt."),
    sizes=range(1, 3),
    scales={scale: PAIR.traits.scales[scale] for scale in sorted(PAIR.traits.scales)},
    parts={"single": False},
    sides=False,
    single=True,
)


@dataclass(frozen=True)
class Thumbs(Pair):
    """A rating of one response as good or bad, or a comparison of two on a bar. The content of an answer about one
    response has the key `single`."""

    name: str = "thumbs"
    traits: KindTraits = TRAITS

    def check(self, answer: Answer, screen: Screen) -> None:
        if screen.places > 1:
            super().check(answer, screen)
            return
        check_answer(answer, CHOICES)

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        if screen.places > 1:
            return super().canonical(answer, order, screen)
        verdict = VERDICTS.get(answer.choice)
        return Canonical("skip", 0, {}, {}) if verdict is None else Canonical(verdict, 0, {"single": True}, {})

    def pairs(self, answer: Canonical, places: int) -> Iterable[PairVerdict]:
        if answer.content.get("single"):
            return (PairVerdict(0, 0, answer.verdict, 0),)
        return super().pairs(answer, places)

    def words(self, answer: Canonical) -> str:
        if answer.content.get("single"):
            return _WORDS[GOOD if answer.verdict == "a" else BAD]
        return super().words(answer)

    def pressed(self, displayed: Mapping[str, object]) -> str:
        choice = str(displayed["choice"])
        return _WORDS.get(choice) or super().pressed(displayed)

    def cells(self, answer: Canonical) -> Mapping[str, object]:
        return {"single": True} if answer.content.get("single") else {}

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        choice = {verdict: choice for choice, verdict in VERDICTS.items()}.get(str(cells.get("verdict")))
        return Answer(choice) if choice is not None and screen.places == 1 else None

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        """A single response is compared with one of gold 0."""
        if screen.places > 1:
            return super().simulate(responses, screen, rater, rng, answered)
        (gold,), (words,) = responses.gold, responses.words
        vote = rater.judge(gold, 0.0, words, words, rng, answered)
        return timed(Answer(GOOD if vote.verdict == "left" else BAD), vote.seconds)


THUMBS = Thumbs()
