"""What workflows that train have in common: the open run, the budget of tokens, the final model and the summary."""

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tutelage import config
from tutelage.config.run import RunSettings
from tutelage.models.budget import Budget, automatic_budget
from tutelage.models.heads import ScalarModel
from tutelage.models.policy import Policy
from tutelage.train.run.drive import Training
from tutelage.train.run.folder import Run
from tutelage.train.run.lines import read_lines
from tutelage.train.run.profiling import profiled
from tutelage.train.run.trackers import trackers
from tutelage.workflows.results import MODEL, TrainingResult

log = logging.getLogger(__name__)
R = TypeVar("R", bound=TrainingResult)


class TokenLimit(Protocol):
    """Settings that may bound the tokens of a forward pass."""

    @property
    def tokens_at_once(self) -> int | None: ...


def remark(text: str) -> None:
    """Log a remark for the person who runs the workflow; an empty one is left out."""
    if text:
        log.info(text)


@contextmanager
def open_run(settings: RunSettings) -> Iterator[Run]:
    """The run directory of these settings: a new run, or one that goes on. A run may be finished already."""
    sinks = trackers(settings.trackers, settings.out, config.to_mapping(settings))
    keep = settings.checkpoints.keep
    with ExitStack() as stack:
        if settings.profile:
            sinks = (*sinks, stack.enter_context(profiled(settings.out)))
        yield stack.enter_context(
            Run.open(settings.out, settings, resume=settings.resume, keep=keep, trackers=sinks)
        )


def finished(run: Run, result: type[R]) -> Training[R]:
    """The training of a run that is finished already: no steps, and the result that summary.json holds."""
    remark(f"{run.path} is finished already.")
    return Training(None, lambda: result.read(run.path))


def token_budget(settings: TokenLimit, run: Run, *models: Policy | ScalarModel) -> Budget:
    """Tokens of one forward pass of `models`, which are trained together.

    A run that goes on keeps its budget; a new one takes the settings', or else what the memory allows.
    """
    left = run.last.get("tokens_at_once")
    if isinstance(left, int | float):
        return Budget(int(left))
    if settings.tokens_at_once is not None:
        return Budget(settings.tokens_at_once)
    first = models[0]
    tokens = automatic_budget(first.device, first.dtype, *(each.model for each in models))
    remark(f"Up to {tokens:,} tokens at once, by the memory that is left (--tokens-at-once).")
    return Budget(tokens)


def finish_run(
    run: Run, save: Callable[[Path], object], summary: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Write the final model to `model/`, then summary.json, which marks the run as finished. Returns the summary.

    The summary holds the newest value of every metric, what `summary` adds, and the peak memory of the process.
    """
    unfinished = run.path / ".model"
    shutil.rmtree(unfinished, ignore_errors=True)
    save(unfinished)
    shutil.rmtree(run.path / MODEL, ignore_errors=True)
    unfinished.rename(run.path / MODEL)
    run.finish(last_metrics(run.path) | dict(summary or {}) | {"peak_rss_mb": peak_memory_mb()})
    figures: dict[str, Any] = json.loads((run.path / "summary.json").read_text(encoding="utf-8"))
    return figures


def last_metrics(out: Path) -> dict[str, Any]:
    """The newest value of every metric in metrics.jsonl."""
    newest: dict[str, Any] = {}
    for row in read_lines(out / "metrics.jsonl"):
        newest |= row
    return newest


def peak_memory_mb() -> float:
    """The most memory that this process has held so far, in MiB."""
    import resource

    scale = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale, 1)
