"""Exponents of growth against exact power laws, and what the bench makes of measured points."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench import episodes_growth
from bench.flops import Decoding, Tree, forward
from bench.growth_curves import (
    ACCEPTED,
    EXPECTED,
    SERVED,
    SURVEYED,
    Curve,
    chart,
    curves,
    draw_growth,
    exponent,
    exponents,
    growth_table,
)
from bench.job import Place
from bench.jobs.growth import AXES, BASE
from bench.people_growth import VALUES, raters_point, study_point
from bench.shapes import GROWING, SHAPES, WIDENING

VALUES_OF_POINTS = (2.0, 4.0, 8.0, 16.0, 32.0)


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found_exactly(power: float) -> None:
    costs = [3.7 * value**power for value in VALUES_OF_POINTS]
    assert exponent(VALUES_OF_POINTS, costs) == pytest.approx(power, abs=1e-12)
    assert exponents(VALUES_OF_POINTS, costs).upper == pytest.approx(power, abs=1e-12)


def test_a_constant_cost_flattens_the_lower_half_most() -> None:
    found = exponents(VALUES_OF_POINTS, [5.0 + value for value in VALUES_OF_POINTS])
    assert 0 < found.whole < found.upper < 1


@pytest.mark.parametrize(("points", "first"), [(2, 0), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_the_upper_half_has_two_points_at_least(points: int, first: int) -> None:
    """Below it the law is another, which the fit of the upper half must not see."""
    values = [2.0**n for n in range(points)]
    costs = [value**2 if n >= first else 100.0 for n, value in enumerate(values)]
    assert exponents(values, costs).upper == pytest.approx(2.0)


def test_one_value_has_no_exponent() -> None:
    with pytest.raises(ValueError, match="different"):
        exponent([3.0, 3.0], [1.0, 2.0])


def curve(power: float, work: float, theirs: float | None = None) -> Curve:
    ours, needed = (tuple(value**each for value in VALUES_OF_POINTS) for each in (power, work))
    peer = () if theirs is None else tuple(value**theirs for value in VALUES_OF_POINTS)
    return Curve("samples", "samples", "a step", VALUES_OF_POINTS, ours, needed, peer, "TRL")


def test_what_grows_faster_than_the_work_is_said_to() -> None:
    assert curve(1.3, 1.0).grows_faster
    assert curve(1.3, 1.0).excess == pytest.approx(0.3)
    assert not curve(1.05, 1.0).grows_faster
    assert not curve(0.2, 1.0).grows_faster


def test_the_drawing_names_the_exponents_of_both_sides_and_of_the_work() -> None:
    drawn = chart([curve(1.0, 0.5, 2.0)])
    ours, theirs, work = drawn.series
    assert [("1.00" in ours.label), ("2.00" in theirs.label), ("0.50" in work.label)] == [True] * 3
    assert work.y[-1] == ours.y[-1], "the work ends in our last point"
    assert drawn.x.log
    assert drawn.y.log


@pytest.mark.parametrize("axis", AXES[:3], ids=lambda axis: axis.name)
def test_the_base_lies_on_every_axis_of_the_rollout(axis) -> None:
    at_base = axis.at(getattr(BASE, axis.name))
    place = Place(Path(), Path(), Path(), SHAPES["6.8M"], 2)
    expected = AXES[0].at(BASE.samples).needs(place).operations
    assert at_base.needs(place).operations == expected


def test_the_operations_of_a_step_are_those_of_its_parts() -> None:
    place = Place(Path(), Path(), Path(), SHAPES["6.8M"], 2)
    trees = [Tree(BASE.prompt, (BASE.response,) * BASE.samples)] * BASE.prompts
    decoding = Decoding(place.shape, BASE.prompts, BASE.samples, BASE.prompt, BASE.response)
    prompts = forward(place.shape, [Tree(BASE.prompt, ())] * BASE.prompts)
    whole = 4 * forward(place.shape, trees) + prompts + BASE.response * decoding.operations
    assert AXES[0].at(BASE.samples).needs(place).operations == pytest.approx(whole)


def test_models_grow_by_weights_alone_and_embeddings_by_tokens_alone() -> None:
    assert {shape.vocabulary for shape in GROWING} == {8_192}
    assert math.log10(GROWING[-1].weights / GROWING[0].weights) > 2.6
    assert {(shape.trunk, shape.learnt) for shape in WIDENING} == {(SHAPES["6.8M"].trunk, 2_048)}
    assert len({replace(shape, name="", vocabulary=0) for shape in WIDENING}) == 1


def point(value: int, seconds: float) -> dict[str, object]:
    return {"value": value, "work": float(value), "seconds": seconds, "parts": {}}


def test_measured_points_become_rows_and_drawings(tmp_path: Path) -> None:
    """Ours grows as the square of the work, the peer as its root; a survey as the items, ranks as a root."""
    folder = tmp_path / "machine"
    folder.mkdir()
    sides = {
        side: {"facts": {"points": [point(value, value**power) for value in (2, 4, 8, 16)]}}
        for side, power in (("ours", 2.0), ("theirs", 0.5))
    }
    (folder / "growth-samples.json").write_text(json.dumps(sides))
    people = [{"value": n, "seconds": {SERVED: 1.0, ACCEPTED: 2.0, SURVEYED: n / 9}} for n in (10, 100, 1000)]
    (folder / "people_growth.json").write_text(json.dumps({"axes": {"items": people}}))
    ranks = {f"{n} × 1": {"processor": [4 / n**0.5]} for n in (1, 2, 4)} | {"1 × 2": {"processor": [9.0]}}
    (folder / "ranks.json").write_text(json.dumps({"sft": {"settings": ranks}}))
    found = {(each.axis, each.what): each for each in curves(folder)}
    (table,) = growth_table(folder)
    assert len(found) == len(table.splitlines()) - 7
    assert "2 – 16 | 2.00 | 2.00 | 0.50 | 0.50 | 1.00 | 1.00 | **yes, by 1.00** |" in table
    assert f"| {SURVEYED} | 10 – 1,000 | 1.00 | 1.00 | – | – | 1.00 | 1.00 | no |" in table
    assert "| sft, busiest rank | 1 – 4 | -0.50 | -0.50 | – | – | -1.00 | -1.00 | **yes, by 0.50** |" in table
    draw_growth(tmp_path)
    assert {file.name for file in folder.glob("*.svg")} == {
        f"growth-{name}.svg" for name in ("samples", "items", "ranks")
    }


def test_a_peer_that_was_measured_at_other_values_is_left_out(tmp_path: Path) -> None:
    sides = {
        side: {"facts": {"points": [point(value, 1.0) for value in values]}}
        for side, values in (("ours", (2, 4, 8)), ("theirs", (2, 4)))
    }
    (tmp_path / "growth-samples.json").write_text(json.dumps(sides))
    assert [each.theirs for each in curves(tmp_path)] == [()]


def test_people_are_measured_in_every_way_that_has_an_expected_exponent() -> None:
    assert EXPECTED.keys() == {*VALUES, *episodes_growth.VALUES}
    assert study_point(12, 2, times=4).keys() == EXPECTED["items"].keys() == EXPECTED["votes"].keys()
    assert raters_point(2, seconds=1.5).keys() == EXPECTED["raters"].keys()
