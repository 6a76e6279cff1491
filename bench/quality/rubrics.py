"""Over-optimisation of a rubric under a noisy judge, with rubric dropout and an ensemble of judges: the laboratory's
experiment `rubrics`, on the demonstration's world.

Yang et al. 2026 (Rubric Dropout, arXiv 2608.11669) train Qwen3-8B by GRPO on rubrics: the training judge's score keeps
rising while a stronger judge's peaks and falls.
"""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from bench.quality.experiment import Experiment, Figures, Line, Part, Place, of
from tutelage.base.config import identity
from tutelage.demo.lab import rubrics, rubrics_page
from tutelage.demo.lab.experiment import CellResult, ExperimentSetting, run_cells
from tutelage.demo.lab.rubrics_page import WAYS, RubricRun
from tutelage.demo.lab.start import make
from tutelage.report.figures import standalone

SIZE = rubrics.EXPERIMENT.size
SETTINGS: Mapping[str, Any] = identity(SIZE)
CURVES = ("proxy", "gold", "kl")
TITLE = "## Rubrics over-optimised"
CLAIM = (
    "Trained on a rubric by GRPO, a policy raises the score of its judge further and further, while that of a stronger "
    "judge peaks and falls; leaving out criteria at random mitigates this (Yang et al. 2026, Rubric Dropout, arXiv "
    "2608.11669). Here a policy of a million parameters and judges whose errors are known."
)


def parts(seed: int) -> list[Part]:
    """The judges, which all seeds share, and a policy of each way."""
    if seed >= SIZE.seeds:
        return []
    return [Part(rubrics.JUDGES, SETTINGS)] * (seed == 0) + [Part(way, SETTINGS, seed) for way in WAYS]


def run(part: Part, place: Place) -> Figures:
    """Run the part's cell of the laboratory, and those before it; the world is made once."""
    start = make(place.runs / "world", seed=0, quiet=True)
    name = part.name if part.name == rubrics.JUDGES else f"{part.name}-{part.seed}"
    cells = rubrics.cells(ExperimentSetting(start, SIZE, 0, quiet=True))
    needed = [cell for cell in cells if cell.name in (rubrics.JUDGES, name)]
    cell = run_cells(place.runs / "cells", start.fingerprint, needed)[-1]
    return dict(cell.figures) if part.name == rubrics.JUDGES else _told(cell)


def _told(cell: CellResult) -> Figures:
    run = RubricRun.of(cell)
    curves = {name: [round(value, 4) for value in getattr(run, name)] for name in CURVES}
    return curves | {"final": {name: round(value, 4) for name, value in run.final.items()}}


def runs_of(lines: Sequence[Line]) -> list[RubricRun]:
    """The runs in the lines."""
    return [
        RubricRun(
            way, line.seed, *(tuple(line.figures[name]) for name in ("proxy", "gold", "kl")), line.figures["final"]
        )
        for way in WAYS
        for line in of(lines, way)
    ]


def section(lines: Sequence[Line]) -> str:
    """What was claimed, and the outcome."""
    (judges,), runs = of(lines, rubrics.JUDGES), runs_of(lines)
    sentences = [rubrics_page.judged(judges.figures), *rubrics_page.findings(runs)]
    head, *rows = [rubrics_page.COLUMNS, *rubrics_page.table(runs)]
    table = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    table.insert(1, "|" + "---|" * len(head))
    pictures = [f"![{figure.title}](results/rubrics-{figure.name}.svg)" for figure in rubrics_page.figures(runs)]
    texts = [CLAIM, " ".join(sentences), " ".join(rubrics_page.method(SIZE))]
    return "\n\n".join([TITLE, *(fill(text, 120) for text in texts), "\n".join(table), *pictures])


def figures(lines: Sequence[Line]) -> dict[str, str]:
    """The drawings of the laboratory."""
    return {f"rubrics-{figure.name}": standalone(figure.drawing) for figure in rubrics_page.figures(runs_of(lines))}


def enough(lines: Sequence[Line]) -> bool:
    """Whether the judges and a run of every way are there."""
    return {line.part for line in lines} == {rubrics.JUDGES, *WAYS}


EXPERIMENT = Experiment(
    "rubrics", "a rubric over-optimised under a noisy judge", parts, run, section, figures, enough, world=True
)
