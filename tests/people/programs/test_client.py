"""The client against a site: what it returns, what it sends again, and what it says when something is wrong."""

import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_preferences
from tutelage.data.transport import HttpRefusal, Unanswered
from tutelage.people import Store, Study, list_events, list_questions, preferences
from tutelage.people.programs.client import StudyClient
from tutelage.people.programs.signatures import signed_headers
from tutelage.people.settings import RIGHTS, NewToken
from tutelage.people.store.api_tokens import create_token
from tutelage.people.web import create_app

from ..sites import serving
from ..worlds import raters_of, study_of, work

ROWS = [{"prompt": f"New {n}?", "chosen": f"right {n}", "rejected": f"wrong {n}"} for n in range(3)]


class Unreliable:
    """An application whose answers get lost, after it has done what was asked, as often as it is told to."""

    def __init__(self, app: Any) -> None:
        self.app, self.losses = app, itertools.repeat(False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        lost = scope["type"] == "http" and next(self.losses, False)

        async def lose(message: Any) -> None:
            return

        await self.app(scope, receive, lose if lost else send)


@pytest.fixture
def study(lite: Store) -> Study:
    return study_of(lite, 3)


@pytest.fixture
def app(lite: Store) -> Unreliable:
    return Unreliable(create_app(lite))


@pytest.fixture
def url(app: Unreliable) -> Iterator[str]:
    with serving(app) as address:
        yield address


@pytest.fixture
def client(lite: Store, study: Study, url: str) -> Iterator[StudyClient]:
    token = create_token(lite, study.id, NewToken("the test", RIGHTS)).secret
    with StudyClient(url, token, wait=0.0) as found:
        yield found


def test_everything_comes_in_types(lite: Store, study: Study, client: StudyClient, tmp_path: Path) -> None:
    work(lite, raters_of(lite, study, 2))
    found = client.overview()
    assert (found.study, found.items, found.items_done, found.votes) == ("tutoring", 3, 3, 6)
    assert client.agreement().value == 1.0
    assert [item.key for item in client.items(state="done")] == [q.key for q in list_questions(lite, study.id)]
    assert list(client.items(pool="gold")) == []
    assert [rater.answered for rater in client.raters()] == [3, 3]
    assert {row.chosen for row in client.preferences(min_votes=2)} == {f"good {n}" for n in range(3)}
    assert client.preferences(kinds=("llm",), use_strength=False) == ()
    assert len(client.votes()) == 6
    assert client.export(tmp_path / "preferences.jsonl") == 3
    assert load_preferences(tmp_path / "preferences.jsonl").records == preferences(lite, study.id)
    assert client.export(tmp_path / "votes.jsonl", "votes") == 6
    assert json.loads((tmp_path / "votes.jsonl").read_text().splitlines()[0])["displayed"]


def test_votes_are_imported_as_their_preview_says(lite: Store, study: Study, client: StudyClient) -> None:
    rows = [{"prompt": f"{n}?", "a": "yes", "b": "no", "won": "a", "who": f"r{n % 2}"} for n in range(3)]
    columns = {"a": "a", "b": "b", "choice_column": "won", "rater": "who"}
    preview = client.preview_votes(rows, **columns)
    assert (preview.votes, preview.new_raters, preview.items) == (3, 2, 3)
    assert client.overview().votes == 0
    report = client.import_votes(rows, **columns)
    assert (report.votes, report.raters, report.items, report.known) == (3, 2, 3, 0)
    assert client.overview().votes == 3
    assert client.import_votes(rows, **columns).known == 3


def test_lists_come_page_by_page(
    lite: Store, study: Study, client: StudyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    raters_of(lite, study, 5)
    whole = list(client.items()), list(client.raters())
    monkeypatch.setattr("tutelage.people.programs.client.PAGE", 2)
    assert (list(client.items()), list(client.raters())) == whole
    assert tuple(map(len, whole)) == (3, 5)


def test_an_addition_whose_answer_is_lost_is_made_once(
    lite: Store, study: Study, client: StudyClient, app: Unreliable
) -> None:
    app.losses = iter([True, True])
    added = client.add(ROWS)
    assert (added.items, added.known) == (3, 0)
    assert len(list_events(lite, study.id, action="items_added")) == 2  # the other one made the study
    assert client.add(ROWS[:2]).known == 2


def test_a_server_that_is_away_is_asked_again_and_then_given_up(
    lite: Store, client: StudyClient, app: Unreliable
) -> None:
    app.losses = iter([True] * 4)
    assert client.overview().items == 3
    nobody = StudyClient("http://127.0.0.1:1", "token", wait=0.0, retries=1)
    with nobody, pytest.raises(Unanswered, match="2 attempts"):
        nobody.overview()


def test_refusals_say_what_and_where(lite: Store, study: Study, client: StudyClient, url: str, tmp_path: Path) -> None:
    with pytest.raises(HttpRefusal, match="row 1") as refused:
        client.add([{"prompt": "p", "chosen": 1, "rejected": "b"}])
    assert refused.value.status == 400
    with StudyClient(url, create_token(lite, study.id, NewToken("reader", ("read",))).secret) as reader:
        with pytest.raises(HttpRefusal, match=r"right.*add") as refused:
            reader.add(ROWS)
        assert refused.value.status == 403
        with pytest.raises(HttpRefusal, match=r"right.*export"):
            reader.export(tmp_path / "x.jsonl")
    assert not (tmp_path / "x.jsonl").exists()
    with StudyClient(url, "nonsense") as stranger, pytest.raises(HttpRefusal, match="unknown") as refused:
        stranger.overview()
    assert refused.value.status == 401
    with pytest.raises(TutelageError, match="'kind'"):
        client.preferences(kind="human")
    with pytest.raises(TutelageError, match="at a time"):
        client.add([])
    with pytest.raises(TutelageError, match="JSON"):
        client.add([{"prompt": {1, 2}}])


def test_addresses_and_tokens_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUTELAGE_TOKEN", raising=False)
    for address in ("rate.example.org", "ftp://x", "https://x/owner", "http://[", ""):
        with pytest.raises(TutelageError, match="URL"):
            StudyClient(address, "token")
    with pytest.raises(TutelageError, match="TUTELAGE_TOKEN"):
        StudyClient("https://x")
    with pytest.raises(TutelageError, match="header"):
        StudyClient("https://x", "a\nb")
    monkeypatch.setenv("TUTELAGE_TOKEN", "from the environment")
    assert "environment" not in repr(StudyClient("https://x/")._transport)


def test_the_code_of_the_page_runs(
    study: Study, url: str, client: StudyClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/collecting_api.md shows, with another address."""
    page = Path(__file__).parents[3] / "docs" / "collecting_api.md"
    using, receiving = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    exec(using.replace("https://rate.example.org", url), {"token": client._transport.key})
    assert (tmp_path / "preferences.jsonl").read_text() == ""
    assert (client.overview().items, client.overview().votes) == (5, 1)
    secret, body = "whsec_c2VjcmV0", b'{"type": "test"}'
    headers = signed_headers([secret], "msg_1", int(time.time()), body)
    told = {"secret": secret, "request": SimpleNamespace(headers=headers), "body": body}
    exec(receiving, told)
    assert told["content"] == {"type": "test"}
