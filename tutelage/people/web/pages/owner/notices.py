"""Names of the notices in the inbox."""

from tutelage.people.languages import Sentence

KINDS = {
    "flag": (Sentence("Flags"), Sentence("something is wrong with a response")),
    "skip": (Sentence("Skipped"), Sentence("a rater could not judge")),
    "practice": (Sentence("Practice"), Sentence("a rater waits, having failed the practice")),
    "note": (Sentence("Notes"), Sentence("what raters wrote to you")),
    "disagreement": (Sentence("Disagreements"), Sentence("all answers are there and decide nothing")),
    "model": (Sentence("Models"), Sentence("a model of the live conversations did not answer a rater")),
    "round": (Sentence("Rounds"), Sentence("every item of a round has all its answers")),
    "agreement": (Sentence("Agreement"), Sentence("it fell below the bound that you set on the page Programs")),
    "reason": (Sentence("Reasons"), Sentence("why raters answered as they did; they are not counted among what waits")),
}
"""The kinds of notices: name of the tab, and explanation."""
SINGULAR = {
    "flag": Sentence("flag"),
    "skip": Sentence("skipped"),
    "practice": Sentence("failed practice"),
    "note": Sentence("note"),
    "disagreement": Sentence("disagreement"),
    "model": Sentence("model"),
    "round": Sentence("full round"),
    "agreement": Sentence("low agreement"),
    "reason": Sentence("reason"),
}
"""Names of a single notice."""
