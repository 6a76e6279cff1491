"""The bench of rater models: what it keeps of a study, its intervals by hand, and that it measures nothing twice."""

import json
import math

import numpy as np
import pytest

from bench import raters, raters_table


def study(seed, lead, error=0.01, said=0.95, right=0.9):
    """A study of ten labels, in which the default is ahead of a method by this lead."""
    bins = [[0, 0, 0]] * 9 + [[10, 10 * said, 10 * right]]
    figures = {"accuracy": 0.8, "log_loss": 0.5, "seconds": 1.0, "bins": bins}
    methods = {"default": figures | {"ahead": [0.0, 0.0]}, "other": figures | {"ahead": [lead, error]}}
    return {"design": "d", "seed": seed, "items": 10, "votes": 30, "chosen": "coin", "methods": methods}


def test_the_interval_is_students_over_studies_and_over_items_of_few():
    leads = np.array([0.03, 0.01, -0.02, 0.04, 0.0])
    found = raters_table.summary([study(n, lead) for n, lead in enumerate(leads)])["methods"]["other"]
    assert found["ahead"] == pytest.approx(0.012)
    assert found["within"] == pytest.approx(2.7764 * leads.std(ddof=1) / math.sqrt(5), abs=1e-5)
    few = raters_table.summary([study(n, lead) for n, lead in enumerate(leads[:2])])["methods"]["other"]
    assert few["within"] == pytest.approx(1.96 * 0.01 / math.sqrt(2), abs=1e-5)
    assert raters_table.behind({"d": raters_table.summary([study(0, -0.03)])})[2:] == [
        "- d: -0.0300 ± 0.0196 against other"
    ]


def test_the_calibration_error_is_of_pooled_bins():
    one, other = ([[0, 0, 0]] * 8 + [[0.5, 0.4, 0.4 + d], [0.5, 0.475, 0.475 - d]] for d in (0.05, 0.01))
    ece, said, true = raters_table.calibration_error([np.array(one), np.array(other)])
    assert (ece, said, true) == pytest.approx((0.06, 0.95, 0.89))


def test_the_distance_of_a_design_has_the_error_of_true_probabilities():
    """Two studies of ten labels of .95, of which nine are right: of 20 such labels √(20 · .95 · .05) are off."""
    found = raters_table.distance([study(0, 0.0), study(1, 0.0)], "other")
    assert found == pytest.approx((0.05, math.sqrt(0.95) / 20))


def test_a_study_that_was_measured_is_not_measured_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(raters, "STUDIES", tmp_path)
    monkeypatch.setitem(raters_table.RESULTS, "nominal", tmp_path / "raters.json")
    monkeypatch.setattr("sys.argv", ["raters", "--only", "alike 5 x 20, 2 classes", "--repeat", "1"])
    raters.main()
    first = (tmp_path / "nominal" / "here.jsonl").read_text()
    assert capsys.readouterr().out.startswith("alike 5 x 20, 2 classes 0 ")
    raters.main()
    assert (tmp_path / "nominal" / "here.jsonl").read_text() == first
    assert capsys.readouterr().out == ""
    kept = json.loads(first)
    bins = np.array(kept["methods"]["default"]["bins"])
    assert bins[:, 0].sum() == kept["items"] == 33
    assert bins[:, 2].sum() == pytest.approx(33 * kept["methods"]["default"]["accuracy"], abs=1e-2)
    assert "1 designs, 1 studies, 33 items" in (tmp_path / "raters.md").read_text()
    assert (tmp_path / "raters.svg").read_text().startswith("<svg")
