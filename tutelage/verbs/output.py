"""What the verbs have in common at their end: the final model, the summary, a few words on the terminal."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tutelage.train.run import Run

MODEL = "model"


class Talkative(Protocol):
    """Settings of a verb that can be asked to be quiet."""

    @property
    def quiet(self) -> bool: ...


def say(settings: Talkative, text: str) -> None:
    """A line for the person at the terminal, unless they asked for quiet."""
    if text and not settings.quiet:
        print(text, file=sys.stderr)


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
    newest: dict[str, Any] = {}
    file = out / "metrics.jsonl"
    for line in file.read_text().splitlines() if file.is_file() else ():
        newest |= json.loads(line)
    return newest


def peak_memory_mb() -> float:
    """The most memory this process has held so far, in MiB."""
    import resource

    scale = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale, 1)
