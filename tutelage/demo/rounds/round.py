"""A round of the demonstration: what every world's round does from sampling to evaluation, and where it lies.

A world is a function from a `RoundPlace` to a `DemoRound`: the settings of these stages, the stages before them, the
texts that they read, and the gold utility of the raters. Nothing in here trains or samples by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tutelage.base import config
from tutelage.commands.evaluate.run import evaluate
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.improve.run import prepare_improve
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.reward.run import prepare_reward
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.sample.run import sample
from tutelage.commands.sample.settings import SampleSettings
from tutelage.commands.terminal import complete
from tutelage.data.formats import load_comparisons, load_completions, load_prompts
from tutelage.demo.rounds.judging import JudgedQuestions, Judging, Utility, hold_study, remembered
from tutelage.demo.rounds.stages import Stage, Story
from tutelage.people.simulated_raters import calibrated_tau, panel

AGREEMENT = 0.71  # of two fresh, attentive raters; people reach 0.63 to 0.77


@dataclass(frozen=True)
class RoundPlace:
    """Where a round lies, and what all its stages share: the seed, and how its models compute."""

    folder: Path
    seed: int
    quiet: bool
    engine: config.EngineName = "auto"
    dtype: config.DtypeName = "float32"

    def run(self, stage: str) -> dict[str, Any]:
        """The settings that every run directory of the round has."""
        return {"out": self.folder / stage, "seed": self.seed, "resume": True, "quiet": self.quiet}

    def data(self, name: str) -> str:
        """A file of the world's texts."""
        return str(self.folder / "data" / name)

    def model(self, stage: str) -> config.Model:
        """The model that a stage has made."""
        return self.model_at(str(self.folder / stage / "model"))

    def model_at(self, path: str) -> config.Model:
        """A model that the round begins with or has made."""
        return config.Model(path=path, dtype=self.dtype, engine=self.engine)

    def flags(self) -> str:
        """What follows the name of the command that makes this round: the seed, and what is not the default."""
        names = ("dtype", "engine")
        default = RoundPlace(self.folder, self.seed, self.quiet)
        given = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}
        return " ".join(f"--{name} {value}" for name, value in {"seed": self.seed, **given}.items())


@dataclass(frozen=True, kw_only=True)
class Texts:
    """How much a world writes, and from which seed. An amount is 0 where the world has no such texts, and is then no
    part of the fingerprints of its stages."""

    seed: int
    corpus_tokens: int = 0
    """Words and marks of the text to pretrain on."""
    demonstrations: int = 0
    train_prompts: int = 0
    """Prompts whose answers are judged, spread over all topics."""
    judged_prompts: int = 0
    """Prompts whose answers are judged, from the first on."""
    neutral_tokens: int = 0
    """Words and marks of text that has nothing to do with the task."""


class AnswerScale(Protocol):
    """How many answers of what length a round has judged."""

    @property
    def answers(self) -> int: ...
    @property
    def pairs(self) -> int: ...
    @property
    def answer_tokens(self) -> int: ...


def answer_sampling(scale: AnswerScale) -> config.Sampling:
    """The sampling of all answers of a round."""
    return config.Sampling(temperature=0.7, max_new_tokens=scale.answer_tokens)


def answers_to_judge(place: RoundPlace, model: config.Model, scale: AnswerScale) -> SampleSettings:
    """The stage that samples the answers of `model` to the prompts that are judged."""
    return SampleSettings(
        model=model,
        prompts=place.data("prompts_to_judge.jsonl"),
        out=place.folder / "sample",
        n=scale.answers,
        pairs=scale.pairs,
        sampling=answer_sampling(scale),
        seed=place.seed,
        quiet=place.quiet,
    )


@dataclass(frozen=True, kw_only=True)
class DemoRound:
    """The stages of a round by their settings.

    `write` writes the texts that the stages read, as `texts` decides, when the first stage begins.
    `before` are the stages that make the model whose answers are sampled, where the world does not bring one. The
    raters want `gold`.
    """

    place: RoundPlace
    story: Story
    texts: Texts
    write: Callable[[], object]
    gold: Utility
    before: tuple[Stage, ...] = ()
    sampling: SampleSettings
    judging: Judging
    fitting: RewardSettings
    improving: ImproveSettings
    evaluation: EvaluateSettings

    def stages(self) -> list[Stage]:
        """All stages, in order."""
        quiet = self.place.quiet
        stages = [
            *self.before,
            Stage("sample", "Sampling answers", (self.sampling,), self._sample),
            Stage("judge", "Raters judge pairs", (self.judging,), self._judge),
            Stage(
                "reward",
                "Reward model",
                (self.fitting,),
                lambda: complete(prepare_reward(self.fitting), quiet=quiet),
            ),
            Stage(
                "improve",
                self.improving.recipe.upper(),
                (self.improving,),
                lambda: complete(prepare_improve(self.improving), quiet=quiet),
            ),
            Stage("evaluate", "Evaluation", (self.evaluation,), lambda: evaluate(self.evaluation)),
        ]
        return [self._with_texts(stages[0]), *stages[1:]]

    def _with_texts(self, stage: Stage) -> Stage:
        """A stage that writes the texts of the world before it begins."""

        def run() -> object:
            self.write()
            return stage.run()

        return replace(stage, settings=(self.texts, *stage.settings), run=run)

    def _sample(self) -> None:
        """Sample the answers under a name that their model has in every folder, since which pairs are asked follows
        from it. The name is not among the settings of the stage: a round begun before there were names goes on."""
        name, folder = self.sampling.model.path, self.place.folder
        if Path(name).is_relative_to(folder):
            name = Path(name).relative_to(folder).as_posix()
        sample(replace(self.sampling, name=name))

    def _judge(self) -> None:
        """Let the simulated raters judge every pair, and write their preferences for training."""
        asked, place = self.sampling.out, self.place
        questions = JudgedQuestions(
            load_prompts(asked / "prompts.jsonl").records,
            load_completions(asked / "completions.jsonl").records,
            load_comparisons(asked / "comparisons.jsonl").records,
        )
        gold = remembered(self.gold)
        tau = calibrated_tau(list(questions.differences(gold).values()), AGREEMENT)
        raters = panel(place.seed, self.judging.raters, tau)
        hold_study(place.folder / "judge", questions, raters, gold, self.judging, quiet=place.quiet)
