"""The server of a board: only this machine, only reading, and a page that follows its runs."""

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.commands.board import BoardServer, BoardSettings, server


def add(folder: Path, first: int, last: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": n, "seconds": n, "score/mean": n}) + "\n" for n in range(first, last + 1))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BoardServer]:
    add(tmp_path / "first", 1, 20)
    made = server(tmp_path, 0)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    assert isinstance(made, BoardServer)
    yield made
    made.shutdown()
    made.server_close()
    thread.join(5)


def ask(running: BoardServer, path: str, method: str = "GET", host: str = "") -> tuple[int, str, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", running.server_address[1], timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{running.server_address[1]}")
    connection.endheaders()
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text, dict(reply.getheaders())


def test_the_page_and_its_parts_follow_the_runs(running: BoardServer, tmp_path: Path) -> None:
    status, page, headers = ask(running, "/")
    assert status == 200
    nonce = page.split('<script nonce="')[1].split('"')[0]
    assert f"'nonce-{nonce}'" in headers["Content-Security-Policy"]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert '<td class="number">20</td>' in ask(running, "/parts?over=step")[1]
    add(tmp_path / "first", 21, 35)
    add(tmp_path / "second", 1, 3)
    parts = ask(running, "/parts?run=second&more=1")[1]
    assert '<td class="number">35</td>' in parts
    assert 'value="second" aria-label="show second" checked' in parts
    assert 'value="first" aria-label="show first">' in parts
    assert set(tmp_path.rglob("*")) - before.keys() == {
        tmp_path / "second", tmp_path / "second" / "metrics.jsonl",
    }  # fmt: skip


def test_other_addresses_methods_and_names_are_refused(running: BoardServer) -> None:
    """A page elsewhere whose name is made to lead here (DNS rebinding) gets nothing."""
    assert running.server_address[0] == "127.0.0.1"
    assert ask(running, "/first/metrics.jsonl")[0] == 404
    assert ask(running, "/../etc/passwd")[0] == 404
    assert ask(running, "/parts", host="evil.example:80")[0] == 403
    assert ask(running, "/parts", host=f"localhost:{running.server_address[1]}")[0] == 200
    assert ask(running, "http://[")[0] == ask(running, "//[")[0] == 404
    assert ask(running, "/parts", "POST")[0] == 501
    assert ask(running, "/parts", "DELETE")[0] == 501
    assert ask(running, "/parts?low=%FF&over=%00&run=..%2F..%2Fetc&search=%ED%A0%80")[0] == 200


def test_a_browser_that_leaves_before_the_answer_is_no_error(
    running: BoardServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for fault, told in ((BrokenPipeError(), False), (ConnectionResetError(), False), (ValueError(), True)):
        try:
            raise fault
        except (OSError, ValueError):
            running.handle_error(None, ("127.0.0.1", 1))
        assert bool(capfd.readouterr().err) == told


def test_a_folder_or_a_port_that_is_none_is_refused(running: BoardServer, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="none"):
        server(tmp_path / "none", 0)
    with pytest.raises(TutelageError, match="--port"):
        server(tmp_path, running.server_address[1])
    with pytest.raises(TutelageError, match="--port"):
        server(tmp_path, 99999)
    with pytest.raises(TutelageError):
        BoardSettings(folder=tmp_path, port=-1)
