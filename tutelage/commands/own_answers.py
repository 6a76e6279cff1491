"""What the verbs share in which a policy learns from its own answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tutelage import config
from tutelage.commands.runs import say
from tutelage.config.rounds import RoundSettings
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Prompt
from tutelage.errors import TutelageError
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Reward
from tutelage.train.rl.rollouts import Question, ask
from tutelage.train.run.folder import Run
from tutelage.train.supervised.batches import Order
from tutelage.train.supervised.own_answers import OwnAnswers

FOLDER = "rounds"
"""Where a run keeps the answers of its rounds."""


class Asking(Protocol):
    """What is needed of the settings of a verb."""

    @property
    def seed(self) -> int: ...

    @property
    def quiet(self) -> bool: ...

    @property
    def sampling(self) -> config.Sampling: ...

    @property
    def samples(self) -> int: ...

    @property
    def prompts_per_round(self) -> int: ...

    @property
    def max_length(self) -> int: ...


def own_answers(
    settings: Asking, run: Run, policy: Policy, reward: Reward, prompts: Sequence[Prompt], held_out: float
) -> tuple[OwnAnswers, list[Question]]:
    """The answers of every round, and the questions that are kept aside."""
    kept, aside = (
        questions_of(settings, policy, part) for part in split_by_prompt(prompts, held_out, settings.seed)
    )
    if not kept:
        raise TutelageError(
            f"No prompt fits into {longest(settings, policy)} tokens, of which {settings.sampling.max_new_tokens} are "
            "kept for the answer. Set a smaller --sampling.max-new-tokens."
        )
    order = Order(kept, settings.prompts_per_round or len(kept), settings.seed)
    own = OwnAnswers(
        run.path / FOLDER, policy, order, reward, settings.samples, settings.sampling, settings.seed
    )
    return own, aside


def longest(settings: Asking, policy: Policy) -> int:
    """Tokens of a prompt and its answer together, at most."""
    return min(settings.max_length, policy.context or settings.max_length)


def questions_of(settings: Asking, policy: Policy, prompts: Sequence[Prompt]) -> list[Question]:
    """The prompts that leave room for an answer, as tokens; the others are counted aloud."""
    from tutelage.data.chat import encode

    room = longest(settings, policy) - settings.sampling.max_new_tokens
    questions = [Question(p, tuple(encode(p.messages, None, policy.tokenizer)[0])) for p in prompts]
    fitting = [question for question in questions if len(question.tokens) <= room]
    if len(fitting) < len(questions):
        missing = len(questions) - len(fitting)
        say(settings, f"{missing} prompts are longer than {room} tokens and were left out.")
    return fitting


def steps_of_a_round(settings: RoundSettings, own: OwnAnswers, keep: float, epochs: float, batch: int) -> int:
    """Optimiser steps of a round: `epochs` passes over `keep` rows of each of its prompts.

    Where fewer rows come together than that, they are passed over more often.
    """
    rows = max(1, round(keep * own.questions.batch))
    return max(1, round(epochs * -(-rows // batch)))


def look_at_scores(
    settings: Asking, policy: Policy, reward: Reward, questions: Sequence[Question]
) -> Callable[[], Mapping[str, float]]:
    """score: the mean score of one fresh answer to each question; ended: the share of these that ended themselves."""

    def look() -> Mapping[str, float]:
        asked = ask(policy, questions, 1, settings.sampling, reward, seed=settings.seed)
        return {
            "score": float(asked.score.mean()),
            "ended": float(asked.rollout.terminated.float().mean()),
        }

    return look
