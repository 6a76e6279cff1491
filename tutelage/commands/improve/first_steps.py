"""Early warnings in reinforcement learning: truncated completions, and rewards, or parts of them, without a signal."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from torch import Tensor

from tutelage.algorithms.recipe import GradientSteps, Recipe
from tutelage.base import config
from tutelage.base.nouns import counted
from tutelage.core.batch import ScoredRollout
from tutelage.core.shaping import ScoreShaping
from tutelage.report.diagnoses import hardly_moved
from tutelage.train.learner import Step

log = logging.getLogger(__name__)

STEPS = 3
"""Steps before the warning that most groups have no signal."""
PART_STEPS = 10
"""Steps before the remarks on parts of the reward that never distinguished completions and on a still policy."""
MOST = 0.5

CUT, CONSTANT, REPEATED, EQUAL = "cut", "constant", "repeated", "equal"


class FirstSteps:
    """Logs problems in the first steps of a run, before hours are spent on it.

    After the first step a remark on completions that were cut at the limit, and on their scores. After `STEPS` steps a
    warning, if on average more than half of the prompts had completions with equal shaped scores (with one completion
    per prompt: if all completions of a step had), with the cause and the settings that change it. After `PART_STEPS`
    steps a remark on the parts of the reward that gave all completions of each prompt the same score in every one of
    them, unless the warning has mentioned it; and, if the completions differ in score, on a policy that hardly moves at
    the learning rate `rate`. `silent` are parts that give no signal by their nature.
    """

    def __init__(
        self, recipe: Recipe, sampling: config.Sampling, total: int, rate: float, silent: Sequence[str] = ()
    ) -> None:
        self._recipe, self._sampling, self._last = recipe, sampling, min(STEPS, total)
        self._total, self._rate = total, rate
        self._dead: list[float] = []
        self._causes: Counter[str] = Counter()
        self._parts, self._silent = _ConstantParts(), frozenset(silent)

    def look(self, step: Step) -> None:
        """Check a step, and log problems."""
        self._parts = self._parts.after(step.metrics, self._silent)
        if step.sample is not None and step.index <= self._last:
            self._look_at_scores(step, step.sample)
        if self._parts.steps == PART_STEPS and self._parts.names:
            log.info(self._of_parts())
        if text := self._of_distance(step):
            log.info(text)

    def _of_distance(self, step: Step) -> str:
        """A remark in the step after the first `PART_STEPS` updates of the policy by its rate; "" elsewhere."""
        warmup = self._recipe.critic.warmup if self._recipe.critic is not None else 0
        kl, dead = step.metrics.get("kl/reference_k3"), step.metrics.get("groups/dead", 0.0)
        by_rate = isinstance(self._recipe.update, GradientSteps)
        if kl is None or dead > MOST or not by_rate or step.index != warmup + PART_STEPS:
            return ""
        return hardly_moved(kl, PART_STEPS, self._total - warmup, self._rate)

    def _look_at_scores(self, step: Step, sample: ScoredRollout) -> None:
        instead = self._replacement(step)
        if step.index == 1:
            self._tell_cuts(sample, instead)
        causes = tuple(_causes(sample, step.texts, instead))
        groups = max(1, len(sample) // sample.group) if sample.group > 1 else 1
        self._dead.append(step.metrics.get("groups/dead", len(causes) / groups))
        self._causes.update(causes)
        if step.index == self._last and sum(self._dead) > MOST * len(self._dead):
            cause = self._causes.most_common(1)[0][0] if self._causes else EQUAL
            log.warning(self._warning(cause, instead))
            if cause != CUT:
                self._parts = _ConstantParts(self._parts.steps)

    def _replacement(self, step: Step) -> float | None:
        shaping = self._recipe.shaping
        is_known = isinstance(shaping, ScoreShaping) and step.recipe is not None
        return shaping.replacement(step.recipe.shaping) if is_known else None  # type: ignore[union-attr]

    def _tell_cuts(self, sample: ScoredRollout, instead: float | None) -> None:
        cut = 1 - float(sample.terminated.float().mean())
        shaping = self._recipe.shaping
        if not cut or not isinstance(shaping, ScoreShaping):
            return
        head = (
            f"Of the first {counted(len(sample), 'completion')} {cut:.0%} were cut at "
            f"{counted(self._sampling.max_new_tokens, 'token')} (--sampling.max-new-tokens)"
            f"{'' if sample.outcome is None else ' in a turn, at --turns or at the end of the context'}"
        )
        if instead is not None:
            why = ", since most completions end by themselves" if shaping.missing_end == "auto" else ""
            log.info(
                f"{head}: these score {instead:g} instead of the reward{why}. "
                "--set shaping.missing_end=none keeps the reward's scores."
            )
        elif shaping.missing_end != "auto":
            log.info(f"{head}; they keep the reward's scores (shaping.missing_end=none).")
        elif cut > MOST:
            log.info(
                f"{head}; they keep the reward's scores, because −1 instead would hide most of them. A longer limit "
                "lets more of them end; --set shaping.missing_end=none shaping.missing_end_penalty=1 lowers their "
                "scores."
            )
        else:
            log.info(
                f"{head}; they keep the reward's scores, because finished completions score less than the −1 that "
                "would replace them. --set shaping.missing_end=NUMBER sets another score."
            )

    def _warning(self, cause: str, instead: float | None) -> str:
        share, count = sum(self._dead) / len(self._dead), len(self._dead)
        steps = "step" if count == 1 else counted(count, "step")
        if self._recipe.samples > 1:
            head = (
                f"In the first {steps} {share:.0%} of the prompts gave no signal: all "
                f"{counted(self._recipe.samples, 'completion')} of one got the same score"
            )
        else:
            head = f"In the first {steps} all completions got the same score, which gives no signal"
        return f"{head}, {self._because(cause, instead)}"

    def _because(self, cause: str, instead: float | None) -> str:
        if cause == CUT:
            return (
                f"because they were cut at {counted(self._sampling.max_new_tokens, 'token')} and score {instead:g} "
                "instead of the reward. Use a larger --sampling.max-new-tokens, or --set shaping.missing_end=none, "
                "which keeps the reward's scores."
            )
        if cause == CONSTANT:
            return "because the reward is constant. Check the reward on a few completions."
        if cause == REPEATED:
            return (
                f"because they are the same text. Use a higher --sampling.temperature than "
                f"{self._sampling.temperature:g}."
            )
        parts = f" ({_listed('part', self._parts.names)} never did)" if self._parts.names else ""
        return (
            f"because the reward does not distinguish them{parts}. Use a finer reward, more completions "
            f"(--set samples={2 * self._recipe.samples}), or prompts that are neither too easy nor too hard for the "
            "model; --set dynamic_sampling=3 replaces such prompts by others."
        )

    def _of_parts(self) -> str:
        return (
            f"In each of {counted(PART_STEPS, 'step')} {_listed('part', self._parts.names)} of the reward gave "
            f"no signal: all {counted(self._recipe.samples, 'completion')} of one prompt got the same score. Read a "
            "few in samples.jsonl: a rule that none of them fulfils needs a prompt or demonstrations that show it; one "
            "that all fulfil can be removed."
        )


@dataclass(frozen=True)
class _ConstantParts:
    """Parts of a reward that gave all completions of each prompt the same score in each of `steps` steps."""

    steps: int = 0
    names: tuple[str, ...] = ()

    def after(self, metrics: Mapping[str, float], silent: Set[str]) -> "_ConstantParts":
        """Return the parts that remain constant after another step, from its metrics score/<part>/dead, except those
        in `silent`."""
        dead = (
            metric.removeprefix("score/").removesuffix("/dead")
            for metric, share in metrics.items()
            if metric.startswith("score/") and metric.endswith("/dead") and share == 1.0
        )
        constant = tuple(name for name in dead if name not in silent)
        names = tuple(name for name in self.names if name in constant) if self.steps else constant
        return _ConstantParts(self.steps + 1, names)


def _listed(noun: str, names: Sequence[str]) -> str:
    """ "the part 'a'", "the parts 'a' and 'b'"."""
    *before, last = map(repr, names)
    return f"the {noun}s {', '.join(before)} and {last}" if before else f"the {noun} {last}"


def _causes(sample: ScoredRollout, texts: Sequence[tuple[str, str]], instead: float | None) -> Iterator[str]:
    """Yield the cause of equal shaped scores, with the rewards of turns, for each prompt that has them; with one
    completion per prompt, for the whole batch."""
    size = sample.group if sample.group > 1 else len(sample)
    whole = sample.score if sample.turn_reward is None else sample.score + sample.turn_reward.sum(1)
    for start in range(0, len(sample), size):
        rows = slice(start, start + size)
        score, ended = whole[rows], sample.terminated[rows]
        if instead is not None and not ended.any() and not _equal(score):
            yield CUT
        elif _equal(score):
            answers = {answer for _, answer in texts[rows]}
            if _equal(whole):
                yield CONSTANT
            else:
                yield REPEATED if len(answers) == 1 else EQUAL


def _equal(score: Tensor) -> bool:
    return bool((score == score[0]).all())
