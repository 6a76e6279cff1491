"""Learning from one's own scored answers, round by round: rejection sampling and iterated preference losses.

    a round:  n answers to each of some prompts, by the policy as it is → scores → a fixed number of steps on them

The answers of a round are drawn when its first step comes, and kept on disk: a run that goes on within a round learns
from the same answers.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tutelage.base import config
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.rows import EncodedRow
from tutelage.data.records import Preference, Prompt
from tutelage.engines.ranks.ranks import ALONE, Ranks
from tutelage.rewards.reward import Reward
from tutelage.rollout.generator import EncodedPrompt, Generator
from tutelage.rollout.inference.best_of_n import best_first
from tutelage.train.rl.rollouts import complete
from tutelage.train.run.json_lines import read_lines
from tutelage.train.supervised.batches import EncodedPair, Order

T = TypeVar("T")

STREAMS_APART = 1 << 32
"""Between the seeds of two rounds: a prompt that comes again gets other answers."""


@dataclass(frozen=True)
class OwnCompletion:
    """An answer as it was sampled. Learning uses these tokens, never the text tokenised again."""

    prompt: Prompt
    row: EncodedRow
    text: str
    score: float
    finished: bool


Group = list[OwnCompletion]
"""The answers to one prompt, best first; those that were cut at the length limit come last."""


@dataclass(frozen=True)
class OwnCompletions:
    """The scored answers of every round, kept in `folder`. `generator` writes them with the weights of the moment."""

    folder: Path
    generator: Generator
    prompts: Order[EncodedPrompt]
    reward: Reward
    samples: int
    sampling: config.Sampling
    seed: int
    ranks: Ranks = ALONE

    def of(self, round: int) -> list[Group]:
        """The answers of a round, counted from 0: from disk where they are there, else drawn and scored now."""
        file = self.folder / f"round-{round + 1}.jsonl"
        if not self.ranks.shared(file.exists):
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in self._sample(round)]

            def write() -> None:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(file, "".join(lines))

            self.ranks.shared(write)
        prompts = {encoded.prompt.id: encoded.prompt for encoded in self.prompts.items}
        answers = [_answer(row, prompts) for row in read_lines(file)]
        groups = [answers[start : start + self.samples] for start in range(0, len(answers), self.samples)]
        return [best_first(group) for group in groups]

    def _sample(self, round: int) -> Iterator[dict[str, object]]:
        """Fresh answers as lines of their file."""
        seed = self.seed + STREAMS_APART * round
        answers = complete(
            self.generator, self.prompts(round), self.samples, self.sampling, self.reward, seed=seed
        )
        rollout = answers.rollout
        for row, text in enumerate(answers.texts):
            encoded = answers.prompts[row // self.samples]
            yield {
                "prompt_id": encoded.prompt.id,
                "answer": text,
                "score": float(answers.score[row]),
                "finished": bool(rollout.terminated[row]),
                "prompt_tokens": encoded.tokens,
                "tokens": rollout.response[row, : int(rollout.mask[row].sum())].tolist(),
            }


def _answer(row: Mapping[str, object], prompts: Mapping[str, Prompt]) -> OwnCompletion:
    match row:
        case {
            "prompt_id": str(name),
            "answer": str(text),
            "score": float() | int() as score,
            "finished": bool(finished),
            "prompt_tokens": list() as prompt,
            "tokens": list() as tokens,
        } if name in prompts:
            encoded = EncodedRow(tuple(prompt), tuple(tokens))
            return OwnCompletion(prompts[name], encoded, text, float(score), finished)
    raise TutelageError(f"This is no answer of this run: {str(row)[:80]}. Begin it again in another --out.")


def statistics(groups: Sequence[Group], kept: Sequence[OwnCompletion]) -> dict[str, float]:
    """score/mean and score/std of all answers of a round, score/kept of those that are learnt from, groups/dead (share
    of the prompts whose answers scored the same), length/mean (in tokens), ended (share), kept (how many)."""
    answers = [one for group in groups for one in group]
    scores = [one.score for one in answers]
    mean = sum(scores) / len(scores)
    return {
        "score/mean": mean,
        "score/std": (sum((score - mean) ** 2 for score in scores) / len(scores)) ** 0.5,
        "score/kept": sum(one.score for one in kept) / len(kept),
        "groups/dead": sum(len({one.score for one in group}) == 1 for group in groups) / len(groups),
        "length/mean": sum(len(one.row.response) for one in answers) / len(answers),
        "ended": sum(one.finished for one in answers) / len(answers),
        "kept": float(len(kept)),
    }


def keep_best(groups: Sequence[Group], keep: int, overall: float) -> list[OwnCompletion]:
    """The `keep` best answers to each prompt, or the best `overall` share of all answers where that is above 0.

    Only answers that ended by themselves are kept, and each text once. Raises TutelageError
    when none remains.
    """
    count = sum(len(group) for group in groups)
    ended = []
    for group in groups:
        first: dict[str, OwnCompletion] = {}
        for one in group:
            if one.finished:
                first.setdefault(one.text, one)
        ended.append(list(first.values()))
    if overall:
        every = sorted((one for group in ended for one in group), key=lambda one: -one.score)
        kept = every[: max(1, round(overall * count))]
    else:
        kept = [one for group in ended for one in group[:keep]]
    if not kept:
        raise TutelageError(
            f"Of {counted(count, 'answer')} none ended by itself, so there is nothing to imitate. Allow longer "
            "answers with --sampling.max-new-tokens, or begin with a model that ends its answers."
        )
    return kept


def mostly_cut(groups: Sequence[Group]) -> bool:
    """Whether fewer than half of the answers ended by themselves. Their scores alone then say which is better: a
    missing end tells of the limit, not of the answer (`ScoreShaping.missing_end` "auto" decides by the same share)."""
    ended = [one.finished for group in groups for one in group]
    return 2 * sum(ended) < len(ended)


def best_and_worst(groups: Sequence[Group]) -> list[tuple[OwnCompletion, OwnCompletion]]:
    """The best and the worst answer to each prompt.

    A prompt gives none where the two are equally good, or where the best did not end by itself; the latter only
    where at least half of all answers end. Raises TutelageError when no prompt gives one.
    """
    scores_alone = mostly_cut(groups)
    pairs = []
    for group in groups:
        ranked = sorted(group, key=lambda one: -one.score) if scores_alone else group
        best, worst = ranked[0], ranked[-1]
        if scores_alone:
            differ = best.score > worst.score
        else:
            differ = best.finished and (best.score, best.finished) != (worst.score, worst.finished)
        if differ:
            pairs.append((best, worst))
    if not pairs:
        raise TutelageError(
            f"Of {counted(len(groups), 'prompt')} none got {'an' if scores_alone else 'an ended'} answer that is "
            "better than another: there is nothing to learn from. Sample more answers (--samples), with a higher "
            "temperature, or longer ones (--sampling.max-new-tokens)."
        )
    return pairs


def pair_up(compared: Sequence[tuple[OwnCompletion, OwnCompletion]]) -> list[EncodedPair]:
    """Pairs of a better answer, the chosen one, and a worse one to the same prompt."""
    return [
        EncodedPair(best.row, worst.row, Preference(best.prompt.messages, best.text, worst.text))
        for best, worst in compared
    ]


class InRounds(Generic[T]):
    """The items of each step, where every `steps` steps a new round of items is made."""

    def __init__(self, make: Callable[[int], Sequence[T]], steps: int, batch: int, seed: int) -> None:
        self.make, self.steps, self.batch, self.seed = make, steps, batch, seed
        self._now: tuple[int, Order[T]] | None = None

    def __call__(self, step: int) -> list[T]:
        """The items of a step, counted from 0."""
        number, within = divmod(step, self.steps)
        if self._now is None or self._now[0] != number:
            self._now = number, Order(self.make(number), self.batch, self.seed + STREAMS_APART * number)
        return self._now[1](within)
