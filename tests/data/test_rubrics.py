"""Rubrics: the public shapes, the score against closed forms."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.rubrics import Criterion, read_rubric, rubric_of, rubric_rows, rubric_score

PUBLIC: dict[str, tuple[object, tuple[Criterion, ...]]] = {
    "HealthBench": (
        [
            {"criterion": "Calls an ambulance", "points": 7, "tags": ["level:example"]},
            {"criterion": "Recommends waiting", "points": -5, "tags": []},
        ],
        (Criterion("Calls an ambulance", 7.0), Criterion("Recommends waiting", -5.0)),
    ),
    "Rubrics as Rewards": (
        [
            {"title": "Cause", "description": "Essential: names it.", "weight": 5},
            {"title": "Sea", "description": "Pitfall: blames the sea.", "weight": -1},
        ],
        (Criterion("Cause: Essential: names it.", 5.0), Criterion("Sea: Pitfall: blames the sea.", -1.0)),
    ),
    "OpenRubrics": (
        "1. Has three lines. [Hard Rule]\n2. Is vivid\n   and brief. [Principle]",
        (Criterion("Has three lines. [Hard Rule]"), Criterion("Is vivid and brief. [Principle]")),
    ),
    "bullets": ("- Is kind\n* Is right", (Criterion("Is kind"), Criterion("Is right"))),
    "texts": (["Is kind", "Is right"], (Criterion("Is kind"), Criterion("Is right"))),
}


@for_each(PUBLIC)
def test_public_shapes_are_read_as_values_and_as_json(name: str) -> None:
    cell, rubric = PUBLIC[name]
    assert read_rubric(cell) == rubric
    assert read_rubric(json.dumps(cell) if isinstance(cell, list) else cell) == rubric
    assert read_rubric(rubric_rows(rubric)) == rubric


@for_each(
    [
        ([], "list"),
        (3, "list"),
        ("Is kind", "Is kind"),
        ('[{"criterion"', "JSON"),
        ([{"points": 3}], "Criterion 1"),
        ([{"criterion": "a", "points": "many"}], "many"),
        ([{"criterion": "a", "points": 0}], "0"),
        ([{"criterion": "a", "points": float("nan")}], "nan"),
        ([{"criterion": "a", "points": -1}], "positive"),
        (["a", "a"], "twice"),
        ([7], "int"),
    ]
)
def test_what_is_no_rubric_is_refused(cell: object, said: str) -> None:
    with pytest.raises(TutelageError, match=said):
        read_rubric(cell)


def test_a_row_has_its_rubric_under_either_name_or_is_refused_by_its_own() -> None:
    assert rubric_of({"rubrics": ["a"]}, "row 3") == rubric_of({"rubric": ["a"]}, "row 3") == (Criterion("a"),)
    for data, said in (({}, "row 3"), ({"rubric": 4}, "rubric of row 3")):
        with pytest.raises(TutelageError, match=said):
            rubric_of(data, "row 3")


RUBRIC = (Criterion("a", 6.0), Criterion("b", 3.0), Criterion("c", 1.0), Criterion("d", -2.0))


@for_each(
    [
        ([True, True, True, False], 1.0),
        ([True, False, False, True], 0.4),
        ([False, False, False, True], -0.2),
        ([True, None, False, False], 6 / 7),
        ([True, True, True, None], 1.0),
        ([None, True, True, False], None),  # 6 of 12 absolute points are missing
        ([None] * 4, None),
    ]
)
def test_the_score_is_the_share_of_points_among_criteria_with_a_verdict(
    verdicts: list[bool | None], score: float | None
) -> None:
    assert rubric_score(RUBRIC, verdicts) == (score if score is None else pytest.approx(score))


def test_exactly_a_quarter_may_be_missing() -> None:
    quarter = (Criterion("a", 3.0), Criterion("b", 1.0))
    assert rubric_score(quarter, [True, None]) == 1.0
    assert rubric_score((Criterion("a", 2.9), Criterion("b", 1.0)), [True, None]) is None


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8), st.integers(1, 9))
def test_scores_ignore_the_unit_of_points_and_meeting_a_criterion_moves_them_by_its_sign(
    rows: list[tuple[int, bool]], factor: int
) -> None:
    rubric = tuple(Criterion(str(i), float(points * (-1) ** i)) for i, (points, _) in enumerate(rows))
    verdicts = [met for _, met in rows]
    scaled = tuple(Criterion(each.text, factor * each.points) for each in rubric)
    score = rubric_score(rubric, verdicts)
    assert score is not None
    assert rubric_score(scaled, verdicts) == pytest.approx(score)
    met = rubric_score(rubric, [True, *verdicts[1:]])
    unmet = rubric_score(rubric, [False, *verdicts[1:]])
    assert met is not None
    assert unmet is not None
    assert met > unmet
