"""How long a rater waits for the first words of a live conversation, beyond what the models themselves take.

    python -m bench.live_conversations [--raters 20] [--turns 3]

Three processes, as in a study: scripted models behind an OpenAI-compatible endpoint, the site, and raters over HTTP who
all send a message at the same moment. Each model waits a random while, writes the time into its first piece, and then
forty pieces more. Printed is the time from there until the piece is with the rater, for both answers of every turn; and
until it stands on the screen of one rater more, who uses Chromium at the same time.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tutelage.people import Plan, add_rater, consent, create_study, open_store, start_session
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.web import create_app
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.site import cookie_name
from tutelage.rollout.serving.policy_server import listen, server

PIECES = 40
WATCH = """() => new Promise((resolve) => {
    const stamp = /@([0-9.]+)@/;
    const seen = [];
    const look = () => document.querySelectorAll("#responses .text").forEach((card, place) => {
        const found = stamp.exec(card.textContent);
        if (found && !seen[place]) seen[place] = (performance.timeOrigin + performance.now()) / 1000 - Number(found[1]);
        if (seen[0] && seen[1]) resolve(seen);
    });
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
})"""


async def answer(request: Request) -> Response:
    """A scripted model."""
    await request.body()

    async def events() -> AsyncGenerator[bytes]:
        await asyncio.sleep(random.uniform(0.1, 0.6))
        for number in range(PIECES):
            text = f"@{time.time():.4f}@ " if number == 0 else f"word {number} "
            yield _event(text)
            await asyncio.sleep(0.02)
        yield _event("", "stop")

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(text: str, finish: str | None = None) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


def serve_models(listening: socket.socket) -> None:
    """The process of the models."""
    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    server(app).run(sockets=[listening])


def serve_site(listening: socket.socket, path: str) -> None:
    """The process of the site."""
    server(create_app(open_store(path))).run(sockets=[listening])


async def talk(url: str, cookie: str, session: str, turns: int, ready: asyncio.Barrier) -> list[float]:
    """The delays of a rater's first pieces."""
    headers = {"origin": url, "x-csrf-token": csrf_token(session), "cookie": f"{cookie}={session}"}
    delays: list[float] = []
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        conversation = None
        for number in range(turns):
            await ready.wait()
            message = {"conversation": conversation, "text": "Hello", "key": f"{session[:8]}{number}"}
            sent = (await client.post("/rate/messages", json=message)).json()
            conversation = sent["conversation"]
            async with client.stream("GET", f"/rate/turns/{sent['turn']}") as response:
                async for line in response.aiter_lines():
                    if "@" in line and '"html"' not in line:
                        delays += [time.time() - float(stamp) for stamp in line.split("@")[1:2]]
            question = (await client.post("/rate/next", json={"besides": []})).json()["question"]
            vote = {"assignment": question["id"], "choice": "left", "strength": 1, "key": f"v{session[:8]}{number}"}
            (await client.post("/rate/answers", json=vote)).raise_for_status()
    return delays


async def crowd(url: str, cookie: str, sessions: list[str], turns: int) -> list[float]:
    """The delays of all raters, who send at the same moments."""
    ready = asyncio.Barrier(len(sessions))
    found = await asyncio.gather(*(talk(url, cookie, each, turns, ready) for each in sessions))
    return [delay for delays in found for delay in delays]


def on_screen(url: str, cookie: str, session: str, turns: int, begin: Callable[[], None]) -> list[float]:
    """The same in Chromium, until the text is in the page; `begin` is called when the page can be written on."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from browser.chromium import ARGUMENTS, find

    delays: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=list(ARGUMENTS))
        page = browser.new_page()
        page.context.add_cookies([{"name": cookie, "value": session, "url": url}])
        page.goto(f"{url}/rate")
        page.wait_for_selector("#message:focus")
        begin()
        for _ in range(turns):
            page.wait_for_selector("#message:focus")
            page.keyboard.type("Hello")
            page.evaluate(f"() => {{ window.delays = ({WATCH})(); }}")
            page.keyboard.press("Enter")
            delays += page.evaluate("window.delays")
            page.wait_for_selector("#screen[data-question]")
            page.keyboard.press("1")
            page.keyboard.press("Enter")
        browser.close()
    return delays


def tell(what: str, delays: list[float]) -> None:
    milliseconds = sorted(1000 * delay for delay in delays)
    most = milliseconds[int(0.95 * (len(milliseconds) - 1))]
    print(
        f"{what:<32} {len(delays):>4} answers   median {statistics.median(milliseconds):6.0f} ms   "
        f"95 % {most:6.0f} ms   slowest {milliseconds[-1]:6.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raters", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/study.sqlite"
        models, site = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
        store = open_store(path)
        study = create_study(store, "talks", plan=Plan(overlap=1, gold_rate=0, repeat_rate=0))
        address = f"http://127.0.0.1:{models.getsockname()[1]}/v1#scripted"
        set_live_models(store, study.id, LiveModels(address, address, turns=100))
        sessions = []
        for number in range(asked.raters + 1):
            rater = add_rater(store, study.id, f"rater {number}")
            consent(store, rater.id)
            sessions.append(start_session(store, rater.id))
        cookie, url = cookie_name(store, secure=False), f"http://127.0.0.1:{site.getsockname()[1]}"
        store.close()
        fork = multiprocessing.get_context("fork")
        running = [
            fork.Process(target=serve_models, args=(models,), daemon=True),
            fork.Process(target=serve_site, args=(site, path), daemon=True),
        ]
        for process in running:
            process.start()
        over_http: list[float] = []
        others = threading.Thread(
            target=lambda: over_http.extend(asyncio.run(crowd(url, cookie, sessions[1:], asked.turns)))
        )
        screen = on_screen(url, cookie, sessions[0], asked.turns, others.start)
        others.join()
        tell(f"{asked.raters} raters over HTTP", over_http)
        tell("one in Chromium beside them", screen)
        for process in running:
            process.terminate()


if __name__ == "__main__":
    main()
