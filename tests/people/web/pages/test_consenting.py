"""A study's own text about consent, asking again, and forgetting by the owner's page."""

import hashlib
import re
from pathlib import Path

import pytest

from tutelage.people import add_rater, backup, find_rater, get_rater, set_languages
from tutelage.people.export import export_study
from tutelage.people.restoration import import_export
from tutelage.people.settings import Consent
from tutelage.people.store.consents import shown_text
from tutelage.people.store.conversations import LiveModels, set_live_models

from ..conftest import World


def test_raters_agree_to_the_present_text_and_are_asked_again_for_another(world: World) -> None:
    rater = add_rater(world.store, world.study.id, "anna")
    browser, owner = world.browser_of(rater), world.owner()
    assert "What is kept." in browser.get("/welcome").text
    browser.form("/welcome", {"version": "0"})
    assert browser.next()["question"] is not None
    form = {"text": "# Yours\n\nYou may *go*. <script>x</script>", "votes": "erase", "retention_days": ""}
    assert owner.form("/owner/consent", form).status_code == 303
    assert browser.json("/rate/next", {}).status_code == 403
    page = browser.get("/welcome").text
    assert "You may <em>go</em>" in page
    assert "<script>x" not in page
    assert "What is kept." not in page
    late = browser.form("/welcome", {"version": "0"})  # a page of the text before
    assert late.headers["location"] == "/welcome"
    assert get_rater(world.store, rater.id).agreed == 0
    browser.form("/welcome", {"version": "1"})
    assert get_rater(world.store, rater.id).agreed == 1
    assert browser.next()["question"] is not None


def test_what_cannot_be_consented_to_is_told_beside_its_field(world: World) -> None:
    owner = world.owner()
    for field, bad in {"retention_days": "0", "votes": "sell", "text": "x" * 60_000}.items():
        form = {"text": "", "votes": "keep", "retention_days": "", field: bad}
        reply = owner.form("/owner/consent", form)
        assert reply.status_code == 400, field
        assert f'id="{field}-problem"' in reply.text


def test_an_owner_forgets_a_rater_only_when_sure(world: World) -> None:
    rater = add_rater(world.store, world.study.id, "Persephone")
    browser, owner = world.browser_of(rater), world.owner()
    backup(world.store)
    path = f"/owner/raters/{rater.id}"
    unsure = owner.form(f"{path}/forget")
    assert unsure.status_code == 400
    assert 'id="sure-problem"' in unsure.text
    done = owner.form(f"{path}/forget", {"sure": "yes"})
    assert done.status_code == 200
    assert "backups still hold" not in done.text, "it is erased there too"
    assert "Persephone" not in done.text
    assert find_rater(world.store, world.study.id, "Persephone") is None
    assert browser.get("/rate").status_code == 401
    for page in ("/owner/raters", "/owner/history", path):
        assert "Persephone" not in owner.get(page).text
    assert "This cannot be undone" not in owner.get(path).text
    assert owner.form(f"{path}/forget", {"sure": "yes"}).status_code == 400


@pytest.mark.parametrize("live", [False, True])
def test_an_export_has_the_standard_text_as_the_page_shows_it(world: World, live: bool) -> None:
    if live:
        set_live_models(world.store, world.study.id, LiveModels("old-model", "new-model"))
    rater = add_rater(world.store, world.study.id, "anna")
    page = world.browser_of(rater).get("/welcome").text
    shown = re.search(r'<ul class="points">(.*?)</ul>', page, re.DOTALL)
    assert shown is not None
    words = re.findall(r"\w+", re.sub(r"<[^>]*>", " ", shown[1]))
    assert words == re.findall(r"\w+", shown_text(Consent(), live=live))


def test_the_text_and_the_language_are_kept_as_they_were_shown(world: World, folder: Path) -> None:
    """In the manifest each text stands as raters saw it, and a restored study knows it all again."""
    set_languages(world.store, world.study.id, ("en", "de", "ar"))
    shown = {}
    for name, code in (("anna", "de"), ("berta", "de"), ("carl", "ar"), ("dora", "en")):
        browser = world.browser_of(add_rater(world.store, world.study.id, name))
        page = browser.get("/welcome", **{"accept-language": code}).text
        shown[code] = re.findall(r"<li><strong>(.+?)</strong> (.+?)</li>", page)
        browser.form("/welcome", {"version": "0", "language": code})
        assert browser.answer(browser.next()["question"]).status_code == 200
    made = export_study(world.store, world.study.id, folder / "out").manifest["consents"]
    *texts, _ = made
    assert [each["languages"] for each in texts if each["languages"]] == [
        {"en": 1}, {"de": 2}, {"ar": 1},
    ]  # fmt: skip
    for each, code in zip(texts, ("en", "de", "ar"), strict=True):
        assert each["text"] == "".join(f"- **{heading}** {said}\n" for heading, said in shown[code])
        assert each["sha256"] == hashlib.sha256(each["text"].encode()).hexdigest()
        assert each["judgements"] == each["raters"]
    again = import_export(world.store, folder / "out", name="again")
    assert export_study(world.store, again.id, folder / "second").manifest["consents"] == made
