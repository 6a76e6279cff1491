"""How the cost of a GRPO step grows with the samples to a prompt, the length of the prompt and that of the response."""

from dataclasses import replace
from statistics import median
from typing import Any

from bench.job import Job, Measurement, Needs, Place
from bench.jobs import grpo
from bench.jobs.grpo import Size

BASE = Size(prompts=2, prompt=256)
AXES = {"samples": (2, 4, 8, 16), "prompt": (64, 128, 256, 512), "response": (16, 32, 64, 128)}


def sizes() -> list[tuple[str, int, Size]]:
    """Every point: the axis, the value on it, and the rollout."""
    return [
        (axis, value, replace(BASE, **{axis: value})) for axis, values in AXES.items() for value in values
    ]


def prepare(place: Place) -> None:
    """Prompts for every point."""
    for axis, value, size in sizes():
        there = _there(place, axis, value)
        there.job.mkdir(parents=True, exist_ok=True)
        grpo.prepare(there, size)
    place.note(points=len(sizes()))


def _there(place: Place, axis: str, value: int) -> Place:
    return replace(place, job=place.job / f"{axis}-{value}", out=place.out / f"{axis}-{value}")


def ours(place: Place) -> Measurement:
    """A few steps of `tutelage improve` at every point."""
    return _everywhere(place, grpo.ours)


def theirs(place: Place) -> Measurement:
    """A few steps of `GRPOTrainer` at every point."""
    return _everywhere(place, grpo.theirs)


def _everywhere(place: Place, step: Any) -> Measurement:
    points = []
    for axis, value, size in sizes():
        told = step(_there(place, axis, value), size)
        parts = {name: median(spent) for name, spent in told.parts.items()}
        points.append({"axis": axis, "value": value, "seconds": median(told.seconds), "parts": parts})
    return Measurement([point["seconds"] for point in points], facts={"points": points})


def needs(place: Place) -> Needs:
    """Nothing to compare with."""
    return Needs()


JOBS = (
    Job(
        name="growth",
        about=f"How a GRPO step grows from {BASE}, 6.8M",
        peer="TRL 1.16.0",
        settings="as in grpo",
        environment="peers",
        shape="6.8M",
        prepare=prepare,
        ours=ours,
        theirs=theirs,
        needs=needs,
        steps=2,
        rounds=1,  # what it tells are facts of one round
    ),
)
