"""A GRPO step of Qwen3-0.6B, full: 8 prompts of 512 tokens × 8 completions of 256; ours by phases, TRL's as a whole."""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from bench.gpu.decoding_rates import TINY_CACHE
from bench.gpu.random_models import SPECIAL, policy, random_model, random_prompts, settings_of, words
from bench.gpu.stopwatch import forget_peak, peak_gib, synchronise
from bench.gpu.updates import learner_of
from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner

P = ParamSpec("P")
T = TypeVar("T")

TOKENS = 16_384
"""Tokens of a part of the update."""
STEPS = 3


def sizes(tiny: bool) -> tuple[int, int, int, int]:
    """Prompts, tokens of each, completions to each, tokens of those."""
    return (2, 12, 2, 6) if tiny else (8, 512, 8, 256)


def measure(device: str, tiny: bool, subject: str) -> dict[str, float]:
    """Seconds of the rollout, of its log-probabilities and of one update with the clipped surrogate."""
    prompts, length, samples, limit = sizes(tiny)
    own = policy(random_model(settings_of("Qwen3-0.6B", tiny), device, torch.float32), subject)
    asked = random_prompts(own.vocabulary, prompts, length)
    sampling = config.Sampling(max_new_tokens=limit)
    learner = learner_of(own)
    seconds: dict[str, list[float]] = {"generate": [], "score": [], "update": []}
    forget_peak(device)
    for number in range(1 if subject == "plain" else STEPS):  # eager decoding is too slow to be repeated
        rollout = _timed(seconds["generate"], device, own.generate, asked, samples, sampling, seed=number)
        old = _timed(seconds["score"], device, _log_probabilities, own, rollout)
        _timed(seconds["update"], device, _update, own, learner, rollout, old)
    figures = {f"{name}_seconds": statistics.median(each[1:] or each) for name, each in seconds.items()}
    firsts = {f"first_{name}_seconds": each[0] for name, each in seconds.items()}
    return figures | firsts | {"step_seconds": sum(figures.values()), "peak_gib": peak_gib(device)}


def _timed(seconds: list[float], device: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of some work, whose seconds are noted."""
    synchronise(device)
    started = time.perf_counter()
    result = work(*args, **kwargs)
    synchronise(device)
    seconds.append(time.perf_counter() - started)
    return result


@torch.no_grad()
def _log_probabilities(own: Policy, rollout: Rollout) -> Tensor:
    """Log-probabilities of the trainer before the update. Float[B, R]"""
    old = torch.zeros_like(rollout.logp)
    for index in own.split(rollout, TOKENS):
        old[index.to(old.device)] = own.scores(rollout.rows(index)).logp
    return old


def _update(own: Policy, learner: Learner, rollout: Rollout, old: Tensor) -> None:
    """One optimiser step on the clipped surrogate, with random advantages."""
    numbers = torch.Generator().manual_seed(learner.step)
    advantage = torch.randn(len(rollout), 1, generator=numbers).to(old.device)
    for index in own.split(rollout, TOKENS):
        part, at = rollout.rows(index), index.to(old.device)
        ratio = (own.scores(part).logp - old[at]).exp()
        gain = torch.minimum(ratio * advantage[at], ratio.clamp(0.8, 1.2) * advantage[at])
        own.backward(-(gain * part.mask).sum() / rollout.mask.sum())
    learner.update()


def trl(device: str, tiny: bool, subject: str) -> dict[str, float]:
    """TRL's GRPOTrainer with the same sizes, by `generate` or by continuous batching; a reward of the length alone.

    Parts are two groups, 12,288 tokens. Without β there is no reference, as in `measure`.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from bench.theirs import StepClock, logged

    prompts, length, samples, limit = sizes(tiny)
    settings = settings_of("Qwen3-0.6B", tiny)
    model = random_model(settings, device, torch.float32)
    asked = random_prompts(settings.vocab_size, prompts, length)
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        options = GRPOConfig(
            output_dir=folder,
            use_cpu=device == "cpu",
            bf16=True,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=1,
            per_device_train_batch_size=2 * samples,
            gradient_accumulation_steps=prompts // 2,
            num_generations=samples,
            max_completion_length=limit,
            max_steps=2,
            beta=0.0,
            loss_type="grpo",
            temperature=1.0,
            learning_rate=1e-5,
            use_transformers_continuous_batching=subject == "trl-continuous",
            transformers_continuous_batching_config=dict(TINY_CACHE) if tiny else None,
        )
        trainer = GRPOTrainer(
            model=model,
            processing_class=words(settings.vocab_size),
            reward_funcs=reward_of_length,
            train_dataset=Dataset.from_list([{"prompt": " ".join(map(str, each))} for each in asked.tokens]),
            args=options,
            callbacks=[clock],
        )
        forget_peak(device)
        trainer.train()
    return {
        "first_seconds": clock.ended[0] - clock.started,
        "step_seconds": statistics.median(clock.durations()),
        "mean_length": statistics.fmean(logged(trainer, "completions/mean_length")),
        "peak_gib": peak_gib(device),
    }


def reward_of_length(completions: list[str], **_: object) -> list[float]:
    """A constant for each length."""
    return [float(len(each.split()) % 7 + SPECIAL) for each in completions]
