"""Settings of recruiting, and the closed form of the cost."""

import pytest

from tutelage.people.fields import FieldError
from tutelage.people.recruiting import Recruitment, Work, estimate


@pytest.mark.parametrize(
    ("wrong", "field"),
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
    ],
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
