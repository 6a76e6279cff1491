"""Selection of the votes that count, and the fate of votes: each judgement has exactly one, so that counts by fate add
up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tutelage.base.sentences import Sentence
from tutelage.people.validation import FieldError, check_ranges, number

if TYPE_CHECKING:
    from tutelage.people.store.votes import Vote


@dataclass(frozen=True)
class Selection:
    """The rules for deriving preferences from votes."""

    kinds: tuple[Literal["human", "llm", "simulated"], ...] = ("human",)
    """Kinds of raters whose votes count: people (default), model judges (llm) or simulated raters."""
    versions: tuple[int, ...] | None = None
    """Versions of the question whose votes count; required if there are several."""
    ties: Literal["drop", "keep"] = "drop"
    """Pairs judged equal by most raters: drop, or keep with a probability of one half."""
    min_votes: int = number(Sentence("The least number of votes"), 1, 9_999, default=1)
    """Minimum number of votes for a side per pair."""
    use_strength: bool = True
    """Weight votes by the calibrated value of their strength."""
    weights: bool = False
    """Weight rows by mean strength (1 on average) instead of equally."""
    margins: bool = False
    """Set the margin to the mean strength (0 to 3 nats)."""

    def __post_init__(self) -> None:
        if self.ties not in ("drop", "keep"):
            raise FieldError(
                "ties",
                "Equal pairs are left out (drop) or kept at one half (keep), not “%(given)s”.",
                given=str(self.ties)[:50],
            )
        unknown = set(self.kinds) - {"human", "llm", "simulated"}
        if unknown or not self.kinds:
            raise FieldError(
                "kinds",
                "Kinds of rater are human, llm and simulated; these are %(given)s.",
                given=", ".join(self.kinds)[:100] or "–",
            )
        check_ranges(self)

    @property
    def flags(self) -> tuple[str, ...]:
        """The rules as flags of `tutelage collect export`, without defaults."""
        usual, words = Selection(), list[str]()
        for name, values in (("kinds", self.kinds), ("versions", self.versions or ())):
            if values != (getattr(usual, name) or ()):
                words += [f"--{name}", *map(str, values)]
        if self.ties != usual.ties:
            words += ["--ties", self.ties]
        if self.min_votes != usual.min_votes:
            words += ["--min-votes", str(self.min_votes)]
        words += [f"--{name}" for name in ("weights", "margins") if getattr(self, name)]
        return (*words, *(() if self.use_strength else ("--no-use-strength",)))

    def lists(self, kind: str) -> bool:
        """Whether exports list raters of this kind and their judgements: simulated raters only if selected."""
        return kind != "simulated" or kind in self.kinds


FATES = (
    "used", "outvoted", "tied", "both_bad", "too_few", "identical", "adjudication", "gold", "training", "repeat",
    "skipped", "excluded", "other_kind", "other_version", "superseded",
)  # fmt: skip
"""used: part of a preference. outvoted: a tie or both-bad on a decided pair. tied, both_bad: the majority verdict on
the pair. too_few: the pair has fewer than `min_votes` votes. identical: the responses are the same text. skipped: also
an answer that decides about no pair, since it is unsure about most criteria. The others depend on the vote alone."""


def fate(vote: "Vote", selection: Selection) -> str:
    """The fate of a vote if the vote alone determines it; `counts` if it depends on the pair."""
    rules = (
        ("superseded", not vote.latest),
        ("excluded", vote.excluded is not None),
        ("other_kind", vote.rater_kind not in selection.kinds),
        ("training", vote.pool == "training"),
        ("other_version", selection.versions is not None and vote.version not in selection.versions),
        ("skipped", vote.verdict == "skip"),
        ("repeat", vote.repeat),
        ("adjudication", vote.decides),
        ("gold", vote.pool == "gold"),
    )
    return next((name for name, applies in rules if applies), "counts")


def refuse_mixed_versions(votes: "Sequence[Vote]", selection: Selection) -> None:
    """Check that votes on several versions of the question are mixed only if the selection specifies the versions.
    Raises FieldError if the votes are on several versions, and the selection specifies none."""
    versions = sorted({vote.version for vote in votes})
    if selection.versions is None and len(versions) > 1:
        raise FieldError(
            "versions",
            "The votes were made under versions %(versions)s of the question; say which of them count, or name "
            "them all to mix them.",
            versions=", ".join(map(str, versions)),
        )
