"""A problem is shown once: beside its field, or above the forms where no field of the page has it."""

import jinja2
from offenders import for_each

from tutelage.people.web.problems import Problem

FORMS = jinja2.Template(
    "{% set made %}{{ problem.beside('a') }}|{{ problem.beside('b') }}{% endset %}{{ problem.above }}/{{ made }}"
)


@for_each([("a", "/Not so.|"), ("b", "/|Not so."), ("c", "Not so./|"), ("", "Not so./|")])
def test_it_stands_in_one_place(field: str, page: str) -> None:
    problem = Problem("Not so.", field)
    assert problem
    assert FORMS.render(problem=problem) == page


def test_it_is_about_its_field_before_and_after_it_was_shown() -> None:
    problem = Problem("Not so.", "a")
    for _ in range(2):
        assert (problem.is_about("a"), problem.is_about("b")) == (True, False)
        problem.beside("a")


def test_nothing_wrong_is_about_nothing() -> None:
    problem = Problem()
    assert not problem
    assert not problem.is_about("")
    assert FORMS.render(problem=problem) == "/|"
