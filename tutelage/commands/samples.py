"""Answers of a run that are written to be read."""

from tutelage.train.learner import Step
from tutelage.train.run.folder import Run

COUNT = 4
"""Answers of a step."""


def write_samples(run: Run, step: Step, every: int, *, scores: bool = True) -> None:
    """A few answers of every so many steps, and of the first, to read; with their scores where there are any."""
    if step.sample is None or (step.index > 1 and step.index % max(1, every)):
        return
    rows = [{"prompt": prompt, "completion": text} for prompt, text in step.texts[:COUNT]]
    if scores:
        known = step.sample.score[:COUNT].tolist()
        rows = [row | {"score": score} for row, score in zip(rows, known, strict=True)]
    run.samples(step.index, rows)
