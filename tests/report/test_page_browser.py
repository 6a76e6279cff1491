"""The page in a browser: it fits a telephone, asks the network for nothing, and its own policy lets it be."""

import shutil
from pathlib import Path

import pytest

from tutelage.report import write_report

from .fake_round import make_round

CLIPPED = """() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
    const box = svg.closest('figure, td, .tile, .timings').getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const place = text.getBoundingClientRect();
        return place.left < box.left - 1 || place.right > box.right + 1;
    }).map(text => text.textContent);
})"""


@pytest.mark.browser
def test_the_page_fits_every_width_and_asks_for_nothing(tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None and not list(Path.home().glob(".cache/ms-playwright/chromium*")):
        pytest.skip("there is no Chromium")
    address = write_report(make_round(tmp_path)).as_uri()
    asked: list[str] = []
    complaints: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(address)
        page.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)")
        for width in (360, 768, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CLIPPED) == []
        browser.close()
    assert asked == [address]
    assert complaints == []
