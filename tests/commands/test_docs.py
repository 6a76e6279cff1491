"""The pages of the documentation in the terminal and in a browser."""

import re
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from tutelage.commands.docs import title_of, web_page
from tutelage.commands.line import main
from tutelage.commands.pages import page_named, pages


def test_without_a_page_every_page_is_listed(capsys):
    assert main(["docs"]) == 0
    lines = capsys.readouterr().out
    assert [
        name
        for name, file in pages().items()
        if not re.search(f"{re.escape(name)} +{re.escape(title_of(file))}", lines)
    ] == []


def test_a_page_is_printed_with_names_for_links_to_pages(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["docs", "prolific"]) == 0
    page = capsys.readouterr().out
    assert "tutelage collect payments" in page
    assert "(collecting)" in page
    assert ".md" not in page


def test_a_page_opens_in_a_browser_and_its_links_and_pictures_are_files(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["docs", "collecting", "--open"]) == 0
    assert opened == capsys.readouterr().out.split()
    missing = []
    for page in Path(urlparse(opened[0]).path).parent.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="(file:[^"#]+)', page.read_text(encoding="utf-8")):
            if not Path(unquote(urlparse(link).path)).exists():
                missing.append((page.name, link))
    assert missing == []


def test_a_page_without_a_cache_is_written_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "<h1" in web_page(page_named("data")).read_text(encoding="utf-8")


def test_a_page_that_is_not_there_is_refused(capsys):
    assert main(["docs", "nowhere"]) == 2
    assert "'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["data", "index"])
def test_anchors_are_those_of_the_headings(word, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    page = page_named(word)
    headings = re.findall(r"^## ", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(re.findall(r'<h2 id="[^"]+"', web_page(page).read_text(encoding="utf-8"))) == len(headings)
