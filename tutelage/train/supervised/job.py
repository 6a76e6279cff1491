"""Training jobs: batches by step, the loss on a part of a batch, and the loop that runs them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from tutelage.base.config.bases import BatchSettings
from tutelage.base.progress.phases import phase
from tutelage.models.budget import Budget
from tutelage.models.engine_model import EngineModel
from tutelage.train.learner import Learner, Step
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import STATE, Loop, Monitor, load_state
from tutelage.train.supervised.fit import Objective, Splittable, fit

LOSS_RATE = 1e-2
"""Learning rate of parameters of a loss: one or two numbers, independent of the size of the model."""


class EarlyStopping:
    """History of the held-out loss. The run stops after `patience` evaluations without improvement; 0 disables this."""

    def __init__(self, patience: int, best: float = math.inf, since: int = 0) -> None:
        self.patience, self.best, self.since = patience, best, since

    def record(self, loss: float) -> None:
        better = loss < self.best
        self.best, self.since = min(loss, self.best), 0 if better else self.since + 1

    def enough(self) -> bool:
        """Whether the last `patience` evaluations brought no improvement."""
        return 0 < self.patience <= self.since

    def state(self) -> dict[str, float]:
        return {"best": self.best, "since": self.since}


@dataclass(frozen=True, kw_only=True)
class Job:
    """Training job: batches by step, the loss on a part of a batch, and held-out evaluation."""

    label: str
    steps: int
    batch: Callable[[int], Splittable]
    """Batch of a step (counted from 0). It may depend on the current policy."""
    objective: Objective
    look: Callable[[], Mapping[str, float]] | None = None
    """Held-out metrics, logged as held_out/<name>."""
    looks_first: bool = True
    """Whether a new run evaluates before training, as step 0."""
    patience: int | None = None
    """Evaluations without a better held-out loss before stopping, 0 to disable; every improvement is checkpointed.
    None keeps no history."""
    tell: Callable[[int], Mapping[str, float]] = lambda step: {}
    """Additional metrics of a step (counted from 0); called before its checkpoint."""
    show: tuple[str, ...] = ("loss",)
    learned: Sequence[nn.Parameter] = ()
    """Parameters of the loss, trained along with the model at `LOSS_RATE`."""


def job_loop(run: Run, model: EngineModel, job: Job, settings: BatchSettings, budget: Budget) -> Loop:
    """Loop of a job, from the latest checkpoint of the run.

    Evaluates on held-out data every `evaluate_every` steps and after the last step. The best checkpoint has the lowest
    held_out/loss, if any.
    """
    if run.start == 0 and job.looks_first and job.look is not None:
        run.log(0, _held_out(job))
    groups = {"model": model.parameters(), "loss": job.learned}
    learner = Learner(groups, settings.optimiser, job.steps, model.total_norm, ranks=budget.ranks, loss=LOSS_RATE)
    extra = load_state(run, learner)
    history = None if job.patience is None else EarlyStopping(job.patience, **extra)

    def look(step: Step) -> Mapping[str, float]:
        metrics = dict(job.tell(step.index - 1))
        if job.look is not None and (step.index % settings.evaluate_every == 0 or step.index == job.steps):
            metrics |= _held_out(job)
            if history is not None:
                history.record(metrics["held_out/loss"])
        return metrics

    return Loop(
        run=run,
        learner=learner,
        steps=fit(learner, model, job.batch, job.objective, budget=budget, seed=settings.seed),
        label=job.label,
        save=model.save,
        gathered=model.gathered_to_save,
        extra_state=lambda step: {} if history is None else history.state(),
        checkpoints=settings.checkpoints,
        show=job.show,
        monitor=Monitor(look, "held_out/loss", history is not None, history.enough if history else lambda: False),
    )


def restore_best(loop: Loop) -> None:
    """Restore the weights of the checkpoint with the lowest held-out loss, if any was measured."""
    run = loop.run
    best = run.ranks.shared(run.best)
    if best is not None:
        loop.learner.load(best / STATE)


@phase("evaluate")
def _held_out(job: Job) -> dict[str, float]:
    """Held-out metrics under their logged names; empty without held-out data."""
    return {f"held_out/{name}": value for name, value in job.look().items()} if job.look else {}
