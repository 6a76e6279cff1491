"""Scored completions of a policy in training, for rejection sampling and online preference losses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.generators import training_generator
from tutelage.commands.rejection.settings import RejectionSettings
from tutelage.commands.runs import evaluation_rows, remark
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Prompt
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Reward
from tutelage.rewards.rubric import without_dropout
from tutelage.rollout.distributed import dealt_reward
from tutelage.rollout.generator import EncodedPrompt, Generator, encode_prompts
from tutelage.rollout.local import CurrentGenerator
from tutelage.train.rl.rollouts import complete
from tutelage.train.run.folder import Run
from tutelage.train.supervised.batches import Order
from tutelage.train.supervised.completion_rounds import OwnCompletions

FOLDER = "rounds"
"""Folder in a run directory with the completions of its rounds."""

Settings = DpoSettings | RejectionSettings


@dataclass(frozen=True)
class AnswerSource:
    """Completions of every round, their generator, the held-out prompts as tokens, and the number of dropped
    prompts."""

    answers: OwnCompletions
    generator: Generator
    held_out: Sequence[EncodedPrompt]
    dropped: int

    @property
    def counts(self) -> dict[str, int]:
        """Counts for summary.json."""
        training, aside = len(self.answers.prompts.items), len(self.held_out)
        return {"prompts": training, "held_out_prompts": aside, "dropped": self.dropped}


def answer_source(
    settings: Settings, run: Run, policy: Policy, reward: Reward, prompts: Sequence[Prompt], held_out: float
) -> AnswerSource:
    """Return the completions of every round for the prompts that fit, without a held-out share `held_out`."""
    training, aside = (_fitting(settings, policy, part) for part in split_by_prompt(prompts, held_out, settings.seed))
    if not training:
        raise TutelageError(
            f"No prompt fits into {counted(longest(settings, policy), 'token')}, of which "
            f"{settings.sampling.max_new_tokens} are reserved for the completion. Set a smaller "
            "--sampling.max-new-tokens, or shorten the prompts."
        )
    if len(training) < settings.prompts_per_round:
        remark(
            f"--prompts-per-round is {settings.prompts_per_round}, but there are only "
            f"{counted(len(training), 'prompt')}."
        )
    reward = dealt_reward(reward, run.ranks, policy.passes)
    order = Order(training, settings.prompts_per_round or len(training), settings.seed)
    generator = CurrentGenerator(training_generator(settings, policy, settings.sampling, run))
    answers = OwnCompletions(
        run.path / FOLDER, generator, order, reward, settings.samples, settings.sampling, settings.seed, run.ranks
    )
    return AnswerSource(answers, generator, aside, len(prompts) - len(training) - len(aside))


def longest(settings: Settings, policy: Policy) -> int:
    """Return the maximum tokens of a prompt and its completion together."""
    return min(settings.max_length, policy.context or settings.max_length)


def _fitting(settings: Settings, policy: Policy, prompts: Sequence[Prompt]) -> list[EncodedPrompt]:
    """Tokenise the prompts that leave room for a completion; a remark counts the others."""
    room = longest(settings, policy) - settings.sampling.max_new_tokens
    fitting = [each for each in encode_prompts(prompts, policy.tokenizer) if len(each.tokens) <= room]
    if len(fitting) < len(prompts):
        missing = len(prompts) - len(fitting)
        remark(f"{counted(missing, 'prompt')} left out: longer than {counted(room, 'token')}.")
    return fitting


def steps_per_round(settings: Settings, answers: OwnCompletions, keep: float) -> int:
    """Return the optimiser steps of a round: `settings.epochs` passes over `keep` rows of each of its prompts.

    If a round yields fewer rows, it has more passes over them.
    """
    rows = max(1, round(keep * answers.prompts.batch))
    return max(1, round(settings.epochs * -(-rows // settings.batch_size)))


def score_look(settings: Settings, source: AnswerSource, reward: Reward) -> Callable[[], Mapping[str, float]]:
    """Return a function that samples one completion per held-out prompt, and returns score, the mean score by all
    criteria, and ended, the share of completions that ended by themselves."""
    reward = without_dropout(reward)
    prompts = evaluation_rows(source.held_out, settings.evaluate_rows)

    def look() -> Mapping[str, float]:
        answers = complete(source.generator, prompts, 1, settings.sampling, reward, seed=settings.seed)
        return {"score": float(answers.score.mean()), "ended": float(answers.rollout.terminated.float().mean())}

    return look
