"""Training on the policy's own scored completions in rounds: rejection sampling and iterated preference losses.

    a round:  n completions per prompt by the current policy → scores → a fixed number of steps on them

The completions of a round are sampled at its first step and stored on disk, so that a run resumed within a round
trains on the same completions.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tutelage.base import config
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
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
"""Seed offset between rounds: a repeated prompt gets other completions."""


@dataclass(frozen=True)
class OwnCompletion:
    """Completion as sampled. Training uses these tokens and never retokenises the text."""

    prompt: Prompt
    row: EncodedRow
    text: str
    score: float
    finished: bool


Group = list[OwnCompletion]
"""Completions of one prompt, best first; truncated ones come last."""


@dataclass(frozen=True)
class OwnCompletions:
    """Scored completions of every round, stored in `folder`. `generator` writes them with the current weights."""

    folder: Path
    generator: Generator
    prompts: Order[EncodedPrompt]
    reward: Reward
    samples: int
    sampling: config.Sampling
    seed: int
    ranks: Ranks = ALONE

    def of(self, round: int) -> list[Group]:
        """Completions of a round (counted from 0), from disk or newly sampled and scored."""
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
        """New completions as lines of their file."""
        seed = self.seed + STREAMS_APART * round
        answers = complete(self.generator, self.prompts(round), self.samples, self.sampling, self.reward, seed=seed)
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
    raise TutelageError(f"This is no answer of this run: {str(row)[:80]}. Start again with another --out.")


def statistics(groups: Sequence[Group], kept: Sequence[OwnCompletion]) -> dict[str, float]:
    """score/mean and score/std of all completions of a round, score/kept of those trained on, groups/dead (fraction
    of prompts whose completions have one score), length/mean (in tokens), ended (fraction that terminated), kept
    (number trained on)."""
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
    """Select the `keep` best completions of each prompt, or the best fraction `overall` of all completions if above 0.

    Only completions that terminated are kept, and duplicate texts once. Raises TutelageError if none remains.
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
            f"None of {count} completions terminated, so there is nothing to imitate. Allow longer "
            "completions with --sampling.max-new-tokens, or start from a model that ends its completions."
        )
    return kept


def mostly_cut(groups: Sequence[Group]) -> bool:
    """Whether fewer than half of the completions terminated. If so, only scores rank them: a missing end reflects
    the limit, not the completion (`ScoreShaping.missing_end` "auto" uses the same threshold)."""
    ended = [one.finished for group in groups for one in group]
    return 2 * sum(ended) < len(ended)


def best_and_worst(groups: Sequence[Group]) -> list[tuple[OwnCompletion, OwnCompletion]]:
    """Best and worst completion of each prompt.

    Skips prompts whose best and worst completions tie, or whose best was truncated; the latter only if at least half
    of all completions terminated. Raises TutelageError if no prompt remains.
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
            f"No prompt ({len(groups)} sampled) has a {'' if scores_alone else 'complete '}completion that is better "
            "than another: there is nothing to train on. Sample more completions (--samples), with a higher "
            "temperature, or longer ones (--sampling.max-new-tokens)."
        )
    return pairs


def pair_up(compared: Sequence[tuple[OwnCompletion, OwnCompletion]]) -> list[EncodedPair]:
    """Preference pairs of a better, chosen completion and a worse one of the same prompt."""
    return [
        EncodedPair(best.row, worst.row, Preference(best.prompt.messages, best.text, worst.text))
        for best, worst in compared
    ]


class InRounds(Generic[T]):
    """Items of each step; a new round of items every `steps` steps."""

    def __init__(self, make: Callable[[int], Sequence[T]], steps: int, batch: int, seed: int) -> None:
        self.make, self.steps, self.batch, self.seed = make, steps, batch, seed
        self._now: tuple[int, Order[T]] | None = None

    def __call__(self, step: int) -> list[T]:
        """Items of a step (counted from 0)."""
        number, within = divmod(step, self.steps)
        if self._now is None or self._now[0] != number:
            self._now = number, Order(self.make(number), self.batch, self.seed + STREAMS_APART * number)
        return self._now[1](within)
