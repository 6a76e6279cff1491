"""Training loops with logging and checkpoints (`Loop`), and with a final result (`Training`)."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from tutelage.base import config
from tutelage.base.progress.phases import phase
from tutelage.engines.choose import products_state, resume_products
from tutelage.engines.ranks.sharded_tensors import save_shards
from tutelage.rollout.generator import RolloutError
from tutelage.train.learner import SHARDS, Learner, Step
from tutelage.train.run.checkpoints import metric_of
from tutelage.train.run.folder import Run

STATE = "state.pt"
PRODUCTS = "products.json"
"""File of a checkpoint with the libraries that computed matrix products."""
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Monitor:
    """Callbacks of a training loop.

    `look` is called after every step and returns additional metrics, if any. `metric` selects the best checkpoint
    (lower is better); with `keep_best`, every improvement is checkpointed. `enough` stops the run early by returning
    true.
    """

    look: Callable[[Step], Mapping[str, float]] = lambda step: {}
    metric: str | None = None
    keep_best: bool = False
    enough: Callable[[], bool] = lambda: False


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Remaining steps of a run. Iteration takes them, logs each to the run and writes checkpoints.

    A step is yielded with all its metrics, after logging and any checkpoint. A checkpoint holds the output of `save`
    (loadable with plain `from_pretrained`) and the state of the learner.
    """

    run: Run
    learner: Learner
    steps: Iterator[Step]
    label: str
    """Name shown in the progress."""
    save: Callable[[Path], object]
    """Writes the model into a folder."""
    extra_state: Callable[[Step], Mapping[str, Any]] = lambda step: {}
    """Additional state of a step for checkpoints."""
    checkpoints: config.Checkpoints = field(default_factory=config.Checkpoints)
    show: tuple[str, ...] = ("loss",)
    """Metrics shown in the progress, most important first."""
    monitor: Monitor = field(default_factory=Monitor)
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext
    """Context in which `save`, called on rank 0, has all weights of the model."""

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self.learner.total

    @property
    def index(self) -> int:
        """Number of completed steps."""
        return self.learner.step

    def __iter__(self) -> Iterator[Step]:
        """Take the remaining steps, one at a time. A new iteration continues after the last completed step.

        If a rollout fails, the last step is saved, and the RolloutError includes the command to resume.
        """
        if self.monitor.enough():  # a run that stopped early may only need `finish`
            return
        last: Step | None = None
        ranks = self.run.ranks
        try:
            for step in self.steps:
                last = step
                try:
                    metrics = {**step.metrics, **self.monitor.look(step)}
                except RolloutError:
                    self.run.log(step.index, step.metrics)
                    raise
                self.run.log(step.index, metrics)
                done = step.index >= self.total or self.monitor.enough()
                last = step = replace(step, metrics=metrics)
                due = done or self.checkpoints.due(step.index)
                if due or ranks.any(ranks.is_first and self._is_best(step)):
                    self.checkpoint(step)
                yield step
                if done:
                    return
        except RolloutError as error:
            if last is None:
                raise
            self.checkpoint(last)
            raise RolloutError(
                f"{error} Everything up to step {last.index} is saved; continue with: {self.run.resume_command}"
            ) from error

    @phase("save")
    def checkpoint(self, step: Step) -> None:
        """Write a checkpoint of the last step, `step`. Every rank writes its shards."""
        state = {"learner": self.learner.state(), "extra": dict(self.extra_state(step))}
        shards = self.learner.shards()

        def save(folder: Path) -> None:
            self.save(folder)
            torch.save(state, folder / STATE)
            products = products_state()
            if products is not None:
                (folder / PRODUCTS).write_text(json.dumps(products) + "\n", encoding="utf-8")

        def share(folder: Path) -> None:
            self.run.ranks.barrier()  # rank 0 creates the folder
            save_shards(shards, folder / SHARDS, self.run.ranks)

        with self.gathered():
            self.run.checkpoint(step.index, save, self._metric(step), share if shards else None)

    def _metric(self, step: Step) -> float | None:
        return step.metrics.get(self.monitor.metric) if self.monitor.metric else None

    def _is_best(self, step: Step) -> bool:
        value = self._metric(step)
        if not self.monitor.keep_best or value is None:
            return False
        best = self.run.best()
        lowest = metric_of(best) if best else None
        return lowest is None or value < lowest


@dataclass(frozen=True)
class Training(Generic[R_co]):
    """Open training run: iterate over its steps, then get the result from `finish`.

        with prepare_sft(settings) as training:
            for step in training:
                print(step.index, step.metrics["loss"])
            result = training.finish()

    A finished run has no loop and no steps; its result is read from its folder.
    """

    loop: Loop | None
    conclude: Callable[[], R_co]
    """Writes the final model and summary.json; returns the result."""
    announcement: Callable[[int], str] = lambda steps: ""
    """A sentence about the steps that are left: their tokens, time and memory."""

    def __iter__(self) -> Iterator[Step]:
        return iter(self.loop or ())

    def finish(self) -> R_co:
        """Take the remaining steps, then write the final model and the summary."""
        for _ in self:
            pass
        return self.conclude()


def recipe_state(step: Step) -> dict[str, Any]:
    """Extra state of an on-policy run: the state of its recipe."""
    return {} if step.recipe is None else {"recipe": step.recipe.to_dict()}


def resume_libraries(run: Run) -> str:
    """Select the matrix-product libraries of the latest checkpoint. Returns a warning if others are used."""
    latest = run.latest()
    if latest is None or not (latest / PRODUCTS).exists():
        return ""
    return resume_products(json.loads((latest / PRODUCTS).read_text(encoding="utf-8")))


def load_state(run: Run, learner: Learner) -> Mapping[str, Any]:
    """Restore the learner from the latest checkpoint. Returns the extra state, empty for a new run."""
    latest = run.latest()
    if latest is None:
        return {}
    return learner.load(latest / STATE)["extra"]
