"""The page in a browser: it fits a telephone, asks the network for nothing, and its own policy lets it be."""

import shutil
from pathlib import Path

import pytest
from fake_round import make_round

from tutelage.evaluate.report import write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(make_round(tmp_path_factory.mktemp("round"))).as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_page_fits_and_asks_for_nothing(address: str, width: int, scheme: str) -> None:
    api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None and not list(Path.home().glob(".cache/ms-playwright/chromium*")):
        pytest.skip("there is no Chromium")
    asked: list[str] = []
    complaints: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(address)
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        clipped = page.evaluate(
            """() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
                const box = svg.closest('figure, td, .tile, .timings').getBoundingClientRect();
                return [...svg.querySelectorAll('text')].filter(t => {
                    const r = t.getBoundingClientRect();
                    return r.left < box.left - 1 || r.right > box.right + 1;
                }).map(t => t.textContent);
            })"""
        )
        browser.close()
    assert clipped == []
    assert asked == [address]
    assert complaints == []
