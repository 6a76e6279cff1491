"""Errors of single values: names that are not known, numbers out of range."""

from collections.abc import Callable
from itertools import product

import jinja2
import pytest
from offenders import for_each

from tutelage.base.sentences import Sentence
from tutelage.data.vote_rows import MEANINGS
from tutelage.people.kinds import KINDS, find_kind
from tutelage.people.languages import LANGUAGES, say
from tutelage.people.recruitment import PLATFORMS, Recruitment, find_platform
from tutelage.people.settings import Consent, Plan
from tutelage.people.validation import FieldError, FormError, check_range, find_named
from tutelage.people.vote_mapping import meaning_of

NUMBERS: dict[str, tuple[Callable[[float], object], float, tuple[str, ...]]] = {
    "overlap": (lambda value: Plan(overlap=value), 101, ("1", "100")),  # type: ignore[arg-type]
    "training_pass": (lambda value: Plan(training_pass=value), 1.5, ("0", "1")),
    "lease_seconds": (lambda value: Plan(lease_seconds=value), -3, ()),  # type: ignore[arg-type]
    "retention_days": (lambda value: Consent(retention_days=value), -4, ("1",)),  # type: ignore[arg-type]
    "answers": (lambda value: Recruitment("mturk", answers=value), -5, ("1",)),  # type: ignore[arg-type]
    "fee": (lambda value: Recruitment("mturk", fee=value), 11.5, ("0", "10")),
}
"""By field: what takes the number, one that it refuses, and bounds that the refusal tells."""
REFUSAL = Sentence("“%(given)s” is none of %(known)s.")


def test_what_has_the_name_is_found_and_an_unknown_name_is_told_what_is_known() -> None:
    among = {"one": 1, "two": 2, "uno": 1}
    assert find_named("number", "two", among, REFUSAL) == 2
    with pytest.raises(FieldError, match=r"three.*one, two, uno") as caught:
        find_named("number", "three", among, REFUSAL)
    assert caught.value.field == "number"
    with pytest.raises(FieldError, match=r"“x{50}”.*one, two\."):
        find_named("number", "x" * 1_000, among, REFUSAL, known=("one", "two"))


@for_each(
    [
        (language, *call)
        for language, call in product(
            LANGUAGES,
            [
                (find_platform, "platform", PLATFORMS),
                (meaning_of, "choice", MEANINGS),
                (find_kind, "kind", KINDS),
                (lambda name: Plan(policy=name), "policy", ("finish_first", "random", "priority")),
            ],
        )
    ]
)
def test_each_names_its_field_and_is_said_in_every_language(language, ask, field, known) -> None:
    with pytest.raises(FieldError) as caught:
        ask("zzz")
    sentence = caught.value.args[0]
    told = say(sentence, language)
    assert caught.value.field == field
    assert "zzz" in told
    assert ", ".join(known) in told
    assert language == "en" or told != sentence


@for_each(product(LANGUAGES, NUMBERS))
def test_a_number_out_of_range_is_told_in_words_and_in_every_language(language: str, field: str) -> None:
    take, wrong, bounds = NUMBERS[field]
    with pytest.raises(FieldError) as caught:
        take(wrong)
    sentence = caught.value.args[0]
    told = say(sentence, language)
    assert caught.value.field == field
    assert not told.startswith(field)
    assert "_" not in told
    for number in (str(abs(wrong)), *bounds):
        assert number in told.replace(",", ".")
    assert language == "en" or told != sentence


def test_the_ends_of_a_range_belong_to_it_and_no_number_does_not() -> None:
    for value in (0, 1, 0.5):
        check_range("share", Sentence("The share"), value, 0, 1)
    for wrong in (-0.001, 1.001, float("nan"), float("inf")):
        with pytest.raises(FieldError, match=r"share.*“.*”.*0 to 1"):
            check_range("share", Sentence("The share"), wrong, 0, 1)
    with pytest.raises(FieldError, match=r"“2”.*whole.*0 to 1"):
        check_range("share", Sentence("The share"), 2, 0, 1)


FORMS = jinja2.Template(
    "{% set made %}{{ problem.beside('a') }}|{{ problem.beside('b') }}{% endset %}{{ problem.above }}/{{ made }}"
)


@pytest.mark.parametrize(
    ("field", "page"), [("a", "/Not so.|"), ("b", "/|Not so."), ("c", "Not so./|"), ("", "Not so./|")]
)
def test_it_stands_in_one_place(field: str, page: str) -> None:
    problem = FormError("Not so.", field)
    assert problem
    assert FORMS.render(problem=problem) == page


def test_it_is_about_its_field_before_and_after_it_was_shown() -> None:
    problem = FormError("Not so.", "a")
    for _ in range(2):
        assert (problem.is_about("a"), problem.is_about("b")) == (True, False)
        problem.beside("a")


def test_nothing_wrong_is_about_nothing() -> None:
    problem = FormError()
    assert not problem
    assert not problem.is_about("")
    assert FORMS.render(problem=problem) == "/|"
