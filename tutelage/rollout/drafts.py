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
PAUSE = 16
"""Passes without drafts between two with them, while these take more time."""
Found = tuple[dict[int, Sequence[int]], dict[int, int]]
"""The context in which some tokens were last, and the place after them."""


class Drafts:
    """What followed each sequence of ORDER tokens the last time. `accepted` and `rejected` count drafted tokens of the
    rollout, `learnt` those of its contexts."""

    def __init__(self, ends: Set[int]) -> None:
        self.ends = ends
        self._last: Found = ({}, {})
        self._pace: dict[tuple[int, bool], float] = {}  # seconds for a token, by the number of turns, without and with
        self._waited = 0
        self.begin()

    def begin(self) -> None:
        """Begin a rollout, and forget the one before the last."""
        self.accepted = self.rejected = self.learnt = 0
        self._before, self._last = self._last, ({}, {})

    def learn(self, context: Sequence[int], start: int) -> None:
        """Note the tokens of a context from a place on. It may only grow afterwards."""
        self.learnt += len(context) - start
        contexts, places = self._last
        for place in range(max(start, ORDER), len(context)):
            same = _number(context[place - ORDER : place])
            contexts[same], places[same] = context, place

    def time(self, turns: int, seconds: float, tokens: int, *, drafted: bool) -> None:
        """Note what a pass over some turns took for so many new tokens."""
        name, pace = (turns.bit_length(), drafted), seconds / tokens
        self._pace[name] = pace + 0.8 * (self._pace.get(name, pace) - pace)

    def pay(self, turns: int) -> bool:
        """Whether passes over so many turns take less time for a token with drafts than without, as far as that is
        known; otherwise they are tried now and then."""
        plain, drafted = (self._pace.get((turns.bit_length(), kind)) for kind in (False, True))
        if plain is None or drafted is None or drafted < plain:
            return True
        self._waited = (self._waited + 1) % PAUSE
        return not self._waited

    def draft(self, before: Sequence[int], most: int) -> Sequence[int]:
        """Up to `most` tokens after those `before`, none of which ends a turn."""
        same = _number(before[-ORDER:])
        contexts, places = self._last if same in self._last[0] else self._before
        if same not in contexts or self.rejected > self.accepted + IN_VAIN * self.learnt:
            return ()
        place = places[same]
        found = contexts[same][place : place + most]
        return found[: next((n for n, token in enumerate(found) if token in self.ends), len(found))]


def _number(tokens: Sequence[int]) -> int:
    """A number for some tokens; unlike a tuple it costs the garbage collector nothing."""
    number = 1
    for token in tokens:
        number = number << 32 | token
    return number
