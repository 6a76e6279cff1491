"""The demonstration: one whole round on the embedded tutoring world, with the verbs that everybody uses.

pretrain → SFT → sample → judge → reward model → PPO → evaluate. Nothing in here trains or samples by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tutelage import config
from tutelage.commands import evaluate, improve, pretrain, reward, sample, sft
from tutelage.data.formats import load_comparisons, load_completions, load_prompts
from tutelage.data.records import Prompt
from tutelage.data.rows import to_row, write_jsonl
from tutelage.rounds.judging import Judging, Questions, hold_study
from tutelage.rounds.stages import Stage
from tutelage.simulate import World, calibrated_tau, gold, panel

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
    """How much the world is asked to yield."""

    corpus_tokens: int
    demonstrations: int
    train_prompts: int
    seed: int


class Tutoring:
    """The stages of the demonstration in one folder."""

    def __init__(
        self, folder: Path, seed: int, scale: Scale, quiet: bool, say: Callable[[str], None]
    ) -> None:
        self.folder, self.seed, self.scale, self.quiet, self.say = folder, seed, scale, quiet, say
        self.world = World(seed)

    def stages(self) -> list[Stage]:
        """All of them, in order."""
        pretraining, tuning, asking = self._pretrain(), self._sft(), self._sample()
        fitting, improving, judging = self._reward(), self._improve(), self._judging()
        return [
            Stage(
                "pretrain",
                "Pretraining",
                (self._texts(), pretraining),
                lambda: self._with_data(pretrain, pretraining),
            ),
            Stage("sft", "Supervised fine-tuning", (tuning,), lambda: sft.main(tuning)),
            Stage("sample", "Sampling answers", (asking,), lambda: sample.main(asking)),
            Stage("judge", "Raters judge pairs", (judging,), lambda: self._judge(judging)),
            Stage("reward", "Reward model", (fitting,), lambda: reward.main(fitting)),
            Stage("improve", "PPO", (improving,), lambda: improve.main(improving)),
            Stage("evaluate", "Evaluation", (self._evaluate(),), lambda: evaluate.main(self._evaluate())),
        ]

    # What each stage is asked to do ----------------------------------------------------------------------------------

    def _run(self, name: str) -> dict[str, Any]:
        return {"out": self.folder / name, "seed": self.seed, "resume": True, "quiet": self.quiet}

    def _data(self, name: str) -> str:
        return str(self.folder / "data" / name)

    def _model(self, stage: str) -> config.Model:
        return config.Model(path=str(self.folder / stage / "model"))

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

    def _pretrain(self) -> pretrain.Settings:
        return pretrain.Settings(
            **self._run("pretrain"),
            data=self._data("corpus.jsonl.gz"),
            shape=self.scale.shape,
            epochs=self.scale.pretrain_epochs,
            batch_size=6,
            max_length=160,
            optimiser=config.Optimiser(lr=4e-3, betas=(0.9, 0.95), weight_decay=0.01, warmup=0.03),
            evaluate_every=200,
        )

    def _sft(self) -> sft.Settings:
        return sft.Settings(
            **self._run("sft"),
            model=self._model("pretrain"),
            data=self._data("demonstrations.jsonl"),
            epochs=self.scale.sft_epochs,
            batch_size=8,
            optimiser=config.Optimiser(lr=1e-3, warmup=0.05, schedule="cosine"),
            evaluate_every=100,
            max_new_tokens=self.scale.answer_tokens,
        )

    def _sample(self) -> sample.Settings:
        return sample.Settings(
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

    def _reward(self) -> reward.Settings:
        return reward.Settings(
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

    def _improve(self) -> improve.Settings:
        return improve.Settings(
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

    def _evaluate(self) -> evaluate.Settings:
        return evaluate.Settings(
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

    # What they need beside -------------------------------------------------------------------------------------

    def _with_data(self, verb: Any, settings: pretrain.Settings) -> None:
        """Write what the world yields, then run the first stage."""
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
        verb.main(settings)

    def _judge(self, settings: Judging) -> None:
        """Ask the simulated raters about every pair, and write what they said as training reads it."""
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
