"""Folders behind a `tutelage serve` of their own, which a small script stands in for."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import command
from scripted_chat import finished
from served import Served, serving

from tutelage.base.errors import TutelageError
from tutelage.commands.collect import server
from tutelage.commands.collect.server import ServedFolder, ServedModels
from tutelage.commands.line import main
from tutelage.commands.serve.settings import PARENT as PARENT_KEY
from tutelage.data.records import user
from tutelage.data.transport import Unanswered

CHUNK = {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}
PROGRAM = """#!{python} -ES
import json, os, sys, time
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv[1:], os.environ["TUTELAGE_SERVE_KEY"], os.getpid()]) + "\\n")
if "broken" in sys.argv[5]:
    sys.exit(2)
print("model\\n  address  {url}\\nctrl-C stops the server.", flush=True)
time.sleep(600)
"""


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(lambda body, number: f"data: {json.dumps(CHUNK)}\n\n") as found:
        yield found


@pytest.fixture
def started(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Started":
    program, log = tmp_path / "python", tmp_path / "started.jsonl"
    program.write_text(PROGRAM.format(python=sys.executable, log=str(log), url=served.url))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(server, "sys", SimpleNamespace(executable=str(program)))
    return Started(log)


class Started:
    """The processes that were started: their arguments, keys and numbers."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(self) -> list[Any]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


def reply(name: str, found: ServedModels) -> str:
    async def scene() -> str:
        return "".join([piece.text async for piece in found(name).pieces(user("Hi"))])

    return finished(scene())


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_folder_is_served_by_one_process_with_a_key_of_its_own(served: Served, started: Started) -> None:
    with closing(ServedModels("plain")) as found:
        found.prepare(("runs/a", "runs/a", served.url))
        assert [reply(name, found) for name in ("runs/a", "runs/a")] == ["Hello", "Hello"]
        ((arguments, key, process),) = started()
        assert arguments == [
            "-m", "tutelage", "serve", "--model", "runs/a", "--model.engine", "plain", "--name", "model", "--port", "0",
        ]  # fmt: skip
        assert served.keys == [f"Bearer {key}"] * 2
        assert alive(process)
    assert not alive(process)


def test_a_process_that_ended_is_started_again_with_the_next_request(served: Served, started: Started) -> None:
    with closing(ServedModels()) as found:
        assert reply("runs/a", found) == "Hello"
        model = found("runs/a")
        assert isinstance(model, ServedFolder)
        assert model._process is not None
        model._process.kill()
        model._process.wait()
        assert reply("runs/a", found) == "Hello"
        assert len({process for _, _, process in started()}) == 2


def test_a_model_that_does_not_start_is_told_before_anybody_is_let_in(started: Started) -> None:
    with closing(ServedModels()) as found:
        with pytest.raises(TutelageError, match=r"runs/broken of the live conversations does not start.*status 2"):
            found.prepare(["runs/broken"])
        with pytest.raises(Unanswered, match="ended with status 2"):
            reply("runs/broken", found)


PARENT = """
import sys
from types import SimpleNamespace
from tutelage.commands.collect import server
server.sys = SimpleNamespace(executable=sys.argv[1])
print(server.ServedFolder("folder").start(), flush=True)
sys.stdin.read()
"""
CHILD = """#!{python}
import os, time
from tutelage.rollout.serving.policy_server import end_with_parent
end_with_parent()
os.write(2, b"child %d\\n" % os.getpid())
print("  address  http://127.0.0.1:9/v1", flush=True)
time.sleep(600)
"""


@pytest.mark.long
def test_a_served_model_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves the parent no moment to end what it started. The standard error of both is one pipe, which ends
    when both have."""
    program = tmp_path / "program"
    program.write_text(CHILD.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        assert parent.stdout.readline() == b"http://127.0.0.1:9/v1\n"
        child = int(parent.stderr.readline().split()[1])
        os.kill(child, 0)  # it runs
        parent.kill()
        assert parent.stderr.read() == b""


def test_the_server_itself_watches_its_parent(tmp_path: Path) -> None:
    done = command(["serve", "--model", str(tmp_path / "none"), "--port", "0"], **{PARENT_KEY: "1"})
    _, told = done.communicate(timeout=300)
    assert done.returncode == -signal.SIGTERM, told


@pytest.mark.parametrize(("tool", "word"), [("calculator", "live conversations"), ("nothing", "'nothing'")])
def test_tools_that_cannot_be_used_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str, word: str
) -> None:
    study = str(tmp_path / "study.sqlite")
    assert main(["collect", "init", study]) == 0
    assert main(["collect", "serve", study, "--port", "0", "--tools", tool]) == 2
    assert word in capsys.readouterr().err
