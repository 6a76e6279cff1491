"""How the next token is drawn, as requests say it."""

import secrets
from dataclasses import dataclass

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.rollout.serving.protocol.errors import RequestError
from tutelage.rollout.serving.protocol.fields import Fields

MOST_STOPS = 16
"""Stop strings of a request."""


@dataclass(frozen=True)
class Limits:
    """What requests may ask for: tokens of an answer, answers to a prompt, likeliest tokens with each token, prompts;
    and the model's context and vocabulary in tokens."""

    tokens: int
    answers: int
    context: int | None
    vocabulary: int
    top: int = 20
    prompts: int = 256

    def room(self, prompt: int) -> int:
        """The tokens that an answer to a prompt of so many tokens may have."""
        return self.tokens if self.context is None else min(self.tokens, self.context - prompt)

    def check(self, prompt: int, answer: int) -> None:
        """Raise RequestError where a prompt and its answer are longer than the context."""
        if self.context is not None and prompt + answer > self.context:
            raise RequestError(
                f"The model has room for {counted(self.context, 'token')}, but the prompt has {prompt} and the answer "
                f"may have {answer}. Shorten the prompt, or ask for fewer tokens.",
                code="context_length_exceeded",
            )


@dataclass(frozen=True)
class SamplingFields:
    """What every format says about sampling. `tokens` is None where the request leaves the length to the server."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    stop: tuple[str, ...]
    stop_ids: frozenset[int]
    ignores_end: bool
    seed: int
    n: int
    tokens: int | None

    def sampling(self, tokens: int, *more_stops: str) -> config.Sampling:
        """The settings of the engine. Raises RequestError where they contradict each other."""
        greedy = self.temperature == 0  # takes the likeliest token, which no filter excludes
        try:
            return config.Sampling(
                temperature=self.temperature,
                top_k=0 if greedy else self.top_k,
                top_p=1.0 if greedy else self.top_p,
                min_p=0.0 if greedy else self.min_p,
                max_new_tokens=tokens,
                stop=(*self.stop, *more_stops),
            )
        except TutelageError as error:
            raise RequestError(str(error)) from error


def sampling_fields(fields: Fields, limits: Limits, *lengths: str) -> SamplingFields:
    """Read the fields about sampling. `lengths` are the names of the limit on tokens; the first one given counts."""
    given = [fields.whole(name, 0, limits.tokens) for name in lengths]
    seed = fields.whole("seed", -(2**63), 2**64 - 1)
    stop = tuple(dict.fromkeys(fields.texts("stop")))
    stop_ids = fields.ids("stop_token_ids", limits.vocabulary)
    if len(stop) > MOST_STOPS:
        raise fields.refusal("stop", f"may have {counted(MOST_STOPS, 'entry')}, not {len(stop)}")
    top_k = fields.whole("top_k", -1, 2**31)
    return SamplingFields(
        temperature=fields.number("temperature", 1.0, 0.0, 100.0),
        top_p=fields.number("top_p", 1.0, 0.0, 1.0),
        top_k=max(0, top_k or 0),
        min_p=fields.number("min_p", 0.0, 0.0, 1.0),
        stop=stop,
        stop_ids=frozenset(stop_ids),
        ignores_end=fields.flag("ignore_eos"),
        seed=secrets.randbits(62) if seed is None else seed,
        n=fields.whole("n", 1, limits.answers) or 1,
        tokens=next((each for each in given if each is not None), None),
    )
