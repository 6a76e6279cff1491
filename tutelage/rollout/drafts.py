"""Drafts of what a policy writes next: what followed the same tokens the last time, in any context of this rollout or
the one before.

A draft is read in one pass, and the tokens are drawn as without one; so it changes the time that a turn takes, and
nothing else (speculative decoding: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding").
Episodes repeat themselves and one another: the form of calls, names, results that are quoted (drafts from the prompt:
Saxena 2023, "Prompt Lookup Decoding"; from other samples of a group: Oliaro et al. 2024, "SuffixDecoding").
"""

from collections.abc import Sequence, Set

ORDER = 4
"""Tokens that have to be the same."""
SHORTEST, LONGEST = 4, 32
"""Tokens of the first draft of an episode and of those after one in vain, and most tokens of any."""
IN_VAIN = 1 / 8
"""Tokens that may be rejected beyond as many as were accepted, for each token of all contexts."""


class Drafts:
    """What followed each sequence of ORDER tokens the last time. `accepted` and `rejected` count drafted tokens of the
    rollout, `learnt` those of its contexts."""

    def __init__(self, ends: Set[int]) -> None:
        self.ends = ends
        self.accepted = self.rejected = self.learnt = 0
        self._last: dict[tuple[int, ...], tuple[Sequence[int], int]] = {}  # a context, and a place in it
        self._before = self._last

    def begin(self) -> None:
        """Begin a rollout, and forget the one before the last."""
        self.accepted = self.rejected = self.learnt = 0
        self._before, self._last = self._last, {}

    def learn(self, context: Sequence[int], start: int) -> None:
        """Note the tokens of a context from a place on. It may only grow afterwards."""
        self.learnt += len(context) - start
        for place in range(max(start, ORDER), len(context)):
            self._last[tuple(context[place - ORDER : place])] = (context, place)

    def draft(self, before: Sequence[int], most: int) -> Sequence[int]:
        """Up to `most` tokens after those `before`, none of which ends a turn."""
        same = tuple(before[-ORDER:])
        known = self._last.get(same) or self._before.get(same)
        if known is None or self.rejected > self.accepted + IN_VAIN * self.learnt:
            return ()
        context, place = known
        found = context[place : place + most]
        return found[: next((n for n, token in enumerate(found) if token in self.ends), len(found))]
