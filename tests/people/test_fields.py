"""Errors of single values: names that are not known."""

import pytest

from tutelage.people.fields import FieldError, find_named
from tutelage.people.kinds import KINDS, find_kind
from tutelage.people.languages import LANGUAGES, say
from tutelage.people.platforms import PLATFORMS, find_platform
from tutelage.people.store.studies import Plan
from tutelage.people.vote_columns import MEANINGS, meaning_of
from tutelage.sentences import Sentence

REFUSAL = Sentence("“%(given)s” is none of %(known)s.")


def test_what_has_the_name_is_found_and_an_unknown_name_is_told_what_is_known() -> None:
    among = {"one": 1, "two": 2, "uno": 1}
    assert find_named("number", "two", among, REFUSAL) == 2
    with pytest.raises(FieldError, match="“three” is none of one, two, uno") as caught:
        find_named("number", "three", among, REFUSAL)
    assert caught.value.field == "number"
    with pytest.raises(FieldError, match=r"“x{50}” is none of one, two\."):
        find_named("number", "x" * 1_000, among, REFUSAL, known=("one", "two"))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("ask", "field", "known"),
    [
        (find_platform, "platform", PLATFORMS),
        (meaning_of, "means", MEANINGS),
        (find_kind, "kind", KINDS),
        (lambda name: Plan(policy=name), "policy", ("finish_first", "random", "priority")),
    ],
    ids=["platform", "meaning", "kind", "order"],
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
