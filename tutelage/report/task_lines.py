"""What a model reached on tasks of lm-evaluation-harness, in lines."""

from collections.abc import Iterator

from tutelage.report.json_values import Object, items, number, section


def task_lines(name: str, summary: Object) -> Iterator[str]:
    """The figures of tasks in the summary.json of an evaluation, with standard errors; `name` is that of the model."""
    tasks, reached = section(summary, "tasks"), section(summary, "model")
    versions = section(tasks, "versions")
    for figure in map(str, items(tasks, "figures")):
        task, _, metric = figure.rpartition("/")
        value, error = number(reached, figure), number(reached, f"{figure}_error")
        if value is not None:
            yield (
                f"{name} on `{task}` (lm-evaluation-harness, version {versions.get(task, 'unknown')} of the task): "
                f"{metric} {value:.3f}" + ("" if error is None else f", standard error {error:.3f}")
            )
