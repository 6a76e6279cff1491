"""A Chromium, and sites for it to visit."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from people.worlds import opened
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .chromium import ARGUMENTS, find
from .sites import Site

PATIENCE = int(os.environ.get("P", "90000"))
"""Milliseconds: a machine that is shared with others may be slow at any moment."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


HURRY = """for (const name of ["setTimeout", "setInterval"]) {
    const own = window[name];
    window[name] = (call, wait = 0, ...given) => own(call, wait / 10, ...given);
}"""


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of the folder; each has its own contexts in it. While it is open, an event loop of
    Playwright counts as running in this thread, so `asyncio.run` fails in it."""
    path = find()
    if path is None:
        pytest.skip("There is no Chromium here: `make browser` gets one.")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def site() -> Iterator[Site]:
    """A server with an empty database."""
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder) / "study.sqlite", time.time)
        with Site(store) as running:
            yield running
        store.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """`visit(width=1280, dark=False, …)`: a page of a browser of its own. Any error of a script fails the test. With
    `hurried` its timers run in a tenth of their times, where a test would only wait for them."""
    contexts, errors = [], []

    def new(width: int = 1280, height: int = 860, dark: bool = False, hurried: bool = False, **more: object) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            **more,  # type: ignore[arg-type]
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        if hurried:
            context.add_init_script(HURRY)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield new
    for context in contexts:
        context.close()
    assert errors == []
