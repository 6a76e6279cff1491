"""The page in a browser: it fits a telephone, asks the network for nothing, and its own policy lets it be."""

from pathlib import Path

from playwright.sync_api import Browser
from report.fake_round import make_round

from tutelage.report.page import write_report

CLIPPED = """() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
    const box = svg.closest('figure, td, .tile, .timings').getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const place = text.getBoundingClientRect();
        return place.left < box.left - 1 || place.right > box.right + 1;
    }).map(text => text.textContent);
})"""


def test_the_page_fits_every_width_and_asks_for_nothing(tmp_path: Path, chromium: Browser) -> None:
    address = write_report(make_round(tmp_path)).as_uri()
    asked: list[str] = []
    complaints: list[str] = []
    page = chromium.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)")
    for width in (360, 768, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CLIPPED) == []
    page.close()
    assert asked == [address]
    assert complaints == []
