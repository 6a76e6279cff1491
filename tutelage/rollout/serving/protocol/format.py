"""The protocol of a request in one of the formats."""

from collections.abc import Sequence
from typing import Any, Protocol

from tutelage.rollout.serving.jobs import CompletionPiece, Generation, Scoring, TokenLogp
from tutelage.rollout.serving.protocol.answers import Answer


class Format(Protocol):
    """A request that was read: its jobs, and the JSON of what comes of them."""

    @property
    def generations(self) -> Sequence[Generation]:
        """One job for each prompt."""
        ...

    @property
    def scorings(self) -> Sequence[Scoring]:
        """One job for each prompt whose own tokens are wanted with log-probabilities; otherwise none."""
        ...

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of chunks."""
        ...

    def body(
        self, answers: Sequence[Sequence[Answer]], scores: Sequence[Sequence[TokenLogp]]
    ) -> dict[str, Any]:
        """The whole answer: `answers[p][i]` is answer i to prompt p, `scores[p]` the result of scoring p."""
        ...

    def opening(self) -> Sequence[dict[str, Any]]:
        """The chunks before the first piece."""
        ...

    def chunk(self, prompt: int, piece: CompletionPiece) -> dict[str, Any] | None:
        """The chunk for a piece of an answer to a prompt; None where it would hold nothing."""
        ...

    def closing(self, answers: Sequence[Sequence[Answer]]) -> Sequence[dict[str, Any]]:
        """The chunks after the last piece."""
        ...
