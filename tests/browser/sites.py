"""A site in a thread, small studies on it, and what a person does with the keyboard."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from playwright.sync_api import Page, Route, expect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import (
    Item,
    Plan,
    Presentation,
    Store,
    Study,
    add_items,
    add_rater,
    consent,
    create_invite,
    create_study,
    start_session,
)
from tutelage.people.export import export_study
from tutelage.people.live_conversation import Models, only_endpoints
from tutelage.people.settings import NewInvitation
from tutelage.people.web import create_app
from tutelage.people.web.site import cookie_name
from tutelage.rollout.serving.asgi_server import listen, server

QUIET = Plan(overlap=1, gold_rate=0, repeat_rate=0)
SECRETS = ("SECRET-", '"gold"', '"pool"', '"sampler"')
"""What only an owner's pages may hold: models, how they were asked, known answers."""


class Watched:
    """An application whose answers are looked at on their way out: `leaks` names those that tell a rater too much."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.leaks: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def watch(message: Message) -> None:
            body.extend(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, watch)
        path = scope.get("path", "")
        if "/owner" not in path and "/static/" not in path:
            text = body.decode(errors="replace")
            self.leaks += [f"{path}: {secret}" for secret in SECRETS if secret in text]


class Site:
    """A running server; `settings` are those of `create_app`."""

    def __init__(self, store: Store, **settings: Any) -> None:
        self.store, self.settings = store, settings
        self.models: Models = only_endpoints

    def __enter__(self) -> "Site":
        self._socket = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._watched = Watched(self.application())
        self._server = server(self._watched)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def application(self) -> ASGIApp:
        """The application that is served."""
        return create_app(self.store, models=lambda name: self.models(name), **self.settings)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._socket.close()
        assert self._watched.leaks == []

    def study(
        self,
        texts: Sequence[Sequence[str]] = (),
        *,
        pairs: int = 4,
        kind: str = "pair",
        plan: Plan = QUIET,
        pool: str = "production",
        name: str = "tutoring",
        **shown: Any,
    ) -> Study:
        """A study about these responses, or about so many plain pairs."""
        study = create_study(self.store, name, kind=kind, plan=plan, presentation=Presentation(**shown))  # type: ignore[arg-type]
        self.add(study, texts or [(f"first {n}", f"second {n}") for n in range(pairs)], pool=pool)
        return study

    def add(self, study: Study, texts: Sequence[Sequence[str]], *, pool: str = "production", start: int = 0) -> None:
        """More questions; those of other pools have a as their known answer. Each prompt has two criteria."""
        prompts, completions, items = [], [], []
        for number, responses in enumerate(texts, start):
            rubric = [f"Is right about {number}", "__proto__"]  # the name of what every object has
            prompts.append(Prompt(f"p{number}", user(f"Question {number}?"), data={"rubric": rubric}))
            keys = [f"p{number}r{place}" for place in range(len(responses))]
            completions += [
                CompletionRecord(key, f"p{number}", text, f"SECRET-MODEL-{place}", "SECRET-SAMPLING")
                for place, (key, text) in enumerate(zip(keys, responses, strict=True))
            ]
            gold = None if pool == "production" else "a"
            items.append(
                Item(f"i{number}", f"p{number}", tuple(keys), pool=pool, gold=gold, explanation="*First* comes first.")  # type: ignore[arg-type]
            )
        add_items(self.store, study.id, prompts, completions, items)

    def invitation(self, study: Study, **more: Any) -> str:
        return f"{self.url}/join/{create_invite(self.store, study.id, NewInvitation(**more)).secret}"

    def sign_in(self, page: Page, study: Study, name: str = "anna", *, role: str = "rater", **more: Any) -> int:
        """Let the page's browser be a rater who has agreed to take part; the rater's number."""
        rater = add_rater(self.store, study.id, name, role=role, **more)  # type: ignore[arg-type]
        consent(self.store, rater.id)
        self.recognise(page, rater.id)
        return rater.id

    def recognise(self, page: Page, rater: int) -> None:
        """Let the page's browser be this rater."""
        cookie = {"name": cookie_name(self.store, secure=False), "value": start_session(self.store, rater)}
        page.context.add_cookies([cookie | {"url": self.url}])  # type: ignore[list-item]

    def exported(self, study: Study, folder: Path) -> list[dict[str, Any]]:
        """The judgements as an export has them."""
        export_study(self.store, study.id, folder)
        return [json.loads(line) for line in (folder / "votes.jsonl").read_text().splitlines()]


@dataclass(frozen=True)
class Shown:
    """What is on the screen: the number of the question and the texts from left to right."""

    question: str
    texts: tuple[str, ...]


def shown(page: Page, besides: str = "") -> Shown:
    """Wait for a question (another one than `besides`) and read it."""
    other = f':not([data-question="{besides}"])' if besides else ""
    page.wait_for_selector(f"#screen[data-question]{other}")
    number = page.get_attribute("#screen", "data-question")
    assert number is not None
    return Shown(number, tuple(page.locator("#responses .text").all_inner_texts()))


class Requests:
    """The requests of a page to an address, each of which is handed to `answer`. This has to be made before the page is
    opened: a page that is there already begins to hand its requests over some time after it was told to, and those that
    it makes meanwhile go through."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.answer: Callable[[Route], object] = self.let
        page.route(pattern, lambda route: self.answer(route))

    @staticmethod
    def let(route: Route) -> None:
        """Let the request through."""
        route.continue_()

    @staticmethod
    def lose(route: Route) -> None:
        """Let the request fail, as without a network."""
        route.abort("internetdisconnected")


def press(page: Page, keys: str) -> None:
    """Press keys one after another: `press(page, "2 f 1 Escape Enter")`."""
    for key in keys.split():
        page.keyboard.press(key)


def open_rating(page: Page, site: Site) -> Shown:
    """Open the rater's screen and wait for its first question, in its own fonts: they move what is below."""
    page.goto(f"{site.url}/rate")
    first = shown(page)
    page.evaluate("document.fonts.ready.then(() => true)")
    return first


def is_narrow(page: Page) -> bool:
    """Whether nothing reaches beyond the sides of the screen."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def ready(page: Page, count: int = 3) -> None:
    """Wait until so many questions lie ready in the browser."""
    expect(page.locator("#screen")).to_have_attribute("data-ready", str(count))


def until(reached: Callable[[], bool]) -> None:
    """Wait for something that no page shows."""
    limit = time.monotonic() + 90
    while not reached():
        assert time.monotonic() < limit
        time.sleep(0.02)


def saved(page: Page) -> None:
    """Wait until everything is with the server."""
    expect(page.locator("#save")).to_have_attribute("data-state", "saved")


def go(page: Page, heading: str, name: str) -> None:
    """Go to a page of the owner by the menu."""
    page.click(f"nav summary:has-text('{heading}')")
    page.click(f"nav details[open] a:has-text('{name}')")
