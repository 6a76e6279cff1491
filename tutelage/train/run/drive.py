"""The edge around a loop: logs, draws progress, saves, and stops when asked."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tutelage import config
from tutelage.train.learner import Learner, Step
from tutelage.train.run.checkpoints import metric_of
from tutelage.train.run.folder import Run
from tutelage.train.run.interrupt import interrupted
from tutelage.train.run.progress import progress

STATE = "state.pt"


class Interrupted(KeyboardInterrupt):
    """Somebody asked the run to stop, and it did, with everything saved. The message says how to go on."""


@dataclass(frozen=True)
class Watch:
    """What happens beside the training steps.

    `look` is called after every step and returns further metrics, mostly none; `metric` names the one by which the
    best checkpoint is chosen (lower is better), and with `keep_best` a checkpoint is written whenever it is better
    than ever; `enough` ends the run early when it returns true.
    """

    look: Callable[[Step], Mapping[str, float]] = lambda step: {}
    metric: str | None = None
    keep_best: bool = False
    enough: Callable[[], bool] = lambda: False


def drive(
    run: Run,
    learner: Learner,
    steps: Iterator[Step],
    *,
    label: str,
    save: Callable[[Path], object],
    extra_state: Callable[[Step], Mapping[str, Any]] = lambda step: {},
    checkpoints: config.Checkpoints,
    show: tuple[str, ...],
    quiet: bool,
    watch: Watch | None = None,
) -> None:
    """Run a loop to its end, or to the first ctrl-C.

    Every checkpoint holds what `save` writes (loadable with plain `from_pretrained`), the state of the learner, and
    what `extra_state` says must be remembered of the step.
    """
    watch = watch or Watch()

    def write(step: Step, folder: Path) -> None:
        save(folder)
        torch.save({"learner": learner.state(), "extra": dict(extra_state(step))}, folder / STATE)

    with (
        progress(label, learner.total, start=learner.step, show=show, quiet=quiet) as advance,
        interrupted() as stop,
    ):
        for step in () if watch.enough() else steps:  # a run that ended early may only have to be finished
            metrics = {**step.metrics, **watch.look(step)}
            run.log(step.index, metrics)
            advance(step.index, metrics)
            done = step.index >= learner.total or watch.enough()
            value = metrics.get(watch.metric) if watch.metric else None
            best = watch.keep_best and value is not None and _is_best(run, value)
            if done or stop or best or checkpoints.due(step.index):
                run.checkpoint(step.index, partial(write, step), value)
            if stop and not done:
                raise Interrupted(
                    f"Stopped after step {step.index}; everything is saved. Go on with: {run.resume_command}"
                )
            if done:
                break


def _is_best(run: Run, value: float) -> bool:
    best = run.best()
    known = metric_of(best) if best else None
    return known is None or value < known


def recipe_state(step: Step) -> dict[str, Any]:
    """The extra state of an on-policy run: the state of its recipe."""
    return {} if step.recipe is None else {"recipe": step.recipe.to_dict()}


def load_state(run: Run, learner: Learner) -> Mapping[str, Any]:
    """Put the learner where the latest checkpoint left it. Returns the extra state, empty for a new run."""
    latest = run.latest()
    if latest is None:
        return {}
    state = torch.load(latest / STATE, map_location="cpu", weights_only=True)
    learner.restore(state["learner"])
    return state["extra"]
