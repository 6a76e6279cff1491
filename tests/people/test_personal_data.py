"""What is found in texts, what is not taken for it, and texts without it."""

import re
import sys
import time
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.extras import MissingExtra
from tutelage.people import personal_data
from tutelage.people.personal_data import KINDS, PersonalDataSearch, move_position

HOLD = (
    ("Write to anna.schmidt@example.org if it breaks.", "email"),
    ("Meine Adresse: p.mueller+studie@uni-jena.de", "email"),
    ("Contact <bob_77@mail.co.uk>, please", "email"),
    ("اكتب إلى sara@example.com", "email"),
    ("请发到 li.wei@example.cn。", "email"),
    ("Call me at +49 30 901820 tomorrow.", "phone"),
    ("My number is (212) 555-2368.", "phone"),
    ("Ruf an: 030 901820", "phone"),
    ("Mobil 0151 23456789", "phone"),
    ("Llámeme al 612 345 678.", "phone"),
    ("+86 138 1234 5678 是我的电话", "phone"),
    ("My phone: 020 7946 0958", "phone"),
    ("هاتفي +20 100 123 4567", "phone"),
    ("My IBAN is DE89 3704 0044 0532 0130 00.", "iban"),
    ("IBAN GB82WEST12345698765432 bitte", "iban"),
    ("ES91 2100 0418 4502 0005 1332", "iban"),
    ("I paid with 4111 1111 1111 1111.", "card"),
    ("card 5500-0000-0000-0004 expires soon", "card"),
    ("amex 378282246310005", "card"),
    ("The server 192.168.12.7 logged me out", "ip"),
    ("My address is 84.112.3.9, says the site", "ip"),
    ("ping 2001:db8:85a3::8a2e:370:7334 fails", "ip"),
    ("My name is Amina Yusuf and I am a nurse.", "name"),
    ("Ich heiße Jonas Weber.", "name"),
    ("Me llamo Lucía Fernández y vivo aquí.", "name"),
    ("我叫王小明，在北京工作。", "name"),
    ("اسمي سارة أحمد", "name"),
    ("I live at 221B Baker Street in London.", "address"),
    ("Ich wohne in der Goethestraße 14, 07743 Jena.", "address"),
    ("Vivo en la Calle Mayor 12, Madrid.", "address"),
    ("Send it to 1600 Pennsylvania Avenue NW.", "address"),
)
"""Sentences with what they hold."""
FREE = (
    "The sum of 1 to 100 is 5050.",
    "Pi is 3.14159265358979323846.",
    "2^31 - 1 = 2147483647",
    "6.02214076 × 10^23 per mole",
    "The speed of light is 299 792 458 m/s.",
    "1 000 000 000 000 is a million millions.",
    "In 1914-1918 and 1939-1945 there were wars.",
    "Section 4.2.1.3 of the standard",
    "version 10.0.26100.1 of the program",
    "12 345 678 people live there",
    "Fibonacci: 1 1 2 3 5 8 13 21 34 55 89 144",
    "x = 0.30 901 820 / 7",
    "ISBN 978-3-16-148410-0",
    "RFC 2119 says MUST",
    "1234567890123456 is even",
    "The matrix is 1 0 0 0 1 0 0 0 1.",
    "print(f'{a@b}') multiplies matrices",
    "x @ y is a matrix product",
    "Use a.b@c as a decorator",
    "10:30:45 is a time",
    "2024-11-23T10:15:00Z",
    "The ratio is 16:9",
    "a::b is a slice",
    "std::vector<int> v;",
    "GCTAGCTAGCTA is DNA",
    "The name of the rose is a novel.",
    "It is called Paris.",
    "Hauptsatz 14 der Analysis",
    "Street food costs 5 dollars.",
    "Take the second street on the left.",
    "Der Weg 3 ist kürzer als Weg 4.",
    "49.99 € instead of 59.99 €",
    "0, 1, 1, 2, 3, 5",
    "7 × 8 = 56 and 9 × 9 = 81",
    "1e-300 underflows",
    "phone numbers have digits",
    "DE89 is a postcode in no country",
    "4111 is a prime, 1111 is not",
    "my name is not important",
    "Ich heiße das nicht gut.",
    "Me llamo la atención",
    "The answer is 42.",
    "1/3 = 0.333333333333333333",
    "sqrt(2) = 1.41421356237309504880",
    "65536 65537 65538",
    "030 is octal for 24",
    "Call f(212, 555, 2368).",
    "He won 6-4 7-6 6-3.",
    "100 200 300 400 500",
    "It was 20 7946 years ago",
)
"""Sentences that hold nothing, though some look like it: mathematics, versions, code, years."""


@pytest.fixture(scope="module")
def search() -> PersonalDataSearch:
    return PersonalDataSearch(["Ada Lovelace", "Al", "prolific 7"])


@for_each(HOLD)
def test_what_people_write_about_themselves_is_found(text: str, kind: str, search: PersonalDataSearch) -> None:
    (finding,) = search.find(text)
    assert finding.kind == kind
    assert search.redact(text) == f"{text[: finding.start]}[{kind}]{text[finding.end :]}"


@for_each(FREE)
def test_numbers_of_other_things_are_left_alone(text: str, search: PersonalDataSearch) -> None:
    assert search.find(text) == ()
    assert search.redact(text) == text


@for_each(
    [
        "pay to DE89 3704 0044 0532 0130 01",  # wrong check digits
        "card 4111 1111 1111 1112",
        "ping 300.1.2.3",
        "anna (at) example (dot) org",  # nothing finds these: the documentation says so
        "call two one two, five five five",
        "Yusuf was here, and lives near the station",
    ]
)
def test_what_is_not_found(text: str, search: PersonalDataSearch) -> None:
    assert search.find(text) == ()


def test_names_of_raters_are_found_as_whole_words(search: PersonalDataSearch) -> None:
    assert search.redact("Ask Ada Lovelace, or prolific 7.") == "Ask [name], or [name]."
    assert search.redact("Ada Lovelaces, Also, Al, unprolific 7") == "Ada Lovelaces, Also, Al, unprolific 7"


def test_several_findings_keep_their_places(search: PersonalDataSearch) -> None:
    text = "Anna: a@b.org, +49 30 901820, DE89 3704 0044 0532 0130 00; IP 10.1.2.3"
    assert search.redact(text) == "Anna: [email], [phone], [iban]; IP [ip]"
    assert search.redact(search.redact(text)) == search.redact(text)


WHOLE = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+@(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,24}")
"""An e-mail address in one expression, which takes the square of the length of a word."""


@given(st.text("ab.@-_ 1é", max_size=24))
@example("a@b.de.c@d.de")
def test_addresses_are_those_of_one_expression(search: PersonalDataSearch, text: str) -> None:
    found = [(each.start, each.end) for each in search.find(text) if each.kind == "email"]
    assert found == [match.span() for match in WHOLE.finditer(text)]


def test_a_long_word_is_searched_once(search: PersonalDataSearch) -> None:
    began = time.monotonic()
    assert [each.kind for each in search.find("a." * 100_000 + " a@b.de")] == ["email"]
    assert time.monotonic() - began < 20


def test_digits_between_slashes_are_no_telephone_number_and_take_no_time(search: PersonalDataSearch) -> None:
    began = time.monotonic()
    text = "1/1/1/" * 10_000
    (found,) = search.find(text + " Call me at +49 30 901820.")
    assert (found.kind, found.start) == ("phone", len(text) + 12)
    assert time.monotonic() - began < 2


def test_positions_outside_of_findings_mark_the_same_words() -> None:
    search = PersonalDataSearch()
    text = "ä first a@b.org then 10.1.2.3 at the end"
    findings, after = search.find(text), search.redact(text)
    inside = {place for each in findings for place in range(each.start + 1, each.end)}
    for start, end in combinations(range(len(text) + 1), 2):
        words = after[move_position(start, findings) : move_position(end, findings, end=True)]
        if not inside & {start, end}:
            assert words == search.redact(text[start:end]) or any(
                start < each.end and each.start < end for each in findings
            )
        assert words  # never empty: what was marked is marked still
    assert [after[move_position(e.start, findings) : move_position(e.end, findings, end=True)] for e in findings] == [
        "[email]",
        "[ip]",
    ]
    assert [
        after[move_position(e.start + 1, findings) : move_position(e.end - 1, findings, end=True)] for e in findings
    ] == ["[email]", "[ip]"]


def test_every_kind_has_a_sentence() -> None:
    assert {kind for _, kind in HOLD} == set(KINDS)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    personal_data._libraries.cache_clear()
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    with pytest.raises(MissingExtra, match=r"phonenumbers.*tutelage\[personal\]"):
        PersonalDataSearch()


def test_addresses_of_images_are_left_as_they_are() -> None:
    """A hash has digits that look like telephone numbers; the words of an image are searched as ever."""
    name = "0301234567" * 6 + "0301.png"
    text = f"+49 30 901820 ![+49 30 901820](images/{name}) +49 30 901820"
    assert PersonalDataSearch().redact(text) == f"[phone] ![[phone]](images/{name}) [phone]"
