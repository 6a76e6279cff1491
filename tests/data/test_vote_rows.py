"""The rules by which readers of votes compare names, read times and find rejected work. The readers' own tests have
tables of each."""

import unicodedata
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tutelage.data.vote_rows import cell_text, cell_time, choice_names, fold_name, item_names, rater_names, text_names

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@given(TEXT, st.sampled_from(FORMS), st.sampled_from(("", " ", "\u00a0", "\u200b", "\ufeff", "\u00ad")))
def test_a_name_is_the_same_in_every_form_and_case_and_with_what_cannot_be_seen(
    name: str, form: str, unseen: str
) -> None:
    assert fold_name(unseen + unicodedata.normalize(form, name) + unseen) == fold_name(name)
    assert fold_name(fold_name(name)) == fold_name(name)


@given(st.lists(TEXT, max_size=12))
def test_names_are_spellings_and_the_most_frequent_of_them(spellings: list[str]) -> None:
    for names in (item_names(spellings), text_names(spellings)):
        assert set(names.of) == set(spellings)
        for spelling, name in names.of.items():
            assert names.of[name] == name
            assert spellings.count(name) >= spellings.count(spelling)
            assert spelling == name or spelling in names.joined[name]


def test_items_differ_by_capitals_and_raters_and_choices_do_not() -> None:
    assert len(set(item_names(["a", "A", "a ", "1", "1.0", "01"]).of.values())) == 4
    assert len(set(rater_names(["a", "A", "a ", "1", "1.0", "01", "1e0"]).of.values())) == 4
    assert len(set(choice_names(["a", "A", "a ", "1", "1.0", "01", "1e0"]).of.values())) == 2
    assert text_names(["1", "1.0"]).joined == {}


@given(st.datetimes(datetime(1974, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_a_moment_is_the_same_in_every_unit(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    seconds = int(moment.timestamp())
    written = (seconds, seconds * 1000, seconds * 10**6, seconds * 10**9, moment, moment.isoformat(), float(seconds))
    assert {cell_time({"time": value}, "time") for value in written} == {seconds * 1000}


def test_cells_of_one_value_are_one_text() -> None:
    assert {cell_text({"x": value}, "x") for value in (1, 1.0, "1", " 1 ")} == {"1"}
    assert {cell_text({"x": value}, "x") for value in (True, "true")} == {"true"}
    assert {cell_text({"x": value}, "x") for value in (None, "", float("nan"))} == {""}
