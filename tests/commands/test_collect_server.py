"""The server of `tutelage collect` on the command line: several studies, who gets in, and its data as a whole."""

import re
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tutelage.base.errors import TutelageError
from tutelage.commands.collect.server import open_each
from tutelage.commands.collect.settings import Serve
from tutelage.commands.line import main
from tutelage.commands.study import operator
from tutelage.people import (
    add_rater,
    create_study,
    find_rater,
    list_events,
    list_studies,
    open_store,
    open_study,
    peek_invite,
)
from tutelage.people.store.members import remove_member
from tutelage.people.web import Served, create_server
from tutelage.rollout.serving.asgi_server import listen, server

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two studies."""
    for name in ("north", "south"):
        with closing(open_store(tmp_path / "studies" / name / "study.sqlite")) as store:
            create_study(store, name)
    (tmp_path / "studies" / "notes").mkdir()
    return tmp_path / "studies"


def served(*words: str, **more: str) -> tuple[list[str], bool]:
    """The names of the studies that would be served, and whether below paths of their own."""
    opened, several = open_each(Serve(study=words[0], more=words[1:], **more))  # type: ignore[arg-type]
    names = [study.name for _, study in opened]
    for store, _ in opened:
        store.close()
    return names, several


def test_one_study_stands_at_the_root_and_several_below(folder: Path) -> None:
    north, south = str(folder / "north"), str(folder / "south" / "study.sqlite")
    assert served(north) == (["north"], False)
    assert served(south, north) == (["south", "north"], True)
    assert served(str(folder)) == (["north", "south"], True)
    with closing(open_store(folder / "north" / "study.sqlite")) as store:
        create_study(store, "east")
    assert served(north, name="east") == (["east"], False)
    with pytest.raises(TutelageError, match="2 studies"):
        served(north, south)
    with pytest.raises(TutelageError, match="no database"):
        served(str(folder / "notes"))


def test_a_server_with_several_studies_serves_each_and_a_front_page(folder: Path) -> None:
    words = [sys.executable, "-m", "tutelage", "collect", "serve", str(folder), "--port", "0", "--owner", "Olga"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = ""
        while "ctrl-C" not in told and (line := process.stdout.readline()):
            told += line
        links = re.findall(r"owner's link +(\S+)", told)
        base = links[0].partition("/s/")[0]
        assert re.findall(r"address +(\S+)", told) == [f"{base}/s/north", f"{base}/s/south"]
        with httpx.Client(timeout=60) as client:
            assert "north" not in client.get(base).text
            assert client.post(links[1], headers={"origin": base}).headers["location"] == "/s/south/owner"
            assert client.get(f"{base}/s/south/owner").status_code == 200
            assert client.get(f"{base}/s/north/owner").status_code == 401
            front = client.get(base).text
            assert "south" in front
            assert "north" not in front
            assert client.get(f"{base}/healthz").status_code == 200
    finally:
        process.kill()
        process.wait()
    with closing(open_store(folder / "north" / "study.sqlite")) as store:
        study = open_study(store)
        olga = find_rater(store, study.id, "Olga")
        assert olga is not None
        assert olga.role == "owner"
        assert {event.actor for event in list_events(store, study.id) if event.subject == "Olga"} == {operator()}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--oidc-issuer", "https://id.test"], "--oidc-client"),
        (["--oidc-issuer", "https://id.test", "--oidc-client", "c"], "--owners"),
        (["--owners", "a@b.org"], "--oidc-issuer"),
        (["--proxy-user-header", "X-User", "--owners", "anna"], "--trusted-proxy"),
        (["--oidc-issuer", "http://id.test", "--oidc-client", "c", "--owners", "a@b.org"], "https"),
        (["--proxy-user-header", "X-User", "--trusted-proxy", "proxy", "--owners", "anna"], "not an IP address"),
        (["--public-url", "rate.example.org"], "public URL"),
        (["--owner", "rater"], "not an owner"),
        (["--owner", "gone"], "taken away"),
    ],
)
def test_settings_that_let_nobody_in_are_refused(
    folder: Path, capsys: Captured, words: list[str], complaint: str
) -> None:
    with closing(open_store(folder / "north" / "study.sqlite")) as store:
        study = open_study(store)
        add_rater(store, study.id, "rater")
        add_rater(store, study.id, "other", role="owner")
        remove_member(store, add_rater(store, study.id, "gone", role="owner").id, actor="other")
    assert main(["collect", "serve", str(folder / "north"), "--port", "0", *words]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_links_for_reviewers_and_owners_name_who_made_them(folder: Path, capsys: Captured) -> None:
    for role in ("reviewer", "owner"):
        assert main(["collect", "invite", str(folder / "north"), "--role", role]) == 0
        token = capsys.readouterr().out.strip().rpartition("/")[2]
        with closing(open_store(folder / "north" / "study.sqlite")) as store:
            invite = peek_invite(store, token)
            assert invite is not None
            assert invite.role == role
            assert list_events(store, invite.study_id)[0].actor == operator()


def test_a_database_is_backed_up_and_restored(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    backup, target = tmp_path / "north.backup", tmp_path / "again"
    assert main(["collect", "backup", str(folder / "north"), "--out", str(backup)]) == 0
    assert "north" in capsys.readouterr().out
    assert main(["collect", "backup", str(folder / "north"), "--out", str(backup)]) == 2
    assert main(["collect", "restore", str(target), str(backup)]) == 0
    assert "north restored into" in capsys.readouterr().out
    with closing(open_store(target / "study.sqlite", create=False)) as store:
        assert list_studies(store) == ("north",)
    assert main(["collect", "restore", str(target), str(backup)]) == 2
    assert "already" in capsys.readouterr().err
    assert main(["collect", "restore", str(tmp_path / "new"), str(folder / "north" / "study.sqlite")]) == 2
    assert "not a Tutelage backup" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_simulated_raters_answer_a_study_below_a_path(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = SimpleNamespace(gold=lambda prompts, texts: [float(len(text)) for text in texts])
    monkeypatch.setitem(sys.modules, "longest", longest)
    pairs = folder.parent / "pairs.jsonl"
    pairs.write_text('{"prompt": "Why?", "chosen": "good", "rejected": "bad"}\n')
    assert main(["collect", "init", str(folder / "north"), "--from-pairs", str(pairs)]) == 0
    opened, _ = open_each(Serve(study=str(folder)))
    with closing(listen("127.0.0.1", 0)) as listening:
        running = server(create_server([Served(*each) for each in opened]))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/s/north"
        done = main(
            ["collect", "simulate", str(folder / "north"), "--url", url, "--raters", "3", "--gold", "longest:gold"]
        )
        running.should_exit = True
        thread.join(30)
    assert done == 0
    assert "answers; half" in capsys.readouterr().out
    for store, _ in opened:
        store.close()
