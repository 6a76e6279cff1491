"""Raters at once over HTTP, on servers in processes of their own; and two servers on one file."""

import contextlib
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiers import long_except

from tutelage.commands.line import main
from tutelage.people import (
    Answer,
    Plan,
    Store,
    add_items,
    add_rater,
    create_study,
    list_questions,
    list_votes,
    open_store,
    start_session,
)
from tutelage.people.web.client import RaterClient
from tutelage.people.web.site import cookie_name

from .worlds import records

ITEMS, OVERLAP = 60, 3
PATIENCE_MS = 5_000
"""What 95 % of the answers stay below even on a busy machine; `collect simulate --think 2` measures."""


@contextlib.contextmanager
def serving(*where: str) -> Iterator[str]:
    """The address of `tutelage collect serve` in a process of its own."""
    words = [sys.executable, "-m", "tutelage", "collect", "serve", *where, "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.split()[:1] == ["address"]:
                yield line.split()[1]
                return
        raise AssertionError("the server ended before it was there")
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the raters value: the good responses of `worlds.records`."""
    (tmp_path / "likes_good.py").write_text(
        "def value(prompts, texts):\n    return [2.0 * t.startswith('good') for t in texts]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "likes_good:value"


def begin(url: str, items: int = ITEMS) -> Store:
    store = open_store(url)
    study = create_study(store, "crowd", plan=Plan(overlap=OVERLAP, gold_rate=0.0, repeat_rate=0.04))
    add_items(store, study.id, *records(items))
    return store


def answered(out: str) -> tuple[int, int]:
    """How many answers `collect simulate` says were acknowledged, and the 95th percentile in milliseconds."""
    found = re.search(r"([\d,]+) answers; half .* 95 % within ([\d,]+) ms", out)
    assert found is not None, out
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def refuse_losses(store: Store, acknowledged: int) -> None:
    """Everything that was acknowledged is there once, and every item has exactly its raters."""
    votes = list_votes(store, 1, every_revision=True)
    assert len(votes) == acknowledged
    assert set(Counter((vote.item, vote.rater, vote.repeat) for vote in votes).values()) == {1}
    first = Counter(vote.item for vote in votes if not vote.repeat and not vote.extra)
    assert {q.key: q.answered for q in list_questions(store, 1)} == dict(first)
    assert set(first.values()) == {OVERLAP}
    assert not [vote for vote in votes if vote.extra]


@pytest.mark.parametrize("raters", long_except([8], [8, 50]))
def test_raters_at_once_give_exact_overlap_and_lose_and_double_nothing(
    url: str, value: str, raters: int, capsys: pytest.CaptureFixture[str]
) -> None:
    store = begin(url, ITEMS if raters > 8 else 12)
    where = [url] if "://" not in url else ["crowd", "--db", url]
    simulate = ["collect", "simulate", *where, "--raters", str(raters), "--think", "0.2", "--gold", value]
    with serving(*where) as address:
        assert main([*simulate, "--url", address]) == 0
    out, err = capsys.readouterr()
    assert all(line.startswith("answers") for line in err.splitlines()), "nothing but its progress"
    acknowledged, late = answered(out)
    refuse_losses(store, acknowledged)
    assert late < PATIENCE_MS
    store.close()


@pytest.mark.long
def test_two_servers_on_one_file_give_exact_overlap(folder: Path) -> None:
    path = str(folder / "study.sqlite")
    store = begin(path, 24)
    acknowledged: list[str] = []

    def work(address: str, session: str) -> None:
        with contextlib.closing(RaterClient(address, session, cookie_name(store, secure=False))) as client:
            while (question := client.next()[0]) is not None:
                answer = Answer("left", 1)
                client.answer(question.id, answer)
                acknowledged.append(answer.key)

    with serving(path) as one, serving(path) as other:
        raters = [add_rater(store, 1, f"rater {number}", kind="simulated").id for number in range(6)]
        sessions = [start_session(store, rater) for rater in raters]
        threads = [
            threading.Thread(target=work, args=(one if number % 2 else other, session))
            for number, session in enumerate(sessions)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    refuse_losses(store, len(acknowledged))
    assert {vote.key for vote in list_votes(store, 1)} == set(acknowledged)
    store.close()
