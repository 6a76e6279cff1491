"""The selection of votes that count, and the fate of each: every judgement has exactly one, so that the sums come
out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tutelage.base.sentences import Sentence
from tutelage.people.validation import FieldError, check_ranges, number

if TYPE_CHECKING:
    from tutelage.people.store.votes import Vote


@dataclass(frozen=True)
class Selection:
    """The rules by which votes become preferences."""

    kinds: tuple[Literal["human", "llm", "simulated"], ...] = ("human",)
    """Kinds of rater whose votes count: people, unless model judges (llm) or simulated raters are named."""
    versions: tuple[int, ...] | None = None
    """Versions of the question whose votes count; all, if there is only one."""
    ties: Literal["drop", "keep"] = "drop"
    """What becomes of pairs that most found equal: they are left out, or kept at one half."""
    min_votes: int = number(Sentence("The least number of votes"), 1, 9_999, default=1)
    """Votes for a side that a pair needs."""
    use_strength: bool = True
    """Let a vote count by what its strength proved worth."""
    weights: bool = False
    """Weight rows by mean strength (1 on average) instead of equally."""
    margins: bool = False
    """Ask for a margin of the mean strength (0 to 3 nats)."""

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
        """The rules as flags of `tutelage collect export`, those left out that it assumes."""
        usual, words = Selection(), list[str]()
        for name, given in (("kinds", self.kinds), ("versions", self.versions or ())):
            if given != (getattr(usual, name) or ()):
                words += [f"--{name}", *map(str, given)]
        if self.ties != usual.ties:
            words += ["--ties", self.ties]
        if self.min_votes != usual.min_votes:
            words += ["--min-votes", str(self.min_votes)]
        words += [f"--{name}" for name in ("weights", "margins") if getattr(self, name)]
        return (*words, *(() if self.use_strength else ("--no-use-strength",)))

    def lists(self, kind: str) -> bool:
        """Whether an export lists raters of this kind and their judgements: simulated ones only if the selection names
        them."""
        return kind != "simulated" or kind in self.kinds


FATES = (
    "used", "outvoted", "tied", "both_bad", "too_few", "identical", "adjudication", "gold", "training", "repeat",
    "skipped", "excluded", "other_kind", "other_version", "superseded",
)  # fmt: skip
"""used: in a preference. outvoted: a tie or both-bad beside a decided pair. tied, both_bad: what most found of the
pair. too_few: fewer votes than asked for. identical: the responses are the same text. The others are told by the
vote alone."""


def fate(vote: "Vote", selection: Selection) -> str:
    """The fate of a vote as far as the vote alone decides it; `counts` if it depends on the pair."""
    told = (
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
    return next((name for name, applies in told if applies), "counts")


def refuse_mixed_versions(votes: "Sequence[Vote]", selection: Selection) -> None:
    """Refuse to mix votes on several versions of the question unless the selection names the versions.

    Raises:
        FieldError: the votes that count were made under several versions and the selection names none.
    """
    versions = sorted({vote.version for vote in votes})
    if selection.versions is None and len(versions) > 1:
        raise FieldError(
            "versions",
            "The votes were made under versions %(versions)s of the question; say which of them count, or name "
            "them all to mix them.",
            versions=", ".join(map(str, versions)),
        )
