"""How the cost of a step grows: one number of a job grows while everything else stays, and each number is an axis."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from bench.job import Job, Measurement, Needs, Place
from bench.jobs import grpo, reward
from bench.jobs.grpo import Size
from bench.shapes import GROWING, SHAPES, WIDENING, Shape

BASE, FEW = Size(prompts=2, prompt=256), Size(prompts=2, prompt=64, samples=4, response=32)
STEPS = 2


@dataclass(frozen=True)
class Axis:
    """A number that grows. `about` says of what, `at` gives the job at a value."""

    name: str
    label: str
    about: str
    values: tuple[int, ...]
    at: Callable[[int], Job]


def _sized(field: str) -> Callable[[int], Job]:
    """The GRPO job whose rollout has another value of a field."""
    return lambda value: grpo.job("6.8M", replace(BASE, **{field: value}), STEPS)


def _shaped(name: str, label: str, about: str, shapes: tuple[Shape, ...], number: str) -> Axis:
    """The axis of a GRPO job over a number of some shapes."""
    names = {getattr(shape, number): shape.name for shape in shapes}
    return Axis(name, label, about, tuple(names), lambda value: grpo.job(names[value], FEW, STEPS))


AXES = (
    Axis("samples", "samples to a prompt", f"GRPO, 6.8M, {BASE}", (2, 4, 8, 16, 32), _sized("samples")),
    Axis("prompt", "tokens of a prompt", f"GRPO, 6.8M, {BASE}", (64, 128, 256, 512, 896), _sized("prompt")),
    Axis("response", "tokens of a response", f"GRPO, 6.8M, {BASE}", (16, 32, 64, 128, 256), _sized("response")),
    _shaped("model", "weights of the model", f"GRPO, {FEW}", GROWING, "weights"),
    _shaped("vocabulary", "tokens of the vocabulary", f"GRPO, trunk of 6.8M, {FEW}", WIDENING, "vocabulary"),
    Axis("pairs", "pairs in a step", "Reward model, 17.6M", (2, 4, 8, 16, 32), reward.job),
)


def _there(place: Place, value: int, job: Job) -> Place:
    """The folders of a point on the axis."""
    folders = {name: getattr(place, name) / str(value) for name in ("job", "out")}
    return replace(place, **folders, shape=SHAPES[job.shape], steps=job.steps, rated=False)


def prepare(place: Place, axis: Axis) -> None:
    """Data and models for every point."""
    for value in axis.values:
        job = axis.at(value)
        there = _there(place, value, job)
        there.job.mkdir(parents=True, exist_ok=True)
        job.prepare(there)
    place.note(points=len(axis.values))


def ours(place: Place, axis: Axis) -> Measurement:
    """A few steps of our side at every point."""
    return _everywhere(place, axis, lambda job: job.ours)


def theirs(place: Place, axis: Axis) -> Measurement:
    """A few steps of the peer at every point."""
    return _everywhere(place, axis, lambda job: job.theirs)


def _everywhere(place: Place, axis: Axis, side: Callable[[Job], Callable[[Place], Measurement]]) -> Measurement:
    """Every point in one process: its value, the operations that a step needs, and the median seconds of a step."""
    points: list[dict[str, Any]] = []
    for value in axis.values:
        job = axis.at(value)
        there = _there(place, value, job)
        told = side(job)(there)
        parts = {name: median(spent) for name, spent in told.parts.items()}
        work = job.needs(there).operations
        points.append({"value": value, "work": work, "seconds": median(told.seconds), "parts": parts})
        del told
        gc.collect()  # models and optimisers stand in circles
    return Measurement([point["seconds"] for point in points], facts={"points": points})


def needs(place: Place) -> Needs:
    """Nothing for all points together: each has its own."""
    return Needs()


def job(axis: Axis) -> Job:
    """The job that measures an axis."""
    first = axis.at(axis.values[0])
    return Job(
        name=f"growth-{axis.name}",
        about=f"How a step grows over {axis.label}: {axis.about}",
        peer=first.peer,
        settings=first.settings,
        environment=first.environment,
        shape=first.shape,
        prepare=partial(prepare, axis=axis),
        ours=partial(ours, axis=axis),
        theirs=partial(theirs, axis=axis),
        needs=needs,
        steps=STEPS,
        rounds=1,  # what it tells are facts of one round
    )


JOBS = tuple(map(job, AXES))
