"""Numbers with their nouns."""

from tutelage.nouns import counted


def test_one_thing_is_singular_and_every_other_number_is_not() -> None:
    told = [counted(count, "new vote") for count in (0, 1, 2, 1_200)]
    assert told == ["0 new votes", "1 new vote", "2 new votes", "1,200 new votes"]
