"""Recruitment: addresses of platforms and the way back, settings, and the closed form of the cost."""

from dataclasses import replace

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.people.recruitment import (
    MTURK,
    PLATFORMS,
    PROLIFIC,
    SONA,
    Platform,
    Recruitment,
    Visitor,
    Work,
    estimate,
    estimate_places,
)
from tutelage.people.validation import FieldError


def read(platform: Platform, **values: str) -> Visitor:
    return platform.visitor(lambda name: values.get(name, ""))


@for_each(PLATFORMS.values(), PLATFORMS)
def test_what_is_not_an_identifier_is_refused_by_name(platform: Platform) -> None:
    good = dict.fromkeys(platform.parameters, "5f3a-b_C")
    assert read(platform, **good).worker == "5f3a-b_C"
    for name in platform.parameters:
        for bad in ("", "x" * 10_000, "<script>", "a b", "a\nb", "5f3\x00", "é", "٣", platform.filled[name]):
            with pytest.raises(TutelageError, match=name) as refused:
                read(platform, **good | {name: bad})
            assert len(str(refused.value)) < 300


def test_each_platform_names_its_parameters() -> None:
    assert PROLIFIC.parameters == ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID")
    assert MTURK.parameters == ("workerId", "hitId", "assignmentId")
    assert SONA.parameters == ("survey_code",)
    assert PROLIFIC.query.startswith("PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID=")


def test_a_task_that_was_not_accepted_is_a_preview() -> None:
    assert read(MTURK, assignmentId="ASSIGNMENT_ID_NOT_AVAILABLE").preview


def test_the_way_back() -> None:
    assert PROLIFIC.way_back("C 1", "", "s") == "https://app.prolific.com/submissions/complete?cc=C%201"
    assert MTURK.way_back("C1", "", "s") == ""
    url = "https://school.example/credit?survey_code=XXXX"
    assert SONA.way_back("", url, "1234") == "https://school.example/credit?survey_code=1234"
    assert SONA.way_back("", url, "1234", screened=True) == ""


@for_each(
    [
        ({"platform": "elsewhere"}, "platform"),
        ({"platform": "prolific", "code": "A"}, "screened_code"),
        ({"platform": "prolific", "code": "A", "screened_code": "A"}, "screened_code"),
        ({"platform": "mturk", "code": "a b"}, "code"),
        ({"platform": "mturk", "return_url": "javascript:alert(1)"}, "return_url"),
        ({"platform": "mturk", "return_url": "https://[x"}, "return_url"),
        ({"platform": "sona"}, "return_url"),
        ({"platform": "sona", "return_url": "https://school.example/credit"}, "return_url"),
        ({"platform": "mturk", "answers": 0}, "answers"),
        ({"platform": "mturk", "places": 0}, "places"),
        ({"platform": "mturk", "pay": float("nan")}, "pay"),
    ]
)
def test_settings_that_cannot_work_are_refused_by_their_name(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        Recruitment(**wrong)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_the_cost_is_votes_by_time_by_pay_with_the_fee() -> None:
    """90 votes are 100 answers where a tenth is asked besides, 5 visits of 20; with 4 questions of practice each these
    are 120 times 30 seconds: one hour."""
    setting = Recruitment("mturk", answers=20, pay=12, fee=0.25, seconds=30)
    cost = estimate(setting, Work(90, 0.1, 4))
    assert (cost.answers, cost.visits) == (100, 5)
    assert (cost.hours, cost.pay, cost.fee, cost.total) == pytest.approx((1, 12, 3, 15))
    assert estimate(setting, Work(90, 0.1, 4), 60).total == pytest.approx(30)
    assert estimate(setting, Work(0)).total == 0
    # 10 places: one visit each, with its practice, whatever the items still need
    assert estimate_places(setting, Work(0)) is None
    some = estimate_places(replace(setting, places=10), Work(90, 0.1, 4))
    assert some is not None
    assert (some.visits, some.answers) == (10, 10 * setting.answers)
    hours = 10 * (setting.answers + 4) * setting.seconds / 3600
    assert some.total == pytest.approx(hours * setting.pay * (1 + setting.fee))
