"""Shared parts of training commands: opening of runs, checks before the first step, the token budget, samples, the
final model and the summary."""

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from tutelage.base import config
from tutelage.base.config.bases import RunSettings
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.commands import plan
from tutelage.commands.results import MODEL, TrainingResult
from tutelage.data.chat_template import dated
from tutelage.data.formats import LoadedRecords
from tutelage.data.record_files import Record, fingerprint
from tutelage.data.records import Demonstration, Preference, Prompt
from tutelage.engines.choose import release_memory
from tutelage.engines.plans.token_budget import scoring_tokens
from tutelage.engines.ranks.processes import is_restart, join, ranks_on_this_machine
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.budget import Budget, RowCost, automatic_budget
from tutelage.models.heads import ScalarModel
from tutelage.models.outline import outline_of
from tutelage.models.policy import Policy
from tutelage.report.model_card import write_model_card
from tutelage.rewards.factory import judging_costs
from tutelage.rollout.generator import EncodedPrompt
from tutelage.train.learner import Step
from tutelage.train.run.folder import Follower, Opening, Run
from tutelage.train.run.json_lines import read_lines
from tutelage.train.run.loop import Training, resume_libraries
from tutelage.train.run.profiler import profiled
from tutelage.train.run.trackers import start_tracker

log = logging.getLogger(__name__)
STATE = 3 * 4
"""Bytes in a checkpoint per trained weight, in addition to the model: the weight and its two moments in float32."""
SAMPLES = 4
"""Completions of a step to write for inspection."""
R = TypeVar("R", bound=TrainingResult)
Loaded = TypeVar("Loaded", bound=LoadedRecords[Any])
T = TypeVar("T")


def remark(text: str) -> None:
    """Log a remark for the user of the workflow; an empty one is skipped."""
    if text:
        log.info(text)


def announce(loaded: Loaded) -> Loaded:
    """Remark on what was read from a file, and what of it is not used; returns the same records."""
    remark(loaded.describe())
    return loaded


def announce_judging(rewards: Sequence[str], prompts: Sequence[Prompt], completions: int) -> None:
    """Remark on what the judges among rewards cost for this number of completions of every prompt."""
    for line in judging_costs(rewards, prompts, completions):
        remark(line)


@contextmanager
def open_run(settings: RunSettings, *data: Iterable[Record | str]) -> Iterator[Run]:
    """Open the run directory of these settings: a new run, or one to resume, which refuses data other than its own. The
    run may already be finished.

    With several ranks, rank 0 writes it. Raises TutelageError if the ranks were started with different settings.
    """
    ranks = join()
    theirs = ranks.shared(lambda: settings)
    differing = [one for one in config.difference(theirs, settings) if one.key != "quiet"]
    ranks.together(lambda: _refuse(differing, ranks))
    with ExitStack() as stack:
        own: list[Run] = []

        def open_first() -> Opening:
            own.append(_opened(settings, data, ranks, stack))
            return Opening.of(own[0])

        opening = ranks.shared(open_first)
        run = own[0] if own else Follower(opening, ranks)
        change = "" if run.finished else resume_libraries(run)
        remark(change if ranks.is_first else "")
        stack.enter_context(dated(run.date))
        yield run


def _opened(settings: RunSettings, data: Sequence[Iterable[Record | str]], ranks: Ranks, stack: ExitStack) -> Run:
    """Open the run directory, which this process writes and `stack` closes. Trackers and the profiler, which write into
    it, start afterwards, and not for a finished run."""
    run = stack.enter_context(
        Run.open(
            settings.out,
            settings,
            resume=settings.resume or is_restart(),
            data=fingerprint(*data),
            keep=settings.checkpoints.keep,
            ranks=ranks,
        )
    )
    if run.finished:
        return run
    for name in settings.trackers:
        tracker = start_tracker(name, run.path, config.to_mapping(settings), run.past)
        stack.callback(tracker.close)
        run.add_tracker(tracker)
    if settings.profile:
        run.add_tracker(stack.enter_context(profiled(run.path)))
    return run


def _refuse(differing: Sequence[object], ranks: Ranks) -> None:
    if differing:
        raise TutelageError(
            f"The settings of rank {ranks.rank} differ from those of rank 0 (rank 0 against rank {ranks.rank}): "
            f"{', '.join(map(str, differing))}. Start all ranks with one command."
        )


@contextmanager
def open_training(
    settings: RunSettings, result: type[R], start: Callable[[Run], Training[R]], *data: Iterable[Record | str]
) -> Iterator[Training[R]]:
    """Open the training that `start` returns for the run directory of these settings (see `open_run`); for a finished
    run, one without steps, with the result of summary.json."""
    with open_run(settings, *data) as run:
        if run.finished:
            remark(f"{run.path} is finished already.")
            yield Training(None, lambda: result.read(run.path))
        else:
            yield replace(start(run), announcement=partial(_announcement, settings, data[0]))


def _announcement(settings: RunSettings, records: object, steps: int) -> str:
    """Return a sentence about a run by its plan; "" for several processes, which the plan of this machine does not
    count. The plan is a courtesy: an error in it must not fail the run."""
    if ranks_on_this_machine() > 1 or not isinstance(records, Sequence):
        return ""
    try:
        text: str = plan.announcement(settings, records, steps)
    except Exception as error:
        text = f"The time of the run could not be estimated: {error}"
    return text


def check_disk(run: Run, *models: Policy | ScalarModel) -> None:
    """Refuse to start a run whose first checkpoint and final model do not fit on the disk.

    A checkpoint holds the trained weights and the optimiser state, the final model all weights. A resumed run is not
    checked: it has its checkpoints. Raises TutelageError with the available and the required space.
    """
    if run.start:
        return
    weights = [weight for each in models for weight in each.model.parameters()]
    trained = [weight for weight in weights if weight.requires_grad]
    needed = sum(each.numel() * (each.element_size() + STATE) for each in trained)
    needed += sum(each.numel() * each.element_size() for each in weights)
    free = shutil.disk_usage(run.path).free
    if free < needed:
        raise TutelageError(
            f"The disk of {run.path} has {free / 1e6:,.1f} MB free, but a checkpoint with the final model takes at "
            f"least {needed / 1e6:,.1f} MB: free space and start with --resume, or choose another --out."
        )


def remark_batch(batch_size: int, rows: int, what: str = "rows") -> None:
    """Remark on a batch larger than the data, for which every step takes all rows."""
    if rows < batch_size:
        remark(f"--batch-size is {batch_size}, but there are only {rows} {what}: every step takes all of them.")


def evaluation_rows(held_out: Sequence[T], most: int) -> Sequence[T]:
    """The held-out rows that evaluations during training read: all, or `most` evenly spaced ones, of which a remark
    tells. 0 is no limit."""
    count = len(held_out)
    if not 0 < most < count:
        return held_out
    remark(f"Each evaluation reads {most:,} of {counted(count, 'held-out row')} (set with --evaluate-rows).")
    return [held_out[number * count // most] for number in range(most)]


def check_weights(rows: Sequence[Preference | Demonstration], source: str) -> None:
    """Refuse rows whose weights are all 0, which would have no effect."""
    if rows and not any(row.weight for row in rows):
        raise TutelageError(
            f"Every row of {source} has the weight 0, so training would have no effect: correct the column weight, or "
            "remove it."
        )


def fitting_prompts(policy: Policy, prompts: Sequence[EncodedPrompt], limit: int) -> list[EncodedPrompt]:
    """Return the prompts that leave room for a completion of `limit` tokens; a remark counts the others.

    Raises TutelageError if none does.
    """
    room = (policy.context or 1 << 30) - limit
    fitting = [each for each in prompts if len(each.tokens) <= room]
    if not fitting:
        shortest = min((len(each.tokens) for each in prompts), default=0)
        smaller = "Set a smaller --sampling.max-new-tokens."
        longer = "Shorten the prompts and the tools that they offer, or choose a model with a longer context."
        raise TutelageError(
            f"No prompt fits: the model has {counted(room + limit, 'position')}, of which {limit} are reserved for the "
            f"completion, and the shortest prompt has {counted(shortest, 'token')}. "
            f"{smaller if shortest < room + limit else longer}"
        )
    if len(fitting) < len(prompts):
        missing = len(prompts) - len(fitting)
        remark(f"{counted(missing, 'prompt')} left out: longer than {counted(room, 'token')}.")
    return fitting


def token_budget(settings: RunSettings, run: Run, *models: Policy | ScalarModel, group: int = 0) -> Budget:
    """Return the token budget of a forward pass of `models`, which are trained together.

    `group`: tokens of a prompt with its responses, if they share it (see `engines.plans.token_budget.group_tokens`). A
    resumed run keeps its budget, or takes that of the settings if it is smaller; a new one takes that of the settings,
    or else as much as memory allows. Raises TutelageError if the disk has no space for the run.
    """
    check_disk(run, *models)
    first = models[0]
    candidates = (settings.tokens_at_once, run.last.get("tokens_at_once"))
    bounds = [int(bound) for bound in candidates if isinstance(bound, int | float)]
    ranks = run.ranks
    cost = _operations(models) if ranks.size > 1 else None
    if bounds:
        tokens = min(bounds)
    else:
        tokens = _automatic_tokens(settings, run, models, group)
        remark(f"Micro-batch: up to {counted(tokens, 'token')} (auto; set with --tokens-at-once).")
    scoring = _scoring_tokens(models, tokens) if settings.tokens_at_once is None else tokens

    def remedy() -> str:
        return plan.change_that_fits(settings, first.device)

    return Budget(tokens, ranks, remedy, first.passes, cost, scoring)


def _automatic_tokens(settings: RunSettings, run: Run, models: Sequence[Policy | ScalarModel], group: int) -> int:
    """Return the tokens of a pass by the available memory: the minimum over ranks."""
    first = models[0]
    own = automatic_budget(
        first.device,
        first.dtype,
        *(each.model for each in models),
        shared_by=ranks_on_this_machine() if first.device.type == "cpu" else 1,
        checkpointing=settings.activation_checkpointing,
        group=group,
    )
    return int(-run.ranks.largest(-own))


def _scoring_tokens(models: Sequence[Policy | ScalarModel], tokens: int) -> int:
    """Return the tokens of a pass without gradients: see `engines.plans.token_budget.scoring_tokens`."""
    layers = min(outline_of(each.model).layers for each in models)
    half, on_cpu = models[0].dtype == torch.bfloat16, models[0].device.type == "cpu"
    return scoring_tokens(tokens, layers=layers, half=half, on_cpu=on_cpu)


def _operations(models: Sequence[Policy | ScalarModel]) -> RowCost:
    """Return the cost of passes through all of `models` over a row, in operations.

    A response token, which gets logits, costs more: up to several times the layers of a small model with a large
    vocabulary.
    """
    outlines = [outline_of(each.model) for each in models]

    def cost(tokens: int, response: int) -> float:
        pairs = tokens * (tokens + 1) / 2
        return sum(one.forward(tokens, pairs, response) for one in outlines)

    return cost


def write_samples(run: Run, step: Step, every: int, *, scores: bool = True) -> None:
    """Write a few completions of the first step and of every `every` steps, with their scores if any."""
    if step.sample is None or (step.index > 1 and step.index % max(1, every)):
        return
    rows = [{"prompt": prompt, "completion": text} for prompt, text in step.texts[:SAMPLES]]
    if scores:
        values = step.sample.score[:SAMPLES].tolist()
        rows = [row | {"score": score} for row, score in zip(rows, values, strict=True)]
    run.samples(step.index, rows)


@phase("save")
def finish_run(run: Run, model: Policy | ScalarModel, summary: Mapping[str, object], result: type[R]) -> R:
    """Write the final model, whose weights are gathered, to `model/`, then summary.json, which marks the run as
    finished, then the model card. Returns the result of the run.

    The summary holds the latest value of every metric, the entries of `summary`, and the peak memory of the process.
    Raises TutelageError if the saved model computes differently from `model`: the run then stays unfinished.
    """
    return result(run.path, run.ranks.shared(lambda: _write_final(run, model, summary)))


def conclusion(
    run: Run, policy: Policy, result: type[R], figures: Callable[[], Mapping[str, object]]
) -> Callable[[], R]:
    """Return the function that finishes the run of a policy: it measures `figures` and calls `finish_run`."""

    def conclude() -> R:
        summary = figures()
        with policy.gathered_to_save():
            return finish_run(run, policy, summary, result)

    return conclude


def _write_final(run: Run, model: Policy | ScalarModel, summary: Mapping[str, object]) -> dict[str, Any]:
    unfinished = run.path / ".model"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        model.save_whole(unfinished)
        release_memory()  # the saved model is loaded in addition to the trained one
        model.verify(unfinished)
    except TutelageError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise TutelageError(
            f"{error} The run is therefore not finished; the trained weights are in {run.latest()}."
        ) from error
    shutil.rmtree(run.path / MODEL, ignore_errors=True)
    unfinished.rename(run.path / MODEL)
    run.finish(last_metrics(run.path) | dict(summary) | {"peak_rss_mb": peak_memory_mb()})
    _write_card(run.path)
    return json.loads((run.path / "summary.json").read_text(encoding="utf-8"))


def _write_card(out: Path) -> None:
    """Write the model card of a finished run. It reads other folders, in any state: an error there must not fail the
    run."""
    try:
        write_model_card(out)
    except Exception as error:
        remark(f"The card of the model in {out} could not be written: {error}")


def last_metrics(out: Path) -> dict[str, Any]:
    """Return the latest value of every metric in metrics.jsonl."""
    newest: dict[str, Any] = {}
    for row in read_lines(out / "metrics.jsonl"):
        newest |= row
    return newest


def peak_memory_mb() -> float:
    """Return the peak memory of this process so far, in MiB."""
    import resource

    scale = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale, 1)
