"""The addresses of platforms: what is taken from them, what is refused, and the way back."""

import pytest

from tutelage.base.errors import TutelageError
from tutelage.people.platforms import MTURK, PLATFORMS, PROLIFIC, SONA, Platform, Visitor


def read(platform: Platform, **values: str) -> Visitor:
    return platform.visitor(lambda name: values.get(name, ""))


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
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
