"""The reliability diagram of a calibrated model, and the bins of a summary."""

from dataclasses import replace

import pytest

from report.figures.reading import drawn, pixels, with_class
from tutelage.report.figures.scales import frame
from tutelage.report.folders import RunContent
from tutelage.report.json_files import Object
from tutelage.report.reliability_diagram import Bin, bins, reliability
from tutelage.report.stage_figures import figures


def test_an_honest_forecaster_lies_on_the_diagonal() -> None:
    bins = [Bin(k / 10, (k + 1) / 10, k / 10 + 0.05, k / 10 + 0.05, 10 * (k + 1)) for k in range(10)]
    chart = reliability(bins)
    at, root = frame(chart), drawn(chart)
    ((x0, y0), (x1, y1)) = pixels(with_class(root, "dashed")[0])
    discs = [
        (float(c.get("cx", "")), float(c.get("cy", "")), float(c.get("r", ""))) for c in with_class(root, "point", "c0")
    ]
    assert len(discs) == 10
    for x, y, _ in discs:
        assert (y - y0) / (y1 - y0) == pytest.approx((x - x0) / (x1 - x0), abs=0.002)
    area = [r**2 for *_, r in discs]
    assert area[9] / area[4] == pytest.approx(2, rel=0.05), "area, not radius, says how many"
    for whisker, b in zip(with_class(root, "whisker"), bins, strict=True):
        low, high = (at.y.invert(y) for _, y in pixels(whisker))
        assert low < b.observed < high


def test_a_bin_in_which_a_number_is_missing_is_left_out() -> None:
    whole = {"low": 0.5, "high": 0.6, "predicted": 0.55, "observed": 0.5, "n": 4}
    rows = [whole, *({**whole, key: None} for key in whole), {**whole, "n": 0}]
    assert bins({"calibration": rows}) == [Bin(0.5, 0.6, 0.55, 0.5, 4)]


@pytest.mark.parametrize(("kind", "content"), [("judge", "judgements"), ("reward", "summary")])
def test_stages_with_probabilities_show_their_calibration(kind: str, content: str) -> None:
    """The labels of a study, and the predictions of a reward model."""
    told: Object = {"calibration": [{"low": 0.5, "high": 0.6, "predicted": 0.55, "observed": 0.5, "n": 4}]}
    (figure,) = figures(kind, replace(RunContent(), **{content: told}))
    assert "Calibration" in figure.title
    assert figures(kind, RunContent()) == ()
