"""The board of runs in a browser: it follows, chooses, zooms and searches."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tutelage.commands.board import server

from .test_accessibility import faults

Visit = Callable[..., Page]


def add(folder: Path, first: int, last: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(
            json.dumps({"step": n, "seconds": n, "own": n % 7, "loss": 1 / n}) + "\n" for n in range(first, last + 1)
        )
    with (folder / "samples.jsonl").open("a") as file:
        file.write(
            json.dumps({"step": last, "prompt": f"Why {last}?", "completion": f"Because of {folder.name}."}) + "\n"
        )


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    add(tmp_path / "sft", 1, 50)
    add(tmp_path / "other", 1, 40)
    running = server(tmp_path, 0)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}/"
    running.shutdown()
    running.server_close()
    thread.join(5)


def test_a_board_follows_runs_and_zooms_into_them(address: str, tmp_path: Path, visit: Visit) -> None:
    page = visit(hurried=True)
    page.goto(address)
    expect(page.locator("#runs tbody tr")).to_have_count(2)
    expect(page.locator("#runs tbody tr").nth(1)).to_contain_text("50")
    add(tmp_path / "sft", 51, 80)
    expect(page.locator("#runs tbody tr").nth(1)).to_contain_text("80")
    page.get_by_label("show other").uncheck()
    expect(page.locator("#samples")).not_to_contain_text("Because of other.")
    page.locator("summary").click()
    expect(page.locator("#more figure")).not_to_have_count(0)
    drawing = page.locator("[data-plot] svg").first
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    low, high, start, end = map(float, str(page.locator("[data-plot]").first.get_attribute("data-plot")).split())
    assert (low, high) == (1, 80)

    def across(share: float) -> float:
        return box["x"] + box["width"] * (start + (end - start) * share)

    page.mouse.move(across(0.25), box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(across(0.75), box["y"] + box["height"] / 2)
    page.mouse.up()
    expect(page.locator("[name=low]")).not_to_have_value("")
    assert float(page.locator("[name=low]").input_value()) == pytest.approx(1 + 79 / 4, abs=0.5)
    assert float(page.locator("[name=high]").input_value()) == pytest.approx(1 + 79 * 3 / 4, abs=0.5)
    expect(page.locator("[data-plot]").first).to_have_attribute("data-plot", reaching("21", "60"))
    page.locator("[data-plot] svg").first.dblclick()
    expect(page.locator("[name=low]")).to_have_value("")
    page.locator("[name=search]").fill("why 80")
    expect(page.locator("#samples h2")).to_have_text("Samples (1)")
    page.reload()
    expect(page.get_by_label("show other")).not_to_be_checked()
    expect(page.locator("#samples h2")).to_have_text("Samples (1)")
    page.locator("[name=over]").select_option("seconds")
    page.locator("[name=log]").check()
    expect(page.locator("[data-plot]").first).to_be_visible()


def test_following_keeps_focus_and_place_and_shows_new_runs(address: str, tmp_path: Path, visit: Visit) -> None:
    page = visit(hurried=True)
    page.goto(address)
    summary = page.locator("summary")
    summary.focus()
    add(tmp_path / "new", 1, 30)
    expect(page.get_by_label("show new")).to_be_checked()
    expect(summary).to_be_focused()
    drawing = page.locator("[data-plot] svg").first
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(2, 2)
    page.mouse.up()
    add(tmp_path / "sft", 51, 70)
    expect(page.locator("#runs tbody tr").nth(2)).to_contain_text("70")
    for each in ("new", "other", "sft"):
        page.get_by_label(f"show {each}").uncheck()
        if each != "sft":
            expect(page.locator("#samples")).not_to_contain_text(f"Because of {each}.")
    expect(page.locator("input[name=run]:checked")).to_have_count(3)


def test_a_board_with_long_names_fits_a_phone_and_axe_finds_nothing(address: str, tmp_path: Path, visit: Visit) -> None:
    folder = tmp_path / ("long-name-" * 8) / "seed-1"
    add(folder, 1, 30)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 31, "a_metric/" + "of_a_long_name_" * 6: 1}) + "\n")
    with (folder / "samples.jsonl").open("a") as file:
        file.write(json.dumps({"step": 99, "prompt": "x" * 300, "completion": "A line.\n" * 60}) + "\n")
    page = visit(width=360, height=740, dark=True, bypass_csp=True)
    page.goto(address)
    page.locator("summary").click()
    expect(page.locator("#more figure")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert faults(page) == []


def reaching(low: str, high: str) -> re.Pattern[str]:
    """The attribute of a chart from `low` to `high`."""
    return re.compile(rf"^{low}(\.\d+)? {high}(\.\d+)? ")
