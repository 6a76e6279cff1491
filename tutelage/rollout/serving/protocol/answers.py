"""The results of jobs, collected for an answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tutelage.rollout.serving.jobs import CompletionPiece, FinishReason, TokenLogp, Version


@dataclass
class Answer:
    """One answer, which grows piece by piece."""

    text: str = ""
    tokens: list[TokenLogp] = field(default_factory=list)
    finish: FinishReason | None = None
    stop: str | int | None = None
    version: Version = ""

    def add(self, piece: CompletionPiece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.tokens += piece.tokens
        self.finish, self.stop, self.version = piece.finish, piece.stop, piece.version

    @property
    def ids(self) -> list[int]:
        """The token ids, with the one that ended the answer."""
        return [token.token for token in self.tokens]

    @property
    def weight_versions(self) -> list[dict[str, Any]]:
        """Which weights computed which tokens, as vLLM writes it. No answer is continued with other weights."""
        return [{"version": self.version, "start": 0, "end": len(self.tokens)}]


def usage(prompts: Sequence[Sequence[int]], answers: Sequence[Answer]) -> dict[str, int]:
    """The tokens of prompts and answers."""
    read, written = sum(map(len, prompts)), sum(len(answer.tokens) for answer in answers)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
