"""Rankings of several answers to one prompt."""

from collections.abc import Sequence


def ranking(scores: Sequence[float], finished: Sequence[bool]) -> list[int]:
    """Numbers of the answers, best first. One that was cut at the length limit is below all that ended by themselves:
    its score is that of a text nobody wanted to end there. Equal ones stay in their order."""
    return sorted(range(len(scores)), key=lambda i: (not finished[i], -scores[i]))
