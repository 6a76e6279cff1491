"""Votes from a file in the browser: sent, looked at, imported, all or nothing."""

import json
import re
from pathlib import Path

import pytest

from tutelage.people import Store, create_study, list_questions, list_raters, list_votes
from tutelage.people.web.uploads import KEPT_SECONDS, Uploads

from ...worlds import Clock
from ..conftest import Browser, World

TABLE = (
    "instruction,input,output_1,output_2,label,annotator\n"
    "Add,1 and 2,3,12,1,Anna\nAdd,1 and 2,3,12,2,bert\nSay,hello,hi,<b>hello</b>,0,ANNA\n"
)
MAPPED = "&prompt=instruction&prompt=input&a=output_1&b=output_2&choice=label&rater=annotator"
WORDS = "&word=1&means=a&word=2&means=b&word=0&means=tie"


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
    for field, column in (("a", "output_1"), ("b", "output_2"), ("choice", "label"), ("rater", "annotator")):
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
        "file": token, "prompt": ["instruction", "input"], "a": "output_1", "b": "output_2", "choice": "label",
        "rater": "annotator", "word": ["1", "2"], "means": ["a", "b"],
    }  # fmt: skip
    refused = owner.form("/owner/import", fields)
    assert refused.status_code == 400
    assert "Nothing was imported: 1 of the votes" in refused.text
    assert not list_questions(empty.store, empty.study.id)
    assert owner.form("/owner/import", fields | {"means": ["a", "x"]}).status_code == 400
    done = owner.form("/owner/import", fields | {"partial": "yes"})
    assert "2 new votes" in done.text
    assert "Left out 1" in done.text


def test_annotators_in_columns(empty: World) -> None:
    owner = empty.owner()
    wide = "prompt,a,b,Anna,Bert\nSay,x,y,a,b\nAsk,x,y,,tie\n"
    page = owner.get(send(owner, wide) + "&prompt=prompt&a=a&b=b&annotators=Anna&annotators=Bert").text
    assert "3 votes by 2 raters (2 of them new) on 2 items." in page
    assert "--annotators Anna Bert" in page


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("votes.txt", "a", "of no kind"),
        ("votes.csv.gz", "a", "of no kind"),
        ("votes.csv", " ", "is empty"),
        ("votes.csv", "\0", "binary file"),
        ("votes.json", "{", "no valid JSON|not valid JSON"),
        ("..%2F..%2Fetc%2Fx.csv", "one\n", "no rows"),
    ],
)
def test_a_file_that_is_no_table_is_refused_by_its_own_name(
    empty: World, name: str, content: str, complaint: str
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


def test_a_large_file_is_taken_and_a_larger_one_refused(
    empty: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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
