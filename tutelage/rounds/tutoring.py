"""The demonstration: one whole round on the embedded tutoring world, as a list of workflows with their settings.

pretrain → SFT → sample → judge → reward model → PPO → evaluate. Nothing in here trains or samples by itself.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tutelage import config
from tutelage.data.formats import load_comparisons, load_completions, load_prompts
from tutelage.data.records import Prompt
from tutelage.data.rows import to_row, write_jsonl
from tutelage.rounds.judging import Judging, Questions, hold_study
from tutelage.rounds.stages import Stage
from tutelage.simulate import World, calibrated_tau, gold, panel
from tutelage.train.run.drive import Training
from tutelage.train.run.terminal import complete
from tutelage.workflows.evaluate import evaluate
from tutelage.workflows.improve import prepare_improve
from tutelage.workflows.pretrain import prepare_pretrain
from tutelage.workflows.reward import prepare_reward
from tutelage.workflows.sample import sample
from tutelage.workflows.settings.evaluate import EvaluateSettings
from tutelage.workflows.settings.improve import ImproveSettings
from tutelage.workflows.settings.pretrain import PretrainSettings
from tutelage.workflows.settings.reward import RewardSettings
from tutelage.workflows.settings.sample import SampleSettings
from tutelage.workflows.settings.sft import SftSettings
from tutelage.workflows.sft import prepare_sft

GOLD = "tutelage.simulate:gold"
AGREEMENT = 0.71  # of two fresh, attentive raters; people reach 0.63 to 0.77


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the round is. Tiny models need larger learning rates than the published defaults."""

    corpus_tokens: int = 960_000
    """Words and marks of the pretraining text, about as many as BPE tokens."""
    pretrain_epochs: float = 1.0
    shape: config.Shape = field(
        default_factory=lambda: config.Shape(vocabulary=2400, hidden=128, layers=4, heads=4, context=256)
    )
    demonstrations: int = 3000
    sft_epochs: float = 1.0
    train_prompts: int = 1300
    """Prompts of the train topics that are sampled for judging."""
    answers: int = 8
    """Answers to each of them."""
    pairs: int = 9
    """Pairs of these that are judged."""
    overlap: int = 1
    """Raters per pair; some pairs always get a second one, so that reliability can be told."""
    test_overlap: int = 3
    """Raters per pair that only tests the reward model."""
    raters: int = 12
    reward_epochs: float = 1.0
    ppo_steps: int = 30
    ppo_batch: int = 64
    answer_tokens: int = 96
    """Length limit of an answer."""
    test_prompts: int = 240
    """Held-out prompts of the evaluation."""


QUICK = Scale(
    corpus_tokens=240_000,
    shape=config.Shape(vocabulary=1600, hidden=64, layers=2, heads=2, context=192),
    demonstrations=600,
    train_prompts=120,
    answers=2,
    pairs=1,
    overlap=2,
    raters=6,
    reward_epochs=2.0,
    ppo_steps=10,
    ppo_batch=32,
    answer_tokens=64,
    test_prompts=48,
)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """How much text the world writes."""

    corpus_tokens: int
    demonstrations: int
    train_prompts: int
    seed: int


class Tutoring:
    """The stages of the demonstration in one folder."""

    def __init__(
        self, folder: Path, seed: int, scale: Scale, quiet: bool, engine: config.EngineName = "auto"
    ) -> None:
        self.folder, self.seed, self.scale, self.quiet = folder, seed, scale, quiet
        self.engine = engine
        self.world = World(seed)

    def stages(self) -> list[Stage]:
        """All of them, in order."""
        pretraining, tuning, sampling = self._pretrain(), self._sft(), self._sample()
        judging, fitting, improving = self._judging(), self._reward(), self._improve()
        evaluation = self._evaluate()
        return [
            Stage(
                "pretrain",
                "Pretraining",
                (self._texts(), pretraining),
                lambda: self._pretrain_on_data(pretraining),
            ),
            Stage("sft", "Supervised fine-tuning", (tuning,), lambda: self._complete(prepare_sft(tuning))),
            Stage("sample", "Sampling answers", (sampling,), lambda: sample(sampling)),
            Stage("judge", "Raters judge pairs", (judging,), lambda: self._judge(judging)),
            Stage("reward", "Reward model", (fitting,), lambda: self._complete(prepare_reward(fitting))),
            Stage("improve", "PPO", (improving,), lambda: self._complete(prepare_improve(improving))),
            Stage("evaluate", "Evaluation", (evaluation,), lambda: evaluate(evaluation)),
        ]

    # Settings of the stages ----------------------------------------------------------------------------------

    def _run(self, name: str) -> dict[str, Any]:
        return {"out": self.folder / name, "seed": self.seed, "resume": True, "quiet": self.quiet}

    def _data(self, name: str) -> str:
        return str(self.folder / "data" / name)

    def _model(self, stage: str) -> config.Model:
        return config.Model(path=str(self.folder / stage / "model"), engine=self.engine)

    @property
    def _sampling(self) -> config.Sampling:
        return config.Sampling(temperature=0.7, max_new_tokens=self.scale.answer_tokens)

    def _texts(self) -> Texts:
        scale = self.scale
        return Texts(
            corpus_tokens=scale.corpus_tokens,
            demonstrations=scale.demonstrations,
            train_prompts=scale.train_prompts,
            seed=self.seed,
        )

    def _pretrain(self) -> PretrainSettings:
        return PretrainSettings(
            **self._run("pretrain"),
            data=self._data("corpus.jsonl.gz"),
            engine=self.engine,
            shape=self.scale.shape,
            epochs=self.scale.pretrain_epochs,
            batch_size=6,
            max_length=160,
            optimiser=config.Optimiser(lr=4e-3, betas=(0.9, 0.95), weight_decay=0.01, warmup=0.03),
            evaluate_every=200,
        )

    def _sft(self) -> SftSettings:
        return SftSettings(
            **self._run("sft"),
            model=self._model("pretrain"),
            data=self._data("demonstrations.jsonl"),
            epochs=self.scale.sft_epochs,
            batch_size=8,
            optimiser=config.Optimiser(lr=1e-3, warmup=0.05, schedule="cosine"),
            evaluate_every=100,
            max_new_tokens=self.scale.answer_tokens,
        )

    def _sample(self) -> SampleSettings:
        return SampleSettings(
            model=self._model("sft"),
            prompts=self._data("prompts_to_judge.jsonl"),
            out=self.folder / "sample",
            n=self.scale.answers,
            pairs=self.scale.pairs,
            sampling=self._sampling,
            seed=self.seed,
            quiet=self.quiet,
        )

    def _judging(self) -> Judging:
        scale = self.scale
        return Judging(
            raters=scale.raters, overlap=scale.overlap, test_overlap=scale.test_overlap, seed=self.seed
        )

    def _reward(self) -> RewardSettings:
        return RewardSettings(
            **self._run("reward"),
            model=self._model("sft"),
            data=str(self.folder / "judge" / "preferences.jsonl"),
            test=str(self.folder / "judge" / "test_votes.jsonl"),
            centre=self._data("demonstrations.jsonl"),
            epochs=self.scale.reward_epochs,
            batch_size=20,
            held_out=0.04,
            optimiser=config.Optimiser(lr=1e-3, warmup=0.1, weight_decay=0.01),
            evaluate_every=100,
        )

    def _improve(self) -> ImproveSettings:
        return ImproveSettings(
            **self._run("improve"),
            model=self._model("sft"),
            prompts=self._data("prompts_train.jsonl"),
            reward=(str(self.folder / "reward" / "model"),),
            recipe="ppo",
            set=(
                "shaping.normalise=running",  # or the price of the KL would hang on how far apart the scores are
                "penalty.coef=0.05",
                "update.epochs=2",
                "update.minibatches=2",
            ),
            critic_lr=3e-3,
            steps=self.scale.ppo_steps,
            batch_size=self.scale.ppo_batch,
            sampling=self._sampling,
            optimiser=config.Optimiser(lr=3e-4, eps=config.POLICY_EPS, warmup=0.05),
            watch=(f"gold/mean={GOLD}",),
        )

    def _evaluate(self) -> EvaluateSettings:
        return EvaluateSettings(
            model=self._model("improve"),
            against=str(self.folder / "sft" / "model"),
            base=str(self.folder / "pretrain" / "model"),
            prompts=self._data("prompts_held_out.jsonl"),
            out=self.folder / "evaluate",
            reward=(f"gold={GOLD}", f"score={self.folder / 'reward' / 'model'}"),
            names=("SFT", "policy"),
            limit=self.scale.test_prompts,
            sampling=self._sampling,
            seed=self.seed,
            quiet=True,
        )

    # Data and judging -------------------------------------------------------------------------------------

    def _complete(self, prepared: AbstractContextManager[Training[object]]) -> object:
        return complete(prepared, quiet=self.quiet)

    def _pretrain_on_data(self, settings: PretrainSettings) -> None:
        """Write the texts of the world, then pretrain on them."""
        scale, world = self.scale, self.world
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        train, held_out = world.prompts("train"), world.prompts("held_out")
        write_jsonl(
            self._data("corpus.jsonl.gz"), ({"text": text} for text in world.corpus(scale.corpus_tokens))
        )
        write_jsonl(
            self._data("demonstrations.jsonl"), map(to_row, world.demonstrations(scale.demonstrations))
        )
        write_jsonl(self._data("prompts_train.jsonl"), map(to_row, train))
        write_jsonl(self._data("prompts_held_out.jsonl"), map(to_row, _spread(held_out, len(held_out))))
        write_jsonl(self._data("prompts_to_judge.jsonl"), map(to_row, _spread(train, scale.train_prompts)))
        self._complete(prepare_pretrain(settings))

    def _judge(self, settings: Judging) -> None:
        """Let the simulated raters judge every pair, and write their preferences for training."""
        asked = self.folder / "sample"
        questions = Questions(
            load_prompts(asked / "prompts.jsonl").records,
            load_completions(asked / "completions.jsonl").records,
            load_comparisons(asked / "comparisons.jsonl").records,
        )
        tau = calibrated_tau(list(questions.differences(gold).values()), AGREEMENT)
        hold_study(
            self.folder / "judge",
            questions,
            panel(self.seed, settings.raters, tau),
            gold,
            settings,
            quiet=self.quiet,
        )


def _spread(prompts: list[Prompt], count: int) -> list[Prompt]:
    """`count` of the prompts, with as many topics and phrasings among them as there can be."""
    order = sorted(range(len(prompts)), key=lambda i: (i * 0.6180339887) % 1.0)
    return [prompts[i] for i in order[:count]]
