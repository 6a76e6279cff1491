"""The experiments, in the order of the page."""

from bench.quality import chosen, helpful, parity, rates, reverse, rubrics, sentiment, steps
from bench.quality.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        sentiment.EXPERIMENT,
        helpful.EXPERIMENT,
        chosen.EXPERIMENT,
        reverse.EXPERIMENT,
        parity.EXPERIMENT,
        rates.EXPERIMENT,
        rubrics.EXPERIMENT,
        steps.EXPERIMENT,
    )
}
