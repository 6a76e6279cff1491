"""The demonstration: one whole round on the embedded tutoring world, with the verbs that everybody uses.

pretrain → SFT → sample → judge → reward model → PPO → evaluate. Nothing in here trains or samples by itself.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tutelage import config
from tutelage.config.files import write_atomically
from tutelage.data.records import Comparison, Completion, Prompt
from tutelage.data.rows import from_row, to_row, write_jsonl
from tutelage.rounds.stages import Stage
from tutelage.simulate import World, calibrated_tau, ceiling, gold, panel
from tutelage.verbs import evaluate, improve, pretrain, reward, sample, sft

GOLD = "tutelage.simulate:gold"
STUDY = "demo"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the round is. Tiny models need larger learning rates than the published defaults."""

    corpus_tokens: int = 1_000_000
    """Words and marks of the pretraining text, about as many as BPE tokens."""
    pretrain_epochs: float = 1.0
    shape: config.Shape = field(
        default_factory=lambda: config.Shape(vocabulary=2400, hidden=128, layers=4, heads=4, context=256)
    )
    demonstrations: int = 3000
    sft_epochs: float = 1.0
    train_prompts: int = 800
    """Prompts of the train topics that are sampled for judging."""
    overlap: int = 2
    """Raters per pair."""
    raters: int = 8
    reward_epochs: float = 3.0
    ppo_steps: int = 60
    ppo_batch: int = 64
    answer_tokens: int = 96
    """Length limit of an answer."""
    test_prompts: int = 240
    """Held-out prompts of the evaluation."""


QUICK = Scale(
    corpus_tokens=120_000,
    shape=config.Shape(vocabulary=1600, hidden=64, layers=2, heads=2, context=192),
    demonstrations=600,
    train_prompts=120,
    raters=6,
    reward_epochs=2.0,
    ppo_steps=10,
    ppo_batch=32,
    answer_tokens=64,
    test_prompts=48,
)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """How the answers are judged."""

    raters: int
    overlap: int
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
                (self.scale, pretraining),
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
        return config.Sampling(temperature=1.0, max_new_tokens=self.scale.answer_tokens)

    def _pretrain(self) -> pretrain.Settings:
        return pretrain.Settings(
            **self._run("pretrain"),
            data=self._data("corpus.jsonl.gz"),
            shape=self.scale.shape,
            epochs=self.scale.pretrain_epochs,
            batch_size=6,
            max_length=160,
            optimiser=config.Optimiser(lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01, warmup=0.03),
            evaluate_every=200,
        )

    def _sft(self) -> sft.Settings:
        return sft.Settings(
            **self._run("sft"),
            model=self._model("pretrain"),
            data=self._data("demonstrations.jsonl"),
            epochs=self.scale.sft_epochs,
            batch_size=32,
            optimiser=config.Optimiser(lr=1e-3, warmup=0.05, schedule="cosine"),
            max_new_tokens=self.scale.answer_tokens,
        )

    def _sample(self) -> sample.Settings:
        return sample.Settings(
            model=self._model("sft"),
            prompts=self._data("prompts_to_judge.jsonl"),
            out=self.folder / "sample",
            n=2,
            pairs=1,
            sampling=self._sampling,
            seed=self.seed,
            quiet=self.quiet,
        )

    def _judging(self) -> Judging:
        return Judging(raters=self.scale.raters, overlap=self.scale.overlap, seed=self.seed)

    def _reward(self) -> reward.Settings:
        return reward.Settings(
            **self._run("reward"),
            model=self._model("sft"),
            data=str(self.folder / "judge" / "preferences.jsonl"),
            test=str(self.folder / "judge" / "test_votes.jsonl"),
            centre=self._data("demonstrations.jsonl"),
            epochs=self.scale.reward_epochs,
            batch_size=32,
            optimiser=config.Optimiser(lr=5e-4, warmup=0.1, weight_decay=0.01),
        )

    def _improve(self) -> improve.Settings:
        return improve.Settings(
            **self._run("improve"),
            model=self._model("sft"),
            prompts=self._data("prompts_train.jsonl"),
            reward=(str(self.folder / "reward" / "model"),),
            recipe="ppo",
            set=("penalty.coef=0.05", "update.epochs=2", "update.minibatches=2"),
            steps=self.scale.ppo_steps,
            batch_size=self.scale.ppo_batch,
            sampling=self._sampling,
            optimiser=config.Optimiser(lr=4e-4, warmup=0.05),
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
        """Ask the simulated raters about every pair, through the store that people use."""
        from tutelage.data.pairing import split_by_prompt
        from tutelage.people import (
            add_items,
            create_study,
            list_questions,
            list_studies,
            list_votes,
            open_store,
            open_study,
            preferences,
        )
        from tutelage.people.aggregate import aggregate
        from tutelage.people.store.studies import Plan
        from tutelage.rounds.judging import describe_votes, judge, single_votes

        asked = self.folder / "sample"
        out = self.folder / "judge"
        out.mkdir(parents=True, exist_ok=True)
        prompts = _records(Prompt, asked / "prompts.jsonl")
        completions = _records(Completion, asked / "completions.jsonl")
        comparisons = _records(Comparison, asked / "comparisons.jsonl")
        deltas = _gold_differences(prompts, completions, comparisons)
        tau = calibrated_tau(list(deltas.values()))
        store = open_store(str(out / "study.sqlite"))
        plan = Plan(overlap=settings.overlap, gold_rate=0.0, repeat_rate=0.0)
        study = open_study(store, STUDY) if STUDY in list_studies(store) else create_study(store, STUDY, plan=plan)
        add_items(store, study.id, prompts, completions, comparisons)
        judge(
            store,
            study.id,
            panel(self.seed, settings.raters, tau),
            gold,
            seed=self.seed,
            done=self._count(len(comparisons) * settings.overlap),
        )
        votes = list_votes(store, study.id)
        labels = aggregate(votes, {})
        summary = describe_votes(votes, labels)
        write_atomically(out / "judgements.json", json.dumps(summary, indent=2) + "\n")
        records = preferences(store, study.id)
        kept, aside = split_by_prompt(records, 0.2, self.seed)
        write_jsonl(out / "preferences.jsonl", map(to_row, kept))
        tested = {preference.messages for preference in aside}
        questions = {question.item.key: question for question in list_questions(store, study.id)}
        good = {rater["name"] for rater in summary["raters"] if not rater["flags"]}
        test = [v for v in votes if v.rater in good and questions[v.item].messages in tested]
        write_jsonl(out / "test_votes.jsonl", map(to_row, single_votes(test, questions)))
        best = ceiling([deltas[v.item] for v in test if v.verdict in ("a", "b")], tau)
        write_atomically(out / "summary.json", json.dumps({"ceiling": best, "tau": tau}, indent=2) + "\n")
        store.close()

    def _count(self, total: int) -> Callable[[int], None]:
        def done(count: int) -> None:
            if count % 500 == 0:
                self.say(f"  {count} of {total} judgements")

        return done


def _spread(prompts: list[Prompt], count: int) -> list[Prompt]:
    """`count` of the prompts, with as many topics and phrasings among them as there can be."""
    order = sorted(range(len(prompts)), key=lambda i: (i * 0.6180339887) % 1.0)
    return [prompts[i] for i in order[:count]]


def _records(kind: type[Any], path: Path) -> list[Any]:
    return [from_row(kind, json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _gold_differences(
    prompts: list[Prompt], completions: list[Completion], comparisons: list[Comparison]
) -> dict[str, float]:
    """gold(a) − gold(b) of every comparison, by its id: known to raters and evaluation, and to nobody else."""
    questions = {prompt.id: prompt.messages[-1].content for prompt in prompts}
    texts = {completion.id: completion for completion in completions}
    ids = list(texts)
    values = gold([questions[texts[i].prompt_id] for i in ids], [texts[i].text for i in ids])
    utility = dict(zip(ids, values, strict=True))
    return {c.id: utility[c.a_id] - utility[c.b_id] for c in comparisons}
