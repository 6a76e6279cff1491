"""Demonstration on a real chat model: SmolLM2 learns to answer children's questions in plain words.

sample → judge → reward model → GRPO → evaluate, as settings of the workflows. Reward model and policy use LoRA, so
that they fit into the memory of a laptop.
"""

from dataclasses import dataclass

from tutelage.base import config
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.reward.settings import RewardSettings
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.worlds import ChildrensQuestions, World, clarity
from tutelage.demo.rounds.round import (
    DemoRound,
    RoundPlace,
    Story,
    Texts,
    answer_sampling,
    answers_to_judge,
    evaluation,
)
from tutelage.demo.rounds.simulated_study import Judging

GOLD = "tutelage.data.worlds:clarity"
STORY = Story(
    title="Teaching a chat model to talk to a child",
    about=(
        "SmolLM2, a chat model of 135 million parameters, answers questions that children ask. Raters compare its "
        "answers, and from their votes it learns what a ten-year-old can read: plain words, short sentences, a "
        "friendly tone, and an end."
    ),
    command="tutelage demo --world real",
    reference="SmolLM2",
)
RANK = 16


@dataclass(frozen=True, kw_only=True)
class RealScale:
    """Size of the round, and its model."""

    model: str = "smollm2"
    judged_prompts: int = 200
    """Questions whose completions are judged; training uses the whole train split."""
    answers: int = 4
    """Completions of each of them."""
    pairs: int = 6
    """Judged pairs of each question."""
    overlap: int = 5
    """Raters per pair; votes are cheaper than training the reward model on one more pair."""
    raters: int = 8
    reward_epochs: float = 1.0
    reward_batch: int = 12
    """Pairs of a reward-model step: all pairs of two questions, so that each completion is read once. With four
    questions, and thus half as many steps, the reward model had hardly learned for some seeds."""
    steps: int = 12
    batch: int = 9
    """Questions of a step, each with the recipe's number of completions."""
    answer_tokens: int = 64
    """Maximum length of a completion in tokens."""
    test_prompts: int = 100
    """Held-out questions of the evaluation."""
    test_answers: int = 2
    """Completions by each model of each of them: with one, the standard error of the gain is .14 standard
    deviations, with two .1."""
    neutral_tokens: int = 3000
    """Words and punctuation marks of unrelated text, on which perplexity is compared."""


def real(place: RoundPlace, scale: RealScale) -> DemoRound:
    """Round of this world in one place."""
    texts = Texts(judged_prompts=scale.judged_prompts, neutral_tokens=scale.neutral_tokens, seed=place.seed)
    return DemoRound(
        place=place,
        story=STORY,
        texts=texts,
        write=lambda: write_texts(place, texts),
        gold=clarity,
        sampling=answers_to_judge(place, place.model_at(scale.model), scale),
        judging=Judging(raters=scale.raters, overlap=scale.overlap, test_overlap=scale.overlap, seed=place.seed),
        fitting=_reward(place, scale),
        improving=_improve(place, scale),
        evaluation=evaluation(
            place,
            STORY,
            against=scale.model,
            reward=(f"gold={GOLD}", f"score={place.folder / 'reward' / 'model'}"),
            text=place.data("neutral.jsonl"),
            limit=scale.test_prompts,
            n=scale.test_answers,
            sampling=answer_sampling(scale),
        ),
    )


def write_texts(place: RoundPlace, texts: Texts) -> None:
    """Write the questions of both splits, and neutral text: the corpus of the tutoring world, which no stage reads."""
    questions = ChildrensQuestions(texts.seed)
    train = questions.prompts("train")
    write_jsonl(place.data("prompts_train.jsonl"), map(to_row, train))
    write_jsonl(place.data("prompts_held_out.jsonl"), map(to_row, questions.prompts("held_out")))
    write_jsonl(place.data("prompts_to_judge.jsonl"), map(to_row, train[: texts.judged_prompts]))
    neutral = World(texts.seed).corpus(texts.neutral_tokens)
    write_jsonl(place.data("neutral.jsonl"), ({"text": text} for text in neutral))


def _reward(place: RoundPlace, scale: RealScale) -> RewardSettings:
    return RewardSettings(
        **place.run("reward"),
        model=place.model_at(scale.model),
        data=str(place.folder / "judge" / "preferences.jsonl"),
        test=str(place.folder / "judge" / "test_votes.jsonl"),
        epochs=scale.reward_epochs,
        batch_size=scale.reward_batch,
        held_out=0.05,
        lora=config.Lora(rank=RANK),
        optimiser=config.Optimiser(lr=5e-4, warmup=0.1),
        evaluate_every=20,
    )


def _improve(place: RoundPlace, scale: RealScale) -> ImproveSettings:
    return ImproveSettings(
        **place.run("improve"),
        model=place.model_at(scale.model),
        prompts=place.data("prompts_train.jsonl"),
        reward=(str(place.folder / "reward" / "model"),),
        recipe="grpo",
        set=(
            "shaping.missing_end=none",  # the reward model scores the end that a truncated completion lacks
            "penalty.coef=0.08",
        ),
        steps=scale.steps,
        batch_size=scale.batch,
        sampling=answer_sampling(scale),
        lora=config.Lora(rank=RANK),
        optimiser=config.Optimiser(lr=5e-4, eps=config.POLICY_EPS, warmup=0.1),
        checkpoints=config.Checkpoints(every=6),  # steps are slow, and an adapter is small
        watch=(f"gold/mean={GOLD}",),
    )
