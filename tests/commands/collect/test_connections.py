"""Tokens and webhooks on the command line."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from people.hooks import Received, webhook_server
from people.worlds import study_of

from tutelage.commands.line import main
from tutelage.people import open_store, open_study
from tutelage.people.store.api_tokens import find_token
from tutelage.people.store.inbox import alarm_of
from tutelage.people.store.webhooks import list_webhooks

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def study(tmp_path: Path) -> str:
    with closing(open_store(tmp_path / "study.sqlite")) as store:
        study_of(store, 1)
    return str(tmp_path)


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Received]]]:
    with webhook_server() as server:
        yield server


def test_a_token_is_printed_once_listed_and_revoked(study: str, tmp_path: Path, capsys: Captured) -> None:
    token = ["collect", "token", study]
    assert main(token) == 0
    assert "There are no tokens" in capsys.readouterr().out
    assert main([*token, "--new", "ci", "--rights", "export", "read", "--days", "30"]) == 0
    text = capsys.readouterr().out.strip()
    with closing(open_store(tmp_path / "study.sqlite")) as store:
        found = find_token(store, text)
    assert found is not None
    assert (found.name, found.rights, found.problem) == ("ci", ("read", "export"), "")
    assert main(token) == 0
    told = capsys.readouterr().out
    assert told.startswith("ci: read, export; 20")
    assert "never used" in told
    assert text not in told
    assert main([*token, "--new", "ci"]) == 2
    assert "already" in capsys.readouterr().err
    assert main([*token, "--revoke", "ci"]) == 0
    assert main([*token, "--revoke", "ci"]) == 2
    assert main(token) == 0
    assert "This token was revoked." in capsys.readouterr().out


def test_webhooks_are_added_tested_and_removed(study: str, tmp_path: Path, capsys: Captured, hook: Any) -> None:
    url, came = hook
    webhook = ["collect", "webhook", study]
    assert main([*webhook, "--add", f"{url}/hook", "--topics", "round", "--least-agreement", "0.6"]) == 0
    assert "secret whsec_" in capsys.readouterr().out
    assert main([*webhook, "--add", f"{url}/broken"]) == 0
    capsys.readouterr()
    assert main([*webhook, "--test", "1"]) == 0
    assert main([*webhook, "--test", "2"]) == 1
    assert "webhook 2 answered with status 500" in capsys.readouterr().out
    assert [headers["webhook-id"][:4] for headers, _ in came] == ["msg_"] * 2
    assert main([*webhook, "--remove", "2"]) == 0
    assert main([*webhook, "--remove", "2"]) == 2
    assert main(webhook) == 0
    told = capsys.readouterr().out
    assert f"webhook 1: {url}/hook: round; no message yet; 0 pending" in told
    assert "least agreement: 60%" in told
    assert "whsec_" not in told
    assert main([*webhook, "--least-agreement", "0"]) == 0
    with closing(open_store(tmp_path / "study.sqlite")) as store:
        number = open_study(store).id
        assert alarm_of(store, number) is None
        assert len(list_webhooks(store, number)) == 1


MISTAKES: tuple[tuple[list[str], str], ...] = (
    (["token", "--new", "a", "--revoke", "b"], "--new or --revoke"),
    (["token", "--rights", "add"], "name it with --new"),
    (["token", "--days", "3"], "name it with --new"),
    (["token", "--new", "a", "--days", "0"], "The number of days"),
    (["webhook", "--add", "http://x", "--test", "1"], "one thing at a time"),
    (["webhook", "--topics", "inbox"], "--add"),
    (["webhook", "--add", "gopher://x"], "no address"),
    (["webhook", "--least-agreement", "2"], "share above 0"),
    (["webhook", "--test", "7"], "no webhook 7"),
)


def test_mistakes_are_refused(study: str, capsys: Captured) -> None:
    for words, complaint in MISTAKES:
        assert main(["collect", words[0], study, *words[1:]]) == 2
        assert complaint in capsys.readouterr().err
