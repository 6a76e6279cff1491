"""The edge around a training loop: a `Loop` logs steps and keeps checkpoints, a `Training` also ends in a result."""

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
"""The file of a checkpoint that tells which libraries computed the matrix products."""
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Monitor:
    """Actions beside the training steps.

    `look` is called after every step and returns further metrics, mostly none; `metric` names the one by which the
    best checkpoint is chosen (lower is better), and with `keep_best` a checkpoint is written whenever it is better
    than ever; `enough` ends the run early when it returns true.
    """

    look: Callable[[Step], Mapping[str, float]] = lambda step: {}
    metric: str | None = None
    keep_best: bool = False
    enough: Callable[[], bool] = lambda: False


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The remaining steps of a run. Iterating over a loop takes them, logs each to the run and writes checkpoints.

    A step is yielded with all its metrics, after it was logged and saved where a checkpoint was due. Every checkpoint
    holds what `save` writes (loadable with plain `from_pretrained`) and the state of the learner.
    """

    run: Run
    learner: Learner
    steps: Iterator[Step]
    label: str
    """Name of the loop in its progress."""
    save: Callable[[Path], object]
    """Writes the model into a folder."""
    extra_state: Callable[[Step], Mapping[str, Any]] = lambda step: {}
    """What a run must remember of a step beside the state of the learner, for checkpoints."""
    checkpoints: config.Checkpoints = field(default_factory=config.Checkpoints)
    show: tuple[str, ...] = ("loss",)
    """Metrics that its progress shows, the most important first."""
    monitor: Monitor = field(default_factory=Monitor)
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext
    """The context in which `save`, which rank 0 calls, has all weights of the model."""

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.learner.total

    @property
    def index(self) -> int:
        """Steps that are done."""
        return self.learner.step

    def __iter__(self) -> Iterator[Step]:
        """Take the remaining steps, one at a time. Iterating again goes on where an earlier iteration stopped.

        Where a rollout cannot be had, the last step is saved, and the RolloutError says how to go on.
        """
        if self.monitor.enough():  # a run that ended early may only have to be finished
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
                f"{error} Everything up to step {last.index} is saved; go on with: {self.run.resume_command}"
            ) from error

    @phase("save")
    def checkpoint(self, step: Step) -> None:
        """Write a checkpoint of the last step, which is `step`. Every rank writes what it has of tensors in shards."""
        state = {"learner": self.learner.state(), "extra": dict(self.extra_state(step))}
        shards = self.learner.shards()

        def save(folder: Path) -> None:
            self.save(folder)
            torch.save(state, folder / STATE)
            products = products_state()
            if products is not None:
                (folder / PRODUCTS).write_text(json.dumps(products) + "\n", encoding="utf-8")

        def share(folder: Path) -> None:
            self.run.ranks.barrier()  # rank 0 makes the folder
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
    """An open training run: iterate over its steps, then take the result with `finish`.

        with prepare_sft(settings) as training:
            for step in training:
                print(step.index, step.metrics["loss"])
            result = training.finish()

    A run that is finished already has no loop and no steps; its result is read from its folder.
    """

    loop: Loop | None
    conclude: Callable[[], R_co]
    """Writes the final model and summary.json; returns the result."""

    def __iter__(self) -> Iterator[Step]:
        """The remaining steps."""
        return iter(self.loop or ())

    def finish(self) -> R_co:
        """Take the steps that remain, then write the final model and the summary."""
        for _ in self:
            pass
        return self.conclude()


def recipe_state(step: Step) -> dict[str, Any]:
    """The extra state of an on-policy run: the state of its recipe."""
    return {} if step.recipe is None else {"recipe": step.recipe.to_dict()}


def resume_libraries(run: Run) -> str:
    """Compute matrix products by the libraries of the latest checkpoint. Returns a remark where others are used."""
    latest = run.latest()
    if latest is None or not (latest / PRODUCTS).exists():
        return ""
    return resume_products(json.loads((latest / PRODUCTS).read_text(encoding="utf-8")))


def load_state(run: Run, learner: Learner) -> Mapping[str, Any]:
    """Put the learner where the latest checkpoint left it. Returns the extra state, empty for a new run."""
    latest = run.latest()
    if latest is None:
        return {}
    extra: Mapping[str, Any] = learner.load(latest / STATE)["extra"]
    return extra
