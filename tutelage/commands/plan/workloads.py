"""Workloads: one step of a command in numbers, computed from the settings of the command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from tutelage.algorithms.override import override
from tutelage.algorithms.registry import recipe_named
from tutelage.algorithms.slots import GradientSteps, needs_greedy
from tutelage.base import config
from tutelage.base.config.bases import WeightSettings
from tutelage.base.errors import TutelageError
from tutelage.commands.plan.settings import RESULT
from tutelage.core.rows import EncodedRow
from tutelage.data.formats import load_demonstrations, load_preferences, load_prompts, load_steps
from tutelage.engines.choose import choose_dtype
from tutelage.engines.plans.workload import BatchShape, SamplingLoad, Transformer, Workload
from tutelage.models.backbone import load_tokenizer, pick_device
from tutelage.models.gguf_reader import description_of
from tutelage.models.outline import outline, outline_of_shape
from tutelage.rewards.names import reward_models
from tutelage.rollout.generator import encode_prompts
from tutelage.train.supervised.batches import encode_demonstrations, encode_preferences
from tutelage.train.supervised.step_reward import encode_rated

if TYPE_CHECKING:
    from tutelage.commands.distill.settings import DistillSettings
    from tutelage.commands.dpo.settings import DpoSettings
    from tutelage.commands.improve.settings import ImproveSettings
    from tutelage.commands.pretrain.settings import PretrainSettings
    from tutelage.commands.rejection.settings import RejectionSettings
    from tutelage.commands.reward.settings import RewardSettings
    from tutelage.commands.sft.settings import SftSettings

SAMPLE = 256
"""Rows of the data in which tokens are counted."""


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of prompts and responses; 0 to count them in the data, or in `records`, the rows that a run has read
    and trains on. `turns` are those of an episode, 0 for their limit, and `read` the tokens between two of them."""

    prompt: float = 0.0
    response: float = 0.0
    records: Sequence[Any] | None = None
    turns: float = 0.0
    read: float = float(RESULT)


@dataclass(frozen=True)
class PlannedRun:
    """A run in numbers: one step, the number of steps, and notes on what the numbers omit.

    `steps` is None if the data were not read.
    """

    model: config.Model
    work: Workload
    tokens_at_once: int | None
    steps: int | None
    notes: tuple[str, ...] = ()
    rereads: bool = False
    """Whether each turn of an episode reads its context again, whatever the engine."""


def run_of(settings: Any, lengths: Lengths) -> PlannedRun:
    """Return the run of a command's settings. Reads configurations, and the data if `lengths` leaves a length open."""
    for cls in type(settings).__mro__:
        if cls.__name__ in RUNS:
            return RUNS[cls.__name__](settings, lengths)
    raise TutelageError(f"{type(settings).__name__} cannot be planned.")


def _sft(settings: "SftSettings", lengths: Lengths) -> PlannedRun:
    rows: Sequence[EncodedRow] = ()
    count = None
    if not (lengths.prompt and lengths.response):
        records = lengths.records or load_demonstrations(settings.data, answers=settings.answers).records
        count = round(len(records) * (1 - settings.held_out))
        tokenizer = _tokenizer(settings.model)
        rows, _ = encode_demonstrations(records[:SAMPLE], tokenizer, settings.max_length)
    work = _work(settings, _batch(settings.batch_size, 1, rows, lengths))
    return _run(settings, work, _steps(count, settings.epochs, settings.batch_size))


def _pretrain(settings: "PretrainSettings", lengths: Lengths) -> PlannedRun:
    model = outline(settings.model) if settings.model else outline_of_shape(settings.shape)
    window = lengths.response or min(settings.max_length, settings.shape.context)
    batch = BatchShape(settings.batch_size, 1, 0.0, window)
    model_settings = config.Model(settings.model or "new", settings.dtype, settings.device, settings.engine)
    work = Workload(model, batch, half=_half(model_settings, model))
    return PlannedRun(model_settings, work, settings.tokens_at_once, None)


def _reward(settings: "RewardSettings", lengths: Lengths) -> PlannedRun:
    if settings.steps:
        return _step_reward(settings, lengths)
    batch, steps = _pairs(settings, settings.data, lengths)
    return _run(settings, replace(_work(settings, batch), is_scalar=True), steps)


def _step_reward(settings: "RewardSettings", lengths: Lengths) -> PlannedRun:
    rows: list[EncodedRow] = []
    count = None
    if not (lengths.prompt and lengths.response):
        records = lengths.records or load_steps(settings.data).records
        count = round(len(records) * (1 - settings.held_out))
        tokenizer = _tokenizer(settings.model)
        encoded, _ = encode_rated(records[:SAMPLE], settings.separator_text, tokenizer, settings.max_length)
        rows = [row for one in encoded for row in one.steps.contexts]
    work = replace(_work(settings, _batch(settings.batch_size, 1, rows, lengths)), is_scalar=True)
    return _run(settings, work, _steps(count, settings.epochs, settings.batch_size))


def _dpo(settings: "DpoSettings", lengths: Lengths) -> PlannedRun:
    if settings.data:
        batch, steps = _pairs(settings, settings.data, lengths)
        note = "the reference scores all pairs before the first step; its time is spread over the steps"
        return _run(settings, replace(_work(settings, batch), reference=1 / settings.epochs), steps, note)
    counted, count = _prompts(settings.prompts, settings.model, settings.sampling, lengths)
    work = _work(settings, BatchShape(settings.batch_size, 2, counted.prompt, counted.response))
    sampling = _sampling(work, settings.sampling, settings.samples / 2 / settings.epochs)
    rewards = _rewards(settings.reward)
    work = replace(work, sampling=sampling, reference=1.0, has_reference=True, rewards=rewards)
    prompts = settings.prompts_per_round or count
    return _run(settings, work, _steps(prompts, settings.epochs * settings.rounds, settings.batch_size))


def _rejection(settings: "RejectionSettings", lengths: Lengths) -> PlannedRun:
    counted, count = _prompts(settings.prompts, settings.model, settings.sampling, lengths)
    keep = settings.overall * settings.samples or settings.keep
    work = _work(settings, BatchShape(settings.batch_size / keep, keep, counted.prompt, counted.response))
    sampling = _sampling(work, settings.sampling, settings.samples / keep / settings.epochs)
    work = replace(work, sampling=sampling, rewards=_rewards(settings.reward))
    prompts = settings.prompts_per_round or count
    rows = None if prompts is None else round(prompts * keep)
    return _run(settings, work, _steps(rows, settings.epochs * settings.rounds, settings.batch_size))


def _distill(settings: "DistillSettings", lengths: Lengths) -> PlannedRun:
    recipe = override(recipe_named(settings.recipe), settings.set)
    counted, _ = _prompts(settings.prompts or settings.data, settings.model, settings.sampling, lengths)
    work = _work(settings, BatchShape(settings.batch_size, recipe.samples, counted.prompt, counted.response))
    sampling = _sampling(work, settings.sampling, settings.on_policy) if settings.on_policy else None
    rescorings = work.half * settings.on_policy
    work = replace(work, sampling=sampling, scorings=1 - settings.on_policy, rescorings=rescorings)
    if isinstance(recipe.update, GradientSteps):
        work = replace(work, epochs=recipe.update.epochs, updates=recipe.update.steps)
    if settings.is_served:
        return _run(settings, work, settings.steps, "the server of --teacher is not counted")
    return _run(settings, replace(work, teacher=outline(settings.teacher)), settings.steps)


def _improve(settings: "ImproveSettings", lengths: Lengths) -> PlannedRun:
    recipe = override(recipe_named(settings.recipe), settings.set)
    counted, _ = _prompts(settings.prompts, settings.model, settings.sampling, lengths)
    turns = (lengths.turns or float(settings.turns)) if settings.has_episodes else 1.0
    batch = BatchShape(settings.batch_size, recipe.samples, counted.prompt, turns * counted.response)
    work = _work(settings, replace(batch, read=(turns - 1) * lengths.read))
    notes = []
    if isinstance(recipe.update, GradientSteps):
        work = replace(work, epochs=recipe.update.epochs, updates=recipe.update.steps)
    else:
        work = replace(work, epochs=1 + 2 * recipe.update.cg, updates=1, can_shard=False)
        notes.append("a curvature product of the natural gradient is counted as two passes with gradients")
    if settings.has_episodes:
        notes.append(
            f"an episode is counted with {turns:g} turns of {counted.response:g} tokens and {lengths.read:g} tokens to "
            "read between two; --mean-turns, --response-tokens and --result-tokens give their means"
        )
    if recipe.dynamic_sampling:
        notes.append("dynamic sampling is counted with one round; every further round samples again")
    if recipe.critic and settings.critic == "network":
        work = replace(work, critic=outline(settings.critic_source))
    work = replace(
        work,
        sampling=_in_turns(
            _sampling(work, settings.sampling, 1 + needs_greedy(recipe) / recipe.samples), turns, counted, lengths.read
        ),
        reference=1.0,
        has_reference=True,
        scorings=float(settings.mismatched_by in ("recompute", "truncated")),
        rescorings=float(work.half and settings.mismatched_by is None),
        rewards=_rewards(settings.reward),
    )
    return replace(_run(settings, work, settings.steps, *notes), rereads=settings.deterministic)


def _in_turns(load: SamplingLoad, turns: float, mean: Lengths, read: float) -> SamplingLoad:
    """The sampling load of episodes of T turns of R tokens after Q tokens of a prompt, with r tokens between two: it
    reads (T − 1) r tokens, and if no context is kept again

        Σ (Q + (t − 1) R + (t − 2) r) = (T − 1) Q + T (T − 1) R / 2 + (T − 1) (T − 2) r / 2,  t = 2 … T
    """
    more = turns - 1
    again = more * mean.prompt + turns * more * mean.response / 2 + more * max(0.0, turns - 2) * read / 2
    return replace(load, limit=round(turns * load.limit), read=more * read, reread=again)


RUNS: Mapping[str, Callable[[Any, Lengths], PlannedRun]] = {
    "SftSettings": _sft,
    "PretrainSettings": _pretrain,
    "RewardSettings": _reward,
    "DpoSettings": _dpo,
    "RejectionSettings": _rejection,
    "DistillSettings": _distill,
    "ImproveSettings": _improve,
}
"""Functions that plan a run, by the name of its settings class, so that only the planned class is imported."""


def _work(settings: WeightSettings, batch: BatchShape) -> Workload:
    """Return the workload of a training step on a batch."""
    model = outline(settings.model.path)
    return Workload(model, batch, settings.lora.rank, _half(settings.model, model))


def _run(settings: WeightSettings, work: Workload, steps: int | None, *notes: str) -> PlannedRun:
    return PlannedRun(settings.model, work, settings.tokens_at_once, steps, notes)


def _half(model: config.Model, shape: Transformer) -> bool:
    """Whether matrix products are in bf16, on the device of the settings on this machine if they leave it open."""
    if model.dtype != "auto":
        return model.dtype == "bf16"
    return choose_dtype(model.dtype, pick_device(model.device), model.engine, shape.hidden) == torch.bfloat16


def _sampling(work: Workload, sampling: config.Sampling, rounds: float) -> SamplingLoad:
    """Return the sampling load. Under autocast every decoded token reads the float32 weights, writes them in bf16 and
    reads those."""
    return SamplingLoad(sampling.max_new_tokens, rounds, weights=8.0 if work.half else 4.0)


def _rewards(names: Sequence[str]) -> tuple[Any, ...]:
    """Return the outlines of the reward models of a run; reward functions are free here."""
    return tuple(map(outline, reward_models(names)))


def _steps(count: int | None, epochs: float, batch_size: int) -> int | None:
    return None if count is None else max(1, round(epochs * -(-count // batch_size)))


def _tokenizer(model: config.Model) -> Any:
    return load_tokenizer(model.path, **description_of(model.path))


def _batch(prompts: float, samples: float, rows: Sequence[EncodedRow], lengths: Lengths) -> BatchShape:
    """Return a batch with the given mean lengths, by default those of some rows."""
    prompt = lengths.prompt or fmean(len(row.prompt) for row in rows)
    response = lengths.response or fmean(len(row.response) for row in rows)
    return BatchShape(prompts, samples, prompt, response)


def _pairs(settings: "RewardSettings | DpoSettings", data: str, lengths: Lengths) -> tuple[BatchShape, int | None]:
    """Return a batch of pairs, and the number of steps if the data were read."""
    rows: list[EncodedRow] = []
    count = None
    if not (lengths.prompt and lengths.response):
        records = lengths.records or load_preferences(data).records
        count = round(len(records) * (1 - settings.held_out))
        tokenizer = _tokenizer(settings.model)
        pairs, _ = encode_preferences(records[:SAMPLE], tokenizer, settings.max_length)
        rows = [row for pair in pairs for row in (pair.chosen, pair.rejected)]
    batch = _batch(settings.batch_size, 2, rows, lengths)
    return batch, _steps(count, settings.epochs, settings.batch_size)


def _prompts(
    source: str, model: config.Model, sampling: config.Sampling, lengths: Lengths
) -> tuple[Lengths, int | None]:
    """Return the mean tokens of the prompts of a file, with responses at their limit, and the number of prompts."""
    response = lengths.response or float(sampling.max_new_tokens)
    if lengths.prompt:
        return Lengths(lengths.prompt, response), None
    records = lengths.records or load_prompts(source).records
    encoded = encode_prompts(records[:SAMPLE], _tokenizer(model))
    return Lengths(fmean(len(prompt.tokens) for prompt in encoded), response), len(records)
