"""Languages: which is taken, and how sentences, numbers and days are said in it."""

import pickle

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.people.languages import LANGUAGES, Sentence, Share, check_languages, choose_language, counted, say
from tutelage.people.languages.catalogue import date, number, script_words, translations

QUOTA = (
    "You have given the one answer you were asked for. Thank you!",
    "You have given all the %(count)s answers you were asked for. Thank you!",
)


def test_each_language_knows_its_direction() -> None:
    assert {code: each.direction for code, each in LANGUAGES.items()} == {
        "en": "ltr", "de": "ltr", "es": "ltr", "zh": "ltr", "ar": "rtl",
    }  # fmt: skip


@for_each(
    [
        (("de",), ("en", "ar"), "de"),
        (("de", "en"), ("fr", "en"), "en"),
        (("de", "en"), (), "de"),
        (("ar", "en"), ("en", "ar"), "en"),
        ((), ("es", "en"), "es"),
        ((), (), "en"),
    ]
)
def test_the_first_wanted_language_that_is_offered_is_taken(
    offered: tuple[str, ...], wanted: tuple[str, ...], found: str
) -> None:
    assert choose_language(offered, wanted) == found


@pytest.mark.parametrize("codes", [(), ("tlh",), ("de", "de"), ("de", "")])
def test_languages_that_cannot_be_are_refused(codes: tuple[str, ...]) -> None:
    with pytest.raises(TutelageError, match=r"Deutsch|once"):
        check_languages(codes)


def test_a_sentence_is_english_and_can_be_said_otherwise() -> None:
    sentence = Sentence("The study “%(name)s” does not recruit on a platform any more.", name="x % y")
    assert sentence == "The study “x % y” does not recruit on a platform any more."
    assert say(sentence, "en") == sentence
    assert say(sentence, "de") == "Die Studie „x % y“ sucht nicht mehr über eine Plattform nach Teilnehmenden."
    assert say(str(sentence), "de") == sentence  # a text that is no Sentence is somebody's own
    assert say(pickle.loads(pickle.dumps(sentence)), "de") == say(sentence, "de")


def test_counts_take_the_form_of_the_language() -> None:
    assert [str(counted(*QUOTA, count=n)) for n in (1, 2, 12_345)] == [
        QUOTA[0], QUOTA[1] % {"count": "2"}, QUOTA[1] % {"count": "12,345"},
    ]  # fmt: skip
    assert "12.345 Urteile" in say(counted(*QUOTA, count=12_345), "de")
    assert say(counted(*QUOTA, count=1), "es") == "Ha dado la única valoración que se le pidió. ¡Gracias!"
    assert "2" not in say(counted(*QUOTA, count=2), "ar")  # the dual says it


def test_arabic_nouns_agree_with_their_number() -> None:
    told = {
        n: translations("ar").ngettext("%(count)s answered", "%(count)s answered", n) for n in (0, 1, 2, 5, 25, 100)
    }
    assert told == {
        0: "لا تقييمات بعد",
        1: "تقييم واحد",
        2: "تقييمان",
        5: "%(count)s تقييمات",
        25: "%(count)s تقييمًا",
        100: "%(count)s تقييم",
    }  # fmt: skip


def test_numbers_and_days_are_written_as_the_reader_expects() -> None:
    assert {code: number(1_234_567, code) for code in LANGUAGES} == {
        "en": "1,234,567", "de": "1.234.567", "es": "1.234.567", "zh": "1,234,567", "ar": "1,234,567",
    }  # fmt: skip
    day = 1_700_000_000_000
    assert {code: date(day, code) for code in LANGUAGES} == {
        "en": "November 14, 2023",
        "de": "14. November 2023",
        "es": "14 de noviembre de 2023",
        "zh": "2023年11月14日",
        "ar": "14 نوفمبر 2023",
    }


def test_scripts_get_their_words_from_the_same_catalogue() -> None:
    words = script_words("de")
    assert words["messages"]["Saving…"] == "Wird gespeichert …"  # type: ignore[index]
    assert "Goodbye" not in words["messages"]  # type: ignore[operator]  # no script says it
    assert script_words("en") == {"messages": {}, "forms": {}}
    assert script_words("de") is words


def test_shares_and_numbers_of_a_sentence_are_written_as_the_language_does() -> None:
    sentence = Sentence("Known answers (%(gold)s) and questions asked again (%(repeats)s) take more than half of all "
                        "questions together.", gold=Share(0.4), repeats=Share(0.256, 1))  # fmt: skip
    assert sentence.startswith("Known answers (40%) and questions asked again (25.6%)")
    assert "(40\N{NO-BREAK SPACE}%)" in say(sentence, "de")
    assert "(25,6\N{NO-BREAK SPACE}%)" in say(sentence, "de")
    assert say(pickle.loads(pickle.dumps(sentence)), "de") == say(sentence, "de")
    bounds = Sentence("%(what)s is “%(given)s”; give a number from %(least)s to %(most)s.",
                      what=Sentence("The pay"), given="x", least=0.1, most=86_400.0)  # fmt: skip
    assert bounds == "The pay is “x”; give a number from 0.1 to 86,400."
    assert say(bounds, "de") == "Bezahlung: „x“ geht nicht; geben Sie eine Zahl von 0,1 bis 86.400 an."
