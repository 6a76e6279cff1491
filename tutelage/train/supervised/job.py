"""A training job that is given by what each step minimises: what preferences and rejection sampling share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tutelage import config
from tutelage.config.run import RunSettings
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner, Step
from tutelage.train.run.drive import Watch, drive, load_state
from tutelage.train.run.folder import Run
from tutelage.train.supervised.fit import Objective, Splittable, fit


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is learnt and what it is judged by: batches by step, the loss on a part of one, a look at held-out data."""

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


def train(
    run: Run,
    policy: Policy,
    job: Job,
    settings: RunSettings,
    optimiser: config.Optimiser,
    *,
    budget: Budget,
    look_every: int,
) -> None:
    """Do the job, from wherever the run was left. The best checkpoint is that of the lowest held_out/loss, if any."""
    learner = Learner({"policy": policy.parameters()}, optimiser, job.steps, policy.total_norm)
    load_state(run, learner)

    def look(step: Step) -> Mapping[str, float]:
        told = dict(job.tell(step.index - 1))
        if job.look is not None and (step.index % look_every == 0 or step.index == job.steps):
            told |= held_out(job)
        return told

    drive(
        run,
        learner,
        fit(learner, policy, job.batch, job.objective, budget=budget, seed=settings.seed),
        label=job.label,
        save=policy.save,
        checkpoints=settings.checkpoints,
        show=job.show,
        quiet=settings.quiet,
        watch=Watch(look, metric="held_out/loss"),
    )


def held_out(job: Job) -> dict[str, float]:
    """The look under the names by which it is logged; empty where nothing is held out."""
    return {f"held_out/{name}": value for name, value in job.look().items()} if job.look else {}
