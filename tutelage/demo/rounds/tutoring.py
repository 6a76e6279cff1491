"""Demonstration on the embedded tutoring world, with a model trained from scratch.

pretrain → SFT → sample → judge → reward model → PPO → evaluate, as settings of the workflows.
"""

from dataclasses import dataclass, field

from tutelage.base import config
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.pretrain.run import prepare_pretrain
from tutelage.commands.pretrain.settings import PretrainSettings
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.sft.run import prepare_sft
from tutelage.commands.sft.settings import SftSettings
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Prompt
from tutelage.data.worlds import World, gold
from tutelage.demo.rounds.round import (
    DemoRound,
    RoundPlace,
    Story,
    Texts,
    answer_sampling,
    answers_to_judge,
    evaluation,
    training,
)
from tutelage.demo.rounds.simulated_study import Judging

GOLD = "tutelage.data.worlds:gold"
STORY = Story(
    title="Teaching a small model to teach",
    about=(
        "A language model of about a million parameters, made from nothing, learns to explain things to a "
        "10-year-old: first from text, then from demonstrations of mixed quality, then from what raters prefer."
    ),
    command="tutelage demo",
)


@dataclass(frozen=True, kw_only=True)
class TutoringScale:
    """Size of the round. Tiny models need larger learning rates than the published defaults."""

    corpus_tokens: int = 960_000
    """Words and punctuation marks of the pretraining text, about as many as BPE tokens."""
    pretrain_epochs: float = 1.0
    shape: config.Shape = field(
        default_factory=lambda: config.Shape(vocabulary=2400, hidden=128, layers=4, heads=4, context=256)
    )
    demonstrations: int = 3000
    sft_epochs: float = 1.0
    train_prompts: int = 1300
    """Prompts of the train topics, sampled for judging."""
    answers: int = 8
    """Completions of each of them."""
    pairs: int = 9
    """Judged pairs of each prompt."""
    overlap: int = 1
    """Raters per pair; some pairs always get a second one, to measure reliability."""
    test_overlap: int = 3
    """Raters per pair in the test set of the reward model."""
    raters: int = 12
    reward_epochs: float = 1.0
    ppo_steps: int = 30
    ppo_batch: int = 64
    answer_tokens: int = 96
    """Maximum length of a completion in tokens."""
    test_prompts: int = 240
    """Held-out prompts of the evaluation."""


def tutoring(place: RoundPlace, scale: TutoringScale) -> DemoRound:
    """Round of this world in one place."""
    texts = Texts(
        corpus_tokens=scale.corpus_tokens,
        demonstrations=scale.demonstrations,
        train_prompts=scale.train_prompts,
        seed=place.seed,
    )
    return DemoRound(
        place=place,
        story=STORY,
        texts=texts,
        write=lambda: write_texts(place, texts),
        gold=gold,
        before=(
            training("pretrain", "Pretraining", _pretrain(place, scale), prepare_pretrain),
            training("sft", "Supervised fine-tuning", _sft(place, scale), prepare_sft),
        ),
        sampling=answers_to_judge(place, place.model("sft"), scale),
        judging=Judging(raters=scale.raters, overlap=scale.overlap, test_overlap=scale.test_overlap, seed=place.seed),
        fitting=_reward(place, scale),
        improving=_improve(place, scale),
        evaluation=evaluation(
            place,
            STORY,
            base=str(place.folder / "pretrain" / "model"),
            reward=(f"gold={GOLD}", f"score={place.folder / 'reward' / 'model'}"),
            limit=scale.test_prompts,
            sampling=answer_sampling(scale),
        ),
    )


def write_texts(place: RoundPlace, texts: Texts) -> None:
    """Write the texts of the world: a corpus, demonstrations, and prompts of both splits."""
    world = World(texts.seed)
    train, held_out = world.prompts("train"), world.prompts("held_out")
    write_jsonl(place.data("corpus.jsonl.gz"), ({"text": text} for text in world.corpus(texts.corpus_tokens)))
    write_jsonl(place.data("demonstrations.jsonl"), map(to_row, world.demonstrations(texts.demonstrations)))
    write_jsonl(place.data("prompts_train.jsonl"), map(to_row, train))
    write_jsonl(place.data("prompts_held_out.jsonl"), map(to_row, _spread(held_out, len(held_out))))
    write_jsonl(place.data("prompts_to_judge.jsonl"), map(to_row, _spread(train, texts.train_prompts)))


def _pretrain(place: RoundPlace, scale: TutoringScale) -> PretrainSettings:
    return PretrainSettings(
        **place.run("pretrain"),
        data=place.data("corpus.jsonl.gz"),
        dtype=place.dtype,
        engine=place.engine,
        shape=scale.shape,
        epochs=scale.pretrain_epochs,
        batch_size=6,
        max_length=160,
        optimiser=config.Optimiser(lr=4e-3, betas=(0.9, 0.95), weight_decay=0.01, warmup=0.03),
        evaluate_every=200,
    )


def _sft(place: RoundPlace, scale: TutoringScale) -> SftSettings:
    return SftSettings(
        **place.run("sft"),
        model=place.model("pretrain"),
        data=place.data("demonstrations.jsonl"),
        epochs=scale.sft_epochs,
        batch_size=8,
        optimiser=config.Optimiser(lr=1e-3, warmup=0.05, schedule="cosine"),
        evaluate_every=100,
        sampling=config.Sampling(temperature=0.0, max_new_tokens=scale.answer_tokens),
    )


def _reward(place: RoundPlace, scale: TutoringScale) -> RewardSettings:
    return RewardSettings(
        **place.run("reward"),
        model=place.model("sft"),
        data=str(place.folder / "judge" / "preferences.jsonl"),
        test=str(place.folder / "judge" / "test_votes.jsonl"),
        centre=place.data("demonstrations.jsonl"),
        epochs=scale.reward_epochs,
        batch_size=20,
        held_out=0.04,
        optimiser=config.Optimiser(lr=1e-3, warmup=0.1, weight_decay=0.01),
        evaluate_every=100,
    )


def _improve(place: RoundPlace, scale: TutoringScale) -> ImproveSettings:
    return ImproveSettings(
        **place.run("improve"),
        model=place.model("sft"),
        prompts=place.data("prompts_train.jsonl"),
        reward=(str(place.folder / "reward" / "model"),),
        recipe="ppo",
        set=(
            "shaping.normalise=running",  # otherwise the KL penalty would depend on the spread of the scores
            "penalty.coef=0.05",
            "update.epochs=2",
            "update.minibatches=2",
        ),
        critic_lr=3e-3,
        steps=scale.ppo_steps,
        batch_size=scale.ppo_batch,
        sampling=answer_sampling(scale),
        optimiser=config.Optimiser(lr=3e-4, eps=config.POLICY_EPS, warmup=0.05),
        watch=(f"gold/mean={GOLD}",),
    )


def _spread(prompts: list[Prompt], count: int) -> list[Prompt]:
    """Select `count` prompts with as many different topics and phrasings as possible."""
    order = sorted(range(len(prompts)), key=lambda i: (i * 0.6180339887) % 1.0)
    return [prompts[i] for i in order[:count]]
