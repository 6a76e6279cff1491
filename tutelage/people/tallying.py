"""The counters of a rater (`Tallies`), from one judgement."""

from dataclasses import dataclass
from typing import Protocol


class CountedJudgement(Protocol):
    """The parts of a judgement that are counted; `order` is that of display."""

    @property
    def verdict(self) -> str: ...
    @property
    def order(self) -> tuple[int, ...]: ...
    @property
    def flagged(self) -> bool: ...
    @property
    def active_ms(self) -> int | None: ...


@dataclass(frozen=True)
class ItemFacts:
    """The item that a judgement is about: its pool and known answer, the lengths of its responses in canonical order,
    and, for a repeat, the rater's verdict at the first showing."""

    pool: str
    gold: str | None
    lengths: tuple[int, ...]
    first: str | None = None


def tally(said: CountedJudgement, about: ItemFacts) -> dict[str, int]:
    """The increments of the counters by one judgement, by the names of `Tallies`; others stay as they are.
    Practice is counted nowhere."""
    if about.pool == "training":
        return {}
    counts = {"skipped" if said.verdict == "skip" else "answered": 1, "flagged": int(said.flagged)}
    if said.verdict in ("a", "b"):
        chosen = "ab".index(said.verdict)
        counts["left_chosen" if said.order[0] == chosen else "right_chosen"] = 1
        counts["longer_chosen"] = int(about.lengths[chosen] > about.lengths[1 - chosen])
        counts["shorter_chosen"] = int(about.lengths[chosen] < about.lengths[1 - chosen])
    if said.verdict == "tie":
        counts["ties"] = 1
    if about.gold is not None and said.verdict != "skip":
        counts |= {"gold_seen": 1, "gold_right": int(said.verdict == about.gold)}
    if about.first is not None and said.verdict != "skip":
        counts |= {"repeat_seen": 1, "repeat_same": int(said.verdict == about.first)}
    if said.active_ms is not None:
        counts |= {"timed": 1, "active_ms": said.active_ms}
    return counts
