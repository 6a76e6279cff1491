"""Better responses and marked words on the pages: what raters send, and what owners set, read and find."""

import re
from html import unescape

import pytest

from tutelage.people import Store, list_votes, open_study
from tutelage.people.store.studies import list_versions

from ..conftest import Browser, World, make_study

SHOWN = {"corrections": True, "spans": ("fact", "tone")}
HOSTILE = "better <script>alert(1)</script> & more"


@pytest.fixture
def correcting(lite: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("tutelage.people.statistics.cache.PROMPT_SECONDS", 1_000.0)
    return World(lite, make_study(lite, 3, **SHOWN))


def said(world: World, rater: Browser, **more: object) -> dict[str, object]:
    """Answer the next question with a better response made from the good one, and two marks on it."""
    question = rater.next()["question"]
    place = [text["text"].startswith("good") for text in question["responses"]].index(True)
    spans = [{"response": place, "start": 0, "end": 4, "category": name} for name in ("fact", "tone")]
    sent = {"correction": {"text": HOSTILE, "response": place}, "spans": spans, **more}
    reply = rater.answer(question, "tie", **sent)
    assert reply.status_code == (200 if not more else 400), reply.text
    return reply.json() | {"sent": sent}


def test_the_screen_has_what_the_study_asks_for(correcting: World) -> None:
    page = correcting.rater().get("/rate").text
    plain = World(correcting.store, make_study(correcting.store, 1, name="plain")).rater().get("/rate").text
    for part in ("open-correction", "open-spans", "palette", 'data-category="tone"', "additions.css"):
        assert part in page
        assert part not in plain


def test_what_was_sent_comes_back_to_its_rater_alone(correcting: World) -> None:
    anna, bert = correcting.rater("anna"), correcting.rater("bert")
    sent = said(correcting, anna)["sent"]
    (answer,) = anna.get("/rate/recent").json()["answers"]
    assert {name: answer["answer"][name] for name in ("correction", "spans")} == sent
    assert "alert" not in str(bert.next())
    assert bert.get("/rate/recent").json()["answers"] == []


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"correction": "x"}, "A correction is an object"),
        ({"correction": {"text": "x", "response": 9}}, "no response 10"),
        ({"spans": [{"response": 0, "start": 0, "end": 1, "category": "mine"}]}, "not a category"),
        ({"spans": [{"response": 0}]}, "Spans are a list"),
    ],
)
def test_what_is_no_correction_is_refused(correcting: World, more: dict[str, object], sentence: str) -> None:
    assert sentence in str(said(correcting, correcting.rater(), **more)["error"])
    assert list_votes(correcting.store, correcting.study.id) == ()


def test_the_page_of_an_item_shows_differences_and_marks(correcting: World) -> None:
    said(correcting, correcting.rater("anna"))
    (vote,) = list_votes(correcting.store, correcting.study.id)
    owner = correcting.owner()
    found = owner.get("/owner/items?corrected=yes").text
    assert "1 item" in found
    page = owner.get(f"/owner/items/{vote.item.replace('/', '%2F')}").text
    assert "<script>alert" not in page
    (changed,) = re.findall(r'<details class="correction" open>(.*?)</details>', page, re.S)
    assert "from B" in changed
    number = vote.item.removeprefix("ITEM-KEY/c")
    assert [unescape(text) for text in re.findall(r"<del>(.*?)</del>", changed)] == [f"good {number}"]
    assert [unescape(text) for text in re.findall(r"<ins>(.*?)</ins>", changed)] == [HOSTILE]
    assert "<mark>good</mark>" in page
    assert re.search(r"fact,\s+tone", page)
    about_anna = owner.get(f"/owner/raters/{_number(owner, 'anna')}?said=corrected").text
    assert "better response</span>" in about_anna
    assert "2 marks" in about_anna
    told = owner.get("/owner/export").text
    assert "1 better response = 1 used: 1 demonstration and 1 pair" in re.sub(r"\s+", " ", told)


def _number(owner: Browser, name: str) -> str:
    found = re.search(rf'/owner/raters/(\d+)">{name}<', owner.get("/owner/raters").text)
    assert found is not None
    return found[1]


def test_the_settings_say_what_raters_may_do(correcting: World) -> None:
    owner, store = correcting.owner(), correcting.store
    page = owner.get("/owner/settings").text
    assert 'name="corrections" value="yes" checked' in page
    assert "fact\ntone</textarea>" in page
    fields = {"question": "Which?", "scale": "3", "spans": "fact\r\n\r\n fact \r\nlogic"}
    assert owner.form("/owner/settings/question", fields).status_code == 303
    shown = open_study(store).presentation
    assert (shown.corrections, shown.spans) == (False, ("fact", "logic"))
    assert [version.corrections for version in list_versions(store, correcting.study.id)] == [True, False]
    many = "\n".join(f"category {number}" for number in range(10))
    refused = owner.form("/owner/settings/question", fields | {"spans": many, "corrections": "yes"})
    assert refused.status_code == 400
    assert 'id="spans-problem"' in refused.text
    assert "category 9</textarea>" in refused.text
    assert 'name="corrections" value="yes" checked' in refused.text
