"""The scored answers of a policy in training, which rejection sampling and online preference losses learn from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.generators import training_generator
from tutelage.commands.rejection.settings import RejectionSettings
from tutelage.commands.runs import remark
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Prompt
from tutelage.models.policy import Policy
from tutelage.rewards.composite import dealt_reward
from tutelage.rewards.reward import Reward
from tutelage.rollout.generator import EncodedPrompt, Generator, encode_prompts
from tutelage.rollout.local import CurrentGenerator
from tutelage.train.rl.rollouts import complete
from tutelage.train.run.folder import Run
from tutelage.train.supervised.batches import Order
from tutelage.train.supervised.completion_rounds import OwnCompletions

FOLDER = "rounds"
"""Folder in a run directory with the answers of its rounds."""

Settings = DpoSettings | RejectionSettings


@dataclass(frozen=True)
class AnswerSource:
    """The answers of every round, who writes them, the prompts that are held out as tokens, and how many prompts were
    left out."""

    answers: OwnCompletions
    generator: Generator
    held_out: Sequence[EncodedPrompt]
    dropped: int

    @property
    def counts(self) -> dict[str, int]:
        """Counts for summary.json."""
        kept, aside = len(self.answers.prompts.items), len(self.held_out)
        return {"prompts": kept, "held_out_prompts": aside, "dropped": self.dropped}


def answer_source(
    settings: Settings, run: Run, policy: Policy, reward: Reward, prompts: Sequence[Prompt], held_out: float
) -> AnswerSource:
    """The answers of every round to the prompts that fit, a share `held_out` of which is kept aside."""
    kept, aside = (
        _fitting(settings, policy, part) for part in split_by_prompt(prompts, held_out, settings.seed)
    )
    if not kept:
        raise TutelageError(
            f"No prompt fits into {counted(longest(settings, policy), 'token')}, of which "
            f"{settings.sampling.max_new_tokens} are kept for the answer. Set a smaller --sampling.max-new-tokens."
        )
    if len(kept) < settings.prompts_per_round:
        remark(
            f"--prompts-per-round is {settings.prompts_per_round}, but there are only {counted(len(kept), 'prompt')}."
        )
    reward = dealt_reward(reward, run.ranks, policy.passes)
    order = Order(kept, settings.prompts_per_round or len(kept), settings.seed)
    generator = CurrentGenerator(training_generator(settings, policy, settings.sampling, run))
    answers = OwnCompletions(
        run.path / FOLDER,
        generator,
        order,
        reward,
        settings.samples,
        settings.sampling,
        settings.seed,
        run.ranks,
    )
    return AnswerSource(answers, generator, aside, len(prompts) - len(kept) - len(aside))


def longest(settings: Settings, policy: Policy) -> int:
    """Tokens of a prompt and its answer together, at most."""
    return min(settings.max_length, policy.context or settings.max_length)


def _fitting(settings: Settings, policy: Policy, prompts: Sequence[Prompt]) -> list[EncodedPrompt]:
    """The prompts that leave room for an answer, as tokens; a remark counts the others."""
    room = longest(settings, policy) - settings.sampling.max_new_tokens
    fitting = [each for each in encode_prompts(prompts, policy.tokenizer) if len(each.tokens) <= room]
    if len(fitting) < len(prompts):
        missing = len(prompts) - len(fitting)
        remark(f"{counted(missing, 'prompt')} left out: longer than {counted(room, 'token')}.")
    return fitting


def steps_per_round(settings: Settings, answers: OwnCompletions, keep: float) -> int:
    """Optimiser steps of a round: `settings.epochs` passes over `keep` rows of each of its prompts.

    Where fewer rows come together than that, they are passed over more often.
    """
    rows = max(1, round(keep * answers.prompts.batch))
    return max(1, round(settings.epochs * -(-rows // settings.batch_size)))


def score_look(settings: Settings, source: AnswerSource, reward: Reward) -> Callable[[], Mapping[str, float]]:
    """A function that answers each held-out prompt once, and returns score, the mean score, and ended, the share of
    answers that ended by themselves."""

    def look() -> Mapping[str, float]:
        answers = complete(
            source.generator, source.held_out, 1, settings.sampling, reward, seed=settings.seed
        )
        return {
            "score": float(answers.score.mean()),
            "ended": float(answers.rollout.terminated.float().mean()),
        }

    return look
