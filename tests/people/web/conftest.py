"""A site on a small study, and browsers of it that watch what they are sent."""

import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from tutelage.data.records import CompletionRecord
from tutelage.people import (
    Item,
    Plan,
    Presentation,
    Rater,
    Store,
    Study,
    add_items,
    add_rater,
    consent,
    create_study,
    start_session,
)
from tutelage.people.web import create_app
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.site import cookie_name

from ..worlds import QUIET, Clock, opened, records

URL = "http://site.test"
SECRETS = ("old-model", "new-model", "SAMPLING", "KNOWN-ANSWER", "ITEM-KEY")
"""What no rater may ever be sent: names of models, how they were asked, known answers, keys of items."""
_names = itertools.count()


class Browser:
    """Somebody's browser: it has a session or none, and sends what browsers send."""

    def __init__(self, client: TestClient, cookie: str, session: str = "", *, blind: bool = True) -> None:
        self.client, self.cookie, self.session, self.blind = client, cookie, session, blind

    def headers(self, **more: str) -> dict[str, str]:
        cookies = {"cookie": f"{self.cookie}={self.session}"} if self.session else {}
        return cookies | {"origin": URL} | more

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._seen(self.client.get(path, headers=self.headers(**headers)))

    def form(self, path: str, fields: Mapping[str, Any] | None = None, **headers: str) -> httpx.Response:
        data = {"csrf": csrf_token(self.session), **(fields or {})}
        return self._seen(self.client.post(path, data=data, headers=self.headers(**headers)))

    def json(self, path: str, data: object, **headers: str) -> httpx.Response:
        token = {"x-csrf-token": csrf_token(self.session)}
        return self._seen(self.client.post(path, json=data, headers=self.headers(**token, **headers)))

    def file(self, path: str, content: bytes, **headers: str) -> httpx.Response:
        token = {"x-csrf-token": csrf_token(self.session)}
        return self._seen(self.client.post(path, content=content, headers=self.headers(**token, **headers)))

    def next(self, besides: Sequence[int] = ()) -> dict[str, Any]:
        reply: dict[str, Any] = self.json("/rate/next", {"besides": list(besides)}).json()
        return reply

    def answer(self, question: Mapping[str, Any], choice: str = "left", **more: Any) -> httpx.Response:
        said = {"choice": choice, "strength": 1 if choice in ("left", "right") else 0, "key": f"k{next(_names)}"}
        return self.json("/rate/answers", {"assignment": question["id"], **said, **more})

    def _seen(self, response: httpx.Response) -> httpx.Response:
        if self.blind:
            found = [secret for secret in SECRETS if secret in response.text]
            assert not found, f"a rater was sent {found} by {response.request.url}"
        return response


class World:
    """A store, a study in it, and the site."""

    def __init__(self, store: Store, study: Study, **settings: Any) -> None:
        self.store, self.study = store, study
        self.app = create_app(store, **settings)
        self.client = TestClient(self.app, URL, follow_redirects=False, raise_server_exceptions=True)

    def nobody(self) -> Browser:
        return Browser(self.client, cookie_name(self.store, secure=False))

    def browser_of(self, rater: Rater) -> Browser:
        browser = self.nobody()
        browser.session = start_session(self.store, rater.id)
        browser.blind = rater.role == "rater"
        return browser

    def rater(self, name: str = "", **more: Any) -> Browser:
        """A rater who has agreed to take part."""
        rater = add_rater(self.store, self.study.id, name or f"rater {next(_names)}", **more)
        consent(self.store, rater.id)
        return self.browser_of(rater)

    def owner(self) -> Browser:
        return self.browser_of(add_rater(self.store, self.study.id, f"owner {next(_names)}", role="owner"))

    def reviewer(self) -> Browser:
        name = f"reviewer {next(_names)}"
        return self.browser_of(add_rater(self.store, self.study.id, name, role="reviewer"))


def make_study(store: Store, pairs: int = 6, plan: Plan = QUIET, name: str = "tutoring", **shown: Any) -> Study:
    """A study whose secrets can be recognised if they leak."""
    study = create_study(store, name, plan=plan, presentation=Presentation(**shown))
    prompts, completions, comparisons = records(pairs)
    marked = [replace(c, sampling="SAMPLING temperature 1") for c in completions]
    items = [replace(Item.of(c), key=f"ITEM-KEY/{c.id}") for c in comparisons]
    add_items(store, study.id, prompts, marked, items)
    return study


def add_known(store: Store, study: Study, pool: str, count: int = 2) -> None:
    """Questions with a known answer, which is b: the text that begins with "good"."""
    prompts, completions, comparisons = records(count, 1_000 if pool == "gold" else 2_000)
    items = [
        replace(Item.of(c), key=f"ITEM-KEY/{pool}/{c.id}", pool=pool, gold="b", explanation="Because *good* is good.")
        for c in comparisons
    ]
    add_items(store, study.id, prompts, completions, items)


def hostile(texts: Sequence[str]) -> list[CompletionRecord]:
    """Responses to the prompt p0."""
    return [CompletionRecord(f"p0h{n}", "p0", text, "old-model") for n, text in enumerate(texts)]


@pytest.fixture
def lite(folder: Path) -> Iterator[Store]:
    made = opened(folder / "study.sqlite", Clock())
    yield made
    made.close()


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    database, study, seconds = _usual_study()
    store = opened(folder / "world.sqlite", Clock(seconds), database)
    yield World(store, study)
    store.close()


@cache
def _usual_study() -> tuple[bytes, Study, float]:
    """The database of `world`, which is made once and copied, its study, and the time at which it was ready."""
    with tempfile.TemporaryDirectory() as name:
        clock = Clock()
        store = opened(Path(name) / "world.sqlite", clock)
        study = make_study(store, criteria=("clear", "accurate"), guidelines="# Rules\n\nBe *kind*.")
        store.close()
        return (Path(name) / "world.sqlite").read_bytes(), study, clock.seconds


def csrf_in(page: str) -> str:
    """The token in a page."""
    found = re.search(r'name="csrf-token" content="([0-9a-f]+)"', page)
    assert found is not None
    return found[1]
