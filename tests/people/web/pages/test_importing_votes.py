"""Votes from a file in the browser: sent, looked at, imported, all or nothing."""

import json
import re
from pathlib import Path

import pytest
from babel.messages.extract import extract_from_dir
from offenders import for_each

from tutelage.data.tables import SIGNATURES
from tutelage.people import Store, create_study, list_questions, list_raters, list_votes
from tutelage.people.languages import LANGUAGES
from tutelage.people.languages.catalogue import catalogue
from tutelage.people.languages.extraction import PEOPLE
from tutelage.people.web.uploads import KEPT_SECONDS, Uploads

from ...worlds import Clock
from ..conftest import Browser, World

TABLE = (
    "instruction,input,output_1,output_2,label,annotator\n"
    "Add,1 and 2,3,12,1,Anna\nAdd,1 and 2,3,12,2,bert\nSay,hello,hi,<b>hello</b>,0,ANNA\n"
)
MAPPED = "&prompt=instruction&prompt=input&a=output_1&b=output_2&choice_column=label&rater=annotator"
WORDS = "&choice=1%3Da&choice=2%3Db&choice=0%3Dtie"


@pytest.fixture
def empty(lite: Store) -> World:
    return World(lite, create_study(lite, "foreign"))


def send(browser: Browser, content: str = TABLE, name: str = "votes.csv") -> str:
    """Send a file; the address of its preview."""
    reply = browser.file(f"/owner/import/file?name={name}", content.encode())
    assert reply.status_code == 200, reply.text
    address: str = reply.json()["address"]
    return address


def test_columns_that_are_called_as_usual_are_found_and_words_are_asked_for(empty: World) -> None:
    owner = empty.owner()
    page = owner.get(send(owner)).text
    assert "3 rows" in page
    for field, column in (("a", "output_1"), ("b", "output_2"), ("choice_column", "label"), ("rater", "annotator")):
        chosen = page.split(f'<select id="{field}" name="{field}">')[1].split("</select>")[0]
        assert f'<option value="{column}" selected>' in chosen
    assert page.count('<option value="">not known</option>') == 3
    assert "the choice &#39;1&#39; is not known" in page
    assert not list_questions(empty.store, empty.study.id)


def test_what_is_imported_is_what_the_preview_said(empty: World) -> None:
    owner = empty.owner()
    page = owner.get(send(owner) + MAPPED + WORDS).text
    assert "3 votes by 2 raters (2 of them new) on 2 items." in page
    assert "&lt;b&gt;hello&lt;/b&gt;" in page
    assert "--choice 1=a --choice 2=b --choice 0=tie" in page.replace("&#39;", "'")
    assert not list_raters(empty.store, empty.study.id)[1:]
    form = page.split('<form method="post" class="actions">')[1].split("</form>")[0]
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form):
        fields.setdefault(name, []).append(value)
    done = owner.form("/owner/import", {name: value for name, value in fields.items() if name != "csrf"})
    assert "3 new votes by 2 new raters on 2 new items" in done.text
    votes = list_votes(empty.store, empty.study.id)
    assert sorted((vote.rater, vote.verdict) for vote in votes if vote.verdict == "tie") == [("Anna", "tie")]
    assert len(votes) == 3
    assert owner.form("/owner/import", {"file": fields["file"]}).status_code == 404  # it is forgotten


def test_nothing_is_imported_where_something_cannot_be_used(empty: World) -> None:
    owner = empty.owner()
    address = send(owner)
    token = address.split("file=")[1]
    fields = {
        "file": token, "prompt": ["instruction", "input"], "a": "output_1", "b": "output_2", "choice_column": "label",
        "rater": "annotator", "choice": ["1=a", "2=b"],
    }  # fmt: skip
    refused = owner.form("/owner/import", fields)
    assert refused.status_code == 400
    assert "Nothing was imported: 1 of the votes" in refused.text
    assert not list_questions(empty.store, empty.study.id)
    assert owner.form("/owner/import", fields | {"choice": ["1=a", "2=x"]}).status_code == 400
    done = owner.form("/owner/import", fields | {"partial": "yes"})
    assert "2 new votes" in done.text
    assert "Left out 1" in done.text


def test_annotators_in_columns(empty: World) -> None:
    owner = empty.owner()
    wide = "prompt,a,b,Anna,Bert\nSay,x,y,a,b\nAsk,x,y,,tie\n"
    page = owner.get(send(owner, wide) + "&prompt=prompt&a=a&b=b&annotators=Anna&annotators=Bert").text
    assert "3 votes by 2 raters (2 of them new) on 2 items." in page
    assert "--annotators Anna Bert" in page


@for_each(
    [
        ("votes.txt", "a", "of no kind"),
        ("votes.csv.gz", "a", "of no kind"),
        ("votes.csv", " ", "is empty"),
        ("votes.csv", "\0", "binary file"),
        ("votes.json", "{", "no valid JSON|not valid JSON"),
        ("..%2F..%2Fetc%2Fx.csv", "one\n", "no rows"),
    ]
)
def test_a_file_that_is_no_table_is_refused_by_its_own_name(
    name: str, content: str, complaint: str, empty: World
) -> None:
    reply = empty.owner().file(f"/owner/import/file?name={name}", content.encode())
    assert reply.status_code == 400
    assert re.search(complaint, reply.json()["error"])
    assert "tutelage-upload" not in reply.text
    assert "/" not in reply.json()["error"].split(" ")[0]


def test_pairs_without_votes_are_told_what_to_do(empty: World) -> None:
    owner = empty.owner()
    page = owner.get(send(owner, "prompt,chosen,rejected\nSay,good,bad\n", "pairs.csv"))
    assert page.status_code == 200
    assert "collect init STUDY --from-pairs pairs.csv" in page.text


def test_a_file_of_another_owner_is_out_of_reach(empty: World) -> None:
    address = send(empty.owner())
    page = empty.owner().get(address)
    assert "not here any more" in page.text
    assert "output_1" not in page.text


def test_a_large_file_is_taken_and_a_larger_one_refused(empty: World, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = empty.owner()
    large = json.dumps([{"prompt": "x" * 700_000}])
    assert owner.file("/owner/import/file?name=x.json", large.encode()).status_code == 200
    monkeypatch.setitem(__import__("tutelage.people.web.call", fromlist=["LONGEST"]).LONGEST, "file", 1_000)
    assert owner.file("/owner/import/file?name=x.json", large.encode()).status_code == 413
    assert owner.form("/owner/import", {"file": "x" * 600_000}).status_code == 413


def test_uploads_are_forgotten_and_leave_nothing_behind() -> None:
    clock = Clock(0.0)
    uploads = Uploads(clock)
    first = uploads.keep(1, "a.csv", b"x\n1\n")
    second = uploads.keep(1, "b.csv", b"x\n1\n")
    other = uploads.keep(2, "C:\\files\\c.csv", b"x\n1\n")
    assert other.name == "c.csv"
    assert uploads.find(1, first.token) is None
    assert uploads.find(1, second.token) == second
    assert uploads.find(2, second.token) is None
    uploads.drop(2)
    assert not other.path.exists()
    clock.seconds += KEPT_SECONDS + 1
    assert uploads.find(1, second.token) is None
    assert list(Path(second.path).parent.parent.iterdir()) == []


DEEP = "[" * 100_000
RANKS = "A ranking gives each of the %(places)s responses a rank from 1 to %(places)s."
LACKS = (
    "Each of the %(places)s responses is rated from 1 to %(scale)s on %(criteria)s; this answer lacks a rating or has "
    "another one."
)
NO_TABLES: list[tuple[str, bytes, str]] = [
    ("a.csv", b"prompt,a\n\xff,1\n", "%(name)s is not UTF-8 (line %(line)s, byte %(byte)s); save it as UTF-8."),
    ("a.json", DEEP.encode(), "%(name)s is nested too deeply to be a table."),
    ("a.json", b"1" * 5_000, "%(name)s is no valid JSON: a number in it has too many digits."),
    ("a.json", b"[1,\n,]", "%(name)s is no valid JSON from line %(line)s, character %(column)s on."),
    *(
        ("a.json", content, "%(name)s holds %(type)s, not a list of rows.")
        for content in (b"null", b"true", b"12", b'"x"')
    ),
    ("a.json", b'[{"a": 1, "a": 2}]', "%(name)s gives the key %(key)s of an object twice."),
    ("a.json", b"{}", "%(name)s holds an empty object, not a list of rows."),
    (
        "a.json",
        b'{"x": [{"y": 1}], "z": [{"y": 2}]}',
        "%(name)s holds an object with %(count)s lists of rows where exactly one is needed (its keys: %(keys)s).",
    ),
    *(
        (name, content, "No row of %(name)s can be read; the first, %(where)s: %(reason)s.")
        for name, content in (("a.jsonl", b"{"), ("a.json", b"[1]"), ("a.json", b"[[]]"), ("a.csv", b"prompt,a\nx\n"))
    ),
    ("a.csv", b'prompt,a\n"x,y\n', "%(name)s is no valid CSV from line %(line)s on; look at its quotation marks."),
    ("a.csv", b"x,x\n1,2\n", "%(name)s names a column twice in its header: %(names)s."),
    (
        "a.parquet",
        b"PAR1....PAR1",
        "%(name)s is a damaged Parquet file, or one of a kind that is not read here (pyarrow: %(detail)s).",
    ),
    ("a.csv", b" ", "%(name)s is empty."),
    ("a.csv", b"\xff\xfea", "%(name)s is text in UTF-16; save it as UTF-8."),
    ("a.txt", b"x", "%(name)s is of no kind that can be read here: use %(endings)s."),
    ("a.csv", b"prompt\n", "%(name)s holds no rows."),
    *(("a.csv", signature + b"....", sentence.message) for signature, sentence in SIGNATURES.items()),
    ("a.parquet", b"....", "%(name)s is not a Parquet file: it does not begin as one."),
    ("a.csv", b"<html>", "%(name)s is an HTML page (perhaps an error page saved by a download), not %(kind)s."),
    ("a.csv", b"a\x00b", "%(name)s is a binary file, not %(kind)s."),
]
"""Files that are no table: name, content, and the sentence that says why."""


def pattern(sentence: str) -> re.Pattern[str]:
    """What a sentence becomes with any values."""
    return re.compile(re.sub(r"%\\\((\w+)\\\)s", "(.+)", re.escape(sentence)), re.S)


def test_every_reason_why_a_file_is_no_table_is_among_those_that_are_sent() -> None:
    found = extract_from_dir(
        str(PEOPLE.parent / "data"), [("**.py", "python")], keywords={"Sentence": None, "refusal": None}
    )
    reasons = {str(message) for _, _, message, _, _ in found if "%(name)s" in str(message)}
    unsent = {
        "Reading %(name)s",  # where pyarrow is not installed
        "%(name)s is a spreadsheet's error, %(value)s",  # of a column, in a row
        "%(name)s is no complete gzip file.",  # uploads are not compressed
        "%(name)s unfolds to more than %(most)s; split it.",  # tests/data/test_tables.py has it
    }
    assert {sentence for _, _, sentence in NO_TABLES} == reasons - unsent


@for_each(LANGUAGES)
def test_why_a_file_is_no_table_is_said_in_the_language(language: str, empty: World) -> None:
    owner = empty.owner()
    known = catalogue(language) if language != "en" else None
    for name, content, sentence in NO_TABLES:
        reply = owner.file(f"/owner/import/file?name={name}", content, **{"accept-language": language})
        told = reply.json()["error"]
        said = pattern(str(known[sentence].string) if known else sentence).fullmatch(told)
        assert said, f"{language}: {told}"


@for_each(
    [
        ("de", "Keine Zeile von a.json lässt sich lesen; die erste, Datenzeile 1: eine Zahl statt eines Objekts."),
        ("es", "No se puede leer ninguna fila de a.json; la primera, fila 1: un número en lugar de un objeto."),
        ("zh", "a.json 中没有任何一行可以读取；首先是第 1 行数据：一个数字，而不是对象。"),
        ("ar", "لا يمكن قراءة أي صف من a.json؛ أولها الصف 1: عدد بدلًا من كائن."),
    ]
)
def test_what_a_sentence_names_is_in_the_language_too(language: str, told: str, empty: World) -> None:
    reply = empty.owner().file("/owner/import/file?name=a.json", b"[1]", **{"accept-language": language})
    assert reply.json()["error"] == told


@for_each(
    [
        ("en", ["1 cell instead of 3", "(line 3)", "2 cells instead of 3", "(line 4)"]),
        ("de", ["1 Zelle statt 3", "(Zeile 3)", "2 Zellen statt 3", "(Zeile 4)"]),
        ("es", ["1 celda en lugar de 3", "(línea 3)", "2 celdas en lugar de 3", "(línea 4)"]),
        ("zh", ["1 个单元格，应为 3 个", "(第 3 行文本)", "2 个单元格，应为 3 个", "(第 4 行文本)"]),
        ("ar", ["خلية واحدة بدلًا من 3", "(السطر 3)", "خليتان بدلًا من 3", "(السطر 4)"]),
    ]
)
def test_rows_that_cannot_be_read_are_named_in_the_language(language: str, told: list[str], empty: World) -> None:
    owner = empty.owner()
    address = send(owner, "prompt,a,b\nSay,x,y\nSay\nSay,x\n") + "&prompt=prompt&a=a&b=b&choice_column=a&rater=b"
    page = owner.get(address, **{"accept-language": language}).text
    for words in told:
        assert words in page


@pytest.mark.parametrize(
    ("kind", "cells", "sentence"),
    [("ranking", "rank_a,rank_b\n{}1,9\n", RANKS), ("likert", "overall_a,overall_b\n{}1,99\n", LACKS)],
)
def test_answers_that_do_not_fit_the_kind_of_question_are_refused_in_the_language(
    lite: Store, kind: str, cells: str, sentence: str
) -> None:
    world = World(lite, create_study(lite, "foreign", kind=kind))
    owner = world.owner()
    table = "prompt,a,b,who," + cells.format("Say,x,y,Ann,")
    address = send(owner, table) + "&prompt=prompt&a=a&b=b&choice_column=a&rater=who"
    for language in LANGUAGES:
        page = owner.get(address, **{"accept-language": language}).text
        said = sentence if language == "en" else str(catalogue(language)[sentence].string)
        assert pattern(said).search(page), language
