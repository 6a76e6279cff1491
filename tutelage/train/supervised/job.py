"""Training jobs as values: batches by step and the loss on a part of one, for preferences and rejection sampling."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tutelage.base import config
from tutelage.base.config.bases import RunSettings
from tutelage.base.progress.phases import phase
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner, Step
from tutelage.train.run.drive import Loop, Watch, load_state
from tutelage.train.run.folder import Run
from tutelage.train.supervised.fit import Objective, Splittable, fit


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training job: batches by step, the loss on a part of one, figures of held-out data."""

    label: str
    steps: int
    batch: Callable[[int], Splittable]
    """The batch of a step, counted from 0. It may depend on the policy as it is when the step comes."""
    objective: Objective
    look: Callable[[], Mapping[str, float]] | None = None
    """Figures of what is held out; each is logged as held_out/<name>."""
    tell: Callable[[int], Mapping[str, float]] = lambda step: {}
    """Further metrics of a step, counted from 0."""
    show: tuple[str, ...] = ("loss",)


def job_loop(
    run: Run,
    policy: Policy,
    job: Job,
    settings: RunSettings,
    optimiser: config.Optimiser,
    *,
    budget: Budget,
    look_every: int,
) -> Loop:
    """The loop of a job, from the latest checkpoint of the run on. A new run gets a look at what is held out as step 0.

    The best checkpoint is that of the lowest held_out/loss, if any.
    """
    if run.start == 0 and job.look is not None:
        run.log(0, held_out(job))
    learner = Learner(
        {"policy": policy.parameters()}, optimiser, job.steps, policy.total_norm, ranks=budget.ranks
    )
    load_state(run, learner)

    def look(step: Step) -> Mapping[str, float]:
        told = dict(job.tell(step.index - 1))
        if job.look is not None and (step.index % look_every == 0 or step.index == job.steps):
            told |= held_out(job)
        return told

    return Loop(
        run=run,
        learner=learner,
        steps=fit(learner, policy, job.batch, job.objective, budget=budget, seed=settings.seed),
        label=job.label,
        save=policy.save,
        gathered=policy.gathered_to_save,
        checkpoints=settings.checkpoints,
        show=job.show,
        watch=Watch(look, metric="held_out/loss"),
    )


@phase("evaluate")
def held_out(job: Job) -> dict[str, float]:
    """The look under the names by which it is logged; empty where nothing is held out."""
    return {f"held_out/{name}": value for name, value in job.look().items()} if job.look else {}
