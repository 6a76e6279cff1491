"""What the verbs that train have in common: the open run, a few words on the terminal, the final model and summary."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tutelage import config
from tutelage.config.run import RunSettings

if TYPE_CHECKING:
    from tutelage.models.budget import Budget
    from tutelage.models.heads import ScalarModel
    from tutelage.models.policy import Policy
    from tutelage.train.run.folder import Run

MODEL = "model"


class Talkative(Protocol):
    """Settings of a verb that can be asked to be quiet."""

    @property
    def quiet(self) -> bool: ...


class Bounded(Talkative, Protocol):
    """Settings of a verb that bounds the tokens of a forward pass."""

    @property
    def tokens_at_once(self) -> int | None: ...


def say(settings: Talkative, text: str) -> None:
    """A line for the person at the terminal, unless they asked for quiet."""
    if text and not settings.quiet:
        print(text, file=sys.stderr)


@contextmanager
def begin(settings: RunSettings) -> Iterator["Run | None"]:
    """The run of these settings, begun or gone on with; None when it is finished already, which is said."""
    from tutelage.train.run.folder import Run
    from tutelage.train.run.profiling import profiled
    from tutelage.train.run.trackers import trackers

    sinks = trackers(settings.trackers, settings.out, config.to_mapping(settings))
    keep = settings.checkpoints.keep
    with ExitStack() as stack:
        if settings.profile:
            sinks = (*sinks, stack.enter_context(profiled(settings.out)))
        run = stack.enter_context(
            Run.open(settings.out, settings, resume=settings.resume, keep=keep, trackers=sinks)
        )
        if run.finished:
            say(settings, f"{settings.out} is finished already.")
        yield None if run.finished else run


def budget_of(settings: Bounded, run: "Run", *models: "Policy | ScalarModel") -> "Budget":
    """How many tokens a forward pass of `models`, all of them trained together, may hold: as many as when the run was
    left, as many as were asked for, or as many as there is memory for, which is said."""
    from tutelage.models.budget import Budget, automatic_budget

    left = run.last.get("tokens_at_once")
    if isinstance(left, int | float):
        return Budget(int(left))
    if settings.tokens_at_once is not None:
        return Budget(settings.tokens_at_once)
    first = models[0]
    tokens = automatic_budget(first.device, first.dtype, *(each.model for each in models))
    say(settings, f"Up to {tokens:,} tokens at once, by the memory that is left (--tokens-at-once).")
    return Budget(tokens)


def finish(
    run: "Run", save: Callable[[Path], object], summary: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Write the final model to `model/` and the summary with the last metrics, which marks the run as finished."""
    unfinished = run.path / ".model"
    shutil.rmtree(unfinished, ignore_errors=True)
    save(unfinished)
    shutil.rmtree(run.path / MODEL, ignore_errors=True)
    unfinished.rename(run.path / MODEL)
    figures = last_metrics(run.path) | dict(summary or {}) | {"peak_rss_mb": peak_memory_mb()}
    run.finish(figures)
    return figures


def last_metrics(out: Path) -> dict[str, Any]:
    """The newest value of every metric in metrics.jsonl."""
    from tutelage.train.run.lines import read_lines

    newest: dict[str, Any] = {}
    for row in read_lines(out / "metrics.jsonl"):
        newest |= row
    return newest


def peak_memory_mb() -> float:
    """The most memory this process has held so far, in MiB."""
    import resource

    scale = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale, 1)
