"""How the rating store fares under load: a large study, measured from outside, on SQLite or PostgreSQL.

    python bench/people_load.py [--items 200000] [--votes-per-item 5] [--raters 200] [--db PATH_OR_URL]

Fifty raters over HTTP are measured by the command itself:

    tutelage collect simulate STUDY --raters 50 --think 2 --answers 20

Prints one line per measurement: what, median and 95th percentile in milliseconds; the processor time of this thread
tells the work from the waiting on a machine that is busy with other things.
"""

import argparse
import hashlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.testclient import TestClient

from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import (
    Answer,
    Item,
    Plan,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    list_questions,
    next_assignment,
    open_store,
    replan,
    start_session,
    submit,
    survey,
)
from tutelage.people.store.bulk import AnswerRecord, write_answers
from tutelage.people.web import create_app
from tutelage.people.web.site import cookie_name

CHUNK = 20_000
SITE = "http://site.test"
TEXT = "A sentence of some length that a model might have written about the question. " * 4


def build(store: Store, items: int, per_item: int, raters: int) -> Study:
    """A study with `per_item` votes on each item, given by `raters` raters in turn."""
    study = create_study(store, "load", plan=Plan(overlap=per_item, gold_rate=0.0, repeat_rate=0.0))
    names = [add_rater(store, study.id, f"rater {n}", kind="simulated").name for n in range(raters)]
    for start in range(0, items, CHUNK):
        numbers = range(start, min(items, start + CHUNK))
        prompts = [Prompt(f"p{n}", user(f"Question {n}?")) for n in numbers]
        completions = [CompletionRecord(f"p{n}{s}", f"p{n}", f"{s} {n} {TEXT}", s) for n in numbers for s in "ab"]
        add_items(
            store, study.id, prompts, completions, [Item(f"c{n}", f"p{n}", (f"p{n}a", f"p{n}b")) for n in numbers]
        )
    told = [vote for n in range(items) for vote in votes_on(n, per_item, names)]
    write_answers(store, study.id, told, source="bench")
    return study


def votes_on(number: int, per_item: int, names: list[str]) -> Iterator[AnswerRecord]:
    for k in range(per_item):
        rater = (number + k * 7919) % len(names)
        coin = hashlib.blake2b(f"{number}/{k}".encode(), digest_size=2).digest()
        order = (0, 1) if coin[0] % 2 else (1, 0)
        answer = Answer("left" if coin[1] % 3 else "right", 1 + coin[1] % 3, key=f"{number}/{k}")
        yield AnswerRecord(f"c{number}", names[rater], order, answer, 1_700_000_000_000 + number)


def measure(what: str, action: Callable[[], object], times: int) -> None:
    """Time an action so many times and print the result."""
    seconds = []
    work = time.thread_time()
    for _ in range(times):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    report(what, seconds, (time.thread_time() - work) / times)


def report(what: str, seconds: list[float], work: float | None = None) -> None:
    """One line: median, 95th percentile, and the mean processor time where it is known."""
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    processor = "" if work is None else f"   {work * 1e3:8.2f} ms of processor"
    median = statistics.median(ordered)
    print(f"{what:52s} {median * 1e3:9.2f} {late * 1e3:9.2f} ms{processor}   n={len(ordered)}", flush=True)


def answer_next(store: Store, rater_id: int) -> bool:
    question = next_assignment(store, rater_id)
    if question is None:
        return False
    submit(store, question.id, Answer("left", 2))
    return True


@dataclass(frozen=True)
class Crowd:
    """Seconds of every question served and of every vote accepted while many raters answered, and what went wrong."""

    asked: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)


def crowd(store: Store, raters: list[int], seconds: float, pause: float) -> Crowd:
    """All raters at once in threads of their own, for so long, with a pause after each vote. They begin one after the
    other within the first pause."""
    told = Crowd()
    end = time.perf_counter() + seconds

    def rate(rater_id: int, late: float) -> None:
        try:
            time.sleep(late)
            while time.perf_counter() < end:
                start = time.perf_counter()
                question = next_assignment(store, rater_id)
                told.asked.append(time.perf_counter() - start)
                if question is None:
                    return
                start = time.perf_counter()
                submit(store, question.id, Answer("left", 2))
                told.answered.append(time.perf_counter() - start)
                time.sleep(pause)
        except BaseException as error:
            told.failures.append(error)

    threads = [
        threading.Thread(target=rate, args=(rater_id, pause * number / len(raters)))
        for number, rater_id in enumerate(raters)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


@contextmanager
def built(folder: str, items: int, per_item: int, raters: int) -> Iterator[tuple[Store, Study]]:
    """Inside, a store in a folder with a study of `build`, in which one more rater is wanted on each item."""
    store = open_store(str(Path(folder) / "load.sqlite"))
    study = build(store, items, per_item, raters)
    replan(store, study.id, Plan(per_item + 1, gold_rate=0.0, repeat_rate=0.0))
    try:
        yield store, study
    finally:
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--votes-per-item", type=int, default=5)
    parser.add_argument("--raters", type=int, default=200)
    parser.add_argument("--db", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = args.db or str(Path(folder) / "load.sqlite")
        store = open_store(url)
        start = time.perf_counter()
        study = build(store, args.items, args.votes_per_item, args.raters)
        votes, seconds = args.items * args.votes_per_item, time.perf_counter() - start
        print(f"built {args.items} items and {votes} votes in {seconds:.0f} s", flush=True)
        store.close()
        measure("open the database", lambda: open_store(url).close(), 3)
        measure_study(open_store(url), study, args.raters)


def measure_study(store: Store, study: Study, raters: int) -> None:
    """Everything a rater or an owner waits for."""
    if store.path is not None:
        print(f"file {store.path.stat().st_size / 1e6:.0f} MB")
    measure("owner: counts, rounds, models", lambda: survey(store, study.id), 5)
    measure("owner: 50 most disputed items", lambda: list_questions(store, study.id, disagreed=True, limit=50), 5)
    new = [add_rater(store, study.id, f"new {n}", kind="simulated").id for n in range(50)]
    measure("next: everything is complete", lambda: next_assignment(store, new[0]), 5)
    overlap = study.plan.overlap + 1
    measure("owner: one more rater per item", lambda: replan(store, study.id, Plan(overlap, "finish_first", 0, 0)), 1)
    for policy in ("finish_first", "random", "priority"):
        replan(store, study.id, Plan(overlap, policy, 0.05, 0.04))  # type: ignore[arg-type]
        measure(f"next and answer, {policy}, a new rater", lambda: answer_next(store, new[1]), 100)
        measure(f"next and answer, {policy}, one with many answers", lambda: answer_next(store, 1), 100)
    told = crowd(store, new, seconds=20, pause=0.5)
    report(f"next question, {len(new)} raters at once", told.asked)
    report(f"answer, {len(new)} raters at once", told.answered)
    print(f"failures: {len(told.failures)} {told.failures[:1]}")
    measure_pages(store, study)


def measure_pages(store: Store, study: Study) -> None:
    """The owner's pages: the first look, when no figures are there yet, and later ones."""
    site = TestClient(create_app(store), SITE)
    owner = add_rater(store, study.id, "owner of the load", role="owner")
    cookie = f"{cookie_name(store, secure=False)}={start_session(store, owner.id)}"

    def look(page: str) -> str:
        response = site.get(page, headers={"cookie": cookie})
        assert response.status_code == 200, response.text
        return response.text

    measure("owner's page, the first look", lambda: look("/owner"), 1)
    began = time.perf_counter()
    while "numbers" not in look("/owner"):
        time.sleep(0.2)
    print(f"its figures are there after {time.perf_counter() - began:.1f} s", flush=True)
    for page in ("/owner", "/owner/raters", "/owner/items?by=disagreement", "/owner/models"):
        measure(page, lambda page=page: look(page), 5)  # type: ignore[misc]


if __name__ == "__main__":
    main()
