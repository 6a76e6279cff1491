"""What the worker computes: answers to prompts, and log-probabilities of prompts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tutelage.base import config

FinishReason = Literal["stop", "length", "abort"]
"""Why an answer ended: an end token or a stop string, the limit on tokens, or the server."""
Version = int | str
"""The name of the weights that computed a token, as the client that loaded them calls it."""


@dataclass(frozen=True)
class TokenLogp:
    """A token with its log-probability, and the likeliest tokens in its place with theirs.

    `logp` is that of the distribution that the token was sampled from, at the temperature and after truncation; at
    temperature 0, and for tokens of a prompt, that of the model's own distribution.
    """

    token: int
    logp: float
    top: Mapping[int, float]


@dataclass(frozen=True)
class Piece:
    """The next tokens of answer number `index`, with the text that has become certain.

    `finish` is None until the last piece. `stop` is the stop string or the token that ended the answer, where one did
    that is no end token of the model.
    """

    index: int
    tokens: tuple[TokenLogp, ...]
    text: str
    version: Version
    finish: FinishReason | None = None
    stop: str | int | None = None


@dataclass(frozen=True)
class Generation:
    """`n` answers to one prompt of token ids.

    The random stream of answer i depends on `seed`, `name` and i alone (see `engines.token_sampling`). `top` is the
    number of likeliest tokens that are reported with every token, None for no log-probabilities. With `streams`, pieces
    come as tokens are sampled, otherwise one for each whole answer. With `strips`, the text has no white space around
    it.
    """

    prompt: tuple[int, ...]
    sampling: config.Sampling
    end_ids: frozenset[int]
    n: int = 1
    seed: int = 0
    name: str = ""
    stop_ids: frozenset[int] = frozenset()
    adapter: str = ""
    top: int | None = None
    streams: bool = False
    strips: bool = False

    @property
    def rows(self) -> int:
        """Answers that are computed at the same time."""
        return self.n


@dataclass(frozen=True)
class Scoring:
    """Log-probabilities of the tokens of a prompt, the first excepted, and of the `top` likeliest tokens."""

    prompt: tuple[int, ...]
    top: int = 0
    adapter: str = ""

    @property
    def rows(self) -> int:
        """Sequences that are computed at the same time."""
        return 1


Job = Generation | Scoring
