"""Programs of the tool python: each limit happens, with the isolation that the system permits and without any."""

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.records import ToolCall
from tutelage.rollout.tools import isolation, python_process
from tutelage.rollout.tools.python_process import ProgramLimits, python, python_tool, run_program
from tutelage.rollout.tools.tool import Fault, Toolbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")

WITHOUT_NAMESPACES = f"""
import sys
sys.path.insert(0, {str(Path(isolation.__file__).parent)!r})
import isolation
permitted = isolation.call
def call(name, *arguments):
    if name == "unshare":
        raise PermissionError(name)
    permitted(name, *arguments)
isolation.call = call
isolation.main()
"""


@pytest.fixture(params=["isolated", "without namespaces"])
def unlimited(request, monkeypatch):
    """What cannot be limited, with and without the namespaces that this system permits."""
    if request.param == "without namespaces":
        monkeypatch.setattr(python_process, "KEEPER", (sys.executable, "-I", "-S", "-c", WITHOUT_NAMESPACES))
    return run_program("", ProgramLimits()).unlimited


def running(mark: str) -> list[str]:
    """Ids of the processes whose command line contains the mark."""
    ids = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [each for each in ids if mark.encode() in _command(each)]


def _command(process: str) -> bytes:
    try:
        return Path("/proc", process, "cmdline").read_bytes()
    except OSError:
        return b""


def test_output_status_and_errors(unlimited):
    code = "import sys; print('é', 6 * 7); print('warning', file=sys.stderr); sys.exit(3)"
    result = run_program(code, ProgramLimits())
    assert (result.output, result.status, result.stopped) == ("é 42\nwarning\n", 3, "")
    assert "line 2" in run_program("x = 1\nx / 0", ProgramLimits()).output
    assert "SyntaxError" in run_program("x = = 1", ProgramLimits()).output
    assert run_program("import os; os.abort()", ProgramLimits()).status == -6
    assert run_program("print('\ud800')", ProgramLimits()).status == 1
    assert run_program("\0", ProgramLimits()).status == 1


def test_nothing_of_the_caller_is_seen(unlimited, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "hunter2")
    (tmp_path / "secret.txt").write_text("hunter2")
    code = f"""
import os, sys
print(sorted(os.environ))
print(os.listdir("."), sys.argv, sys.stdin.read())
try:
    print(open({str(tmp_path / "secret.txt")!r}).read())
except OSError as error:
    print(error)
"""
    output = run_program(code, ProgramLimits()).output
    assert "SECRET" not in output
    assert "['main.py']" in output
    if "files outside its folder" not in unlimited:
        assert "hunter2" not in output


def test_an_endless_loop_ends_by_its_computing_time(unlimited):
    result = run_program("print('begin')\nwhile True: pass", ProgramLimits(computing=1))
    assert (result.output, result.status) == ("begin\n", -24)


def test_a_sleeper_ends_by_the_clock(unlimited):
    result = run_program("import time; print('begin'); time.sleep(99)", ProgramLimits(seconds=1.0))
    assert (result.output, result.stopped) == ("begin\n", "time")


def test_endless_output_ends_at_its_limit(unlimited):
    result = run_program("while True: print('x' * 1000)", ProgramLimits(output=10_000))
    assert (len(result.output), result.stopped) == (10_000, "output")


def test_a_large_allocation_fails(unlimited):
    assert "MemoryError" in run_program("x = bytearray(10 * 2**30)", ProgramLimits()).output


def test_a_large_file_fails(unlimited):
    result = run_program("open('big', 'wb').write(bytes(3 * 2**20))", ProgramLimits(disk=2**20))
    assert "OSError" in result.output


def test_a_forker_makes_few_processes_and_all_end(unlimited):
    mark = f"60.{time.time_ns()}"
    code = f"""
import os
made = 0
for _ in range(200):
    try:
        if os.fork() == 0:
            os.setsid()
            os.execvp("sleep", ["sleep", {mark!r}])
        made += 1
    except OSError:
        pass
print(made)
"""
    result = run_program(code, ProgramLimits(processes=16))
    assert 5 <= int(result.output) <= (200 if "the number of processes" in unlimited else 16)
    assert running(mark) == []


def test_a_child_does_not_outlive_the_program(unlimited):
    mark = f"mark-{time.time_ns()}"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)", {mark!r}], start_new_session=True)
print(child.poll())
"""
    start = time.monotonic()
    assert run_program(code, ProgramLimits()).output == "None\n"
    assert running(mark) == []
    assert time.monotonic() - start < 20


def test_files_outside_are_not_written_and_the_folder_is_removed(unlimited, tmp_path):
    folders = Path(tempfile.gettempdir())
    before = set(folders.glob("tutelage-python-*"))
    target = tmp_path / "outside"
    code = f"open('inside', 'w').write('x')\ntry: open({str(target)!r}, 'w').write('x')\nexcept OSError: print('no')"
    result = run_program(code, ProgramLimits())
    if "files outside its folder" not in unlimited:
        assert result.output == "no\n"
        assert not target.exists()
    assert set(folders.glob("tutelage-python-*")) <= before


def test_there_is_no_network(unlimited):
    import socket

    if "the network" in unlimited:
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        assert "OSError" in run_program(code, ProgramLimits()).output
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_program_that_kills_its_parents_is_no_fault(unlimited):
    for code in ("for _ in range(3): os.kill(os.getppid(), 9)", "os.kill(0, 9)"):
        run_program(f"import os\n{code}", ProgramLimits(seconds=5.0))


def test_a_program_has_no_more_rights_than_a_user(unlimited):
    if "the user id" in unlimited:
        return
    assert run_program("import os; print(os.geteuid() == 0)", ProgramLimits()).output == "False\n"
    assert "PermissionError" in run_program("import os; os.setuid(0)", ProgramLimits()).output


def test_the_result_of_the_tool(monkeypatch):
    assert python("print(1)") == "1\n"
    assert python("") == "[no output]"
    assert python("import sys; sys.exit('bad')") == "bad\n\n[exit status 1]"
    limits = ProgramLimits(computing=1, output=1000)
    monkeypatch.setattr(python_process, "ProgramLimits", lambda: limits)
    assert "stopped" in python("while True: print('x' * 100)")
    box = Toolbox([python_tool()])
    message = asyncio.run(box.run(ToolCall("python", json.dumps({"code": "print('begin')\nwhile True: pass"}))))
    assert message.content.startswith("error: ")
    assert message.content.endswith("begin\n")
    assert (box.calls["calls"], box.calls["timeouts"]) == (1, 1)


def test_what_is_not_limited_is_logged_once(unlimited, caplog):
    python_process._log_unlimited.cache_clear()
    for _ in range(2):
        python("")
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == bool(unlimited)
    assert all(what in caplog.text for what in unlimited)


@pytest.mark.parametrize("keeper", [("/nowhere/python",), (sys.executable, "-c", "print('broken')")])
def test_a_process_that_cannot_be_started_is_a_fault(keeper, monkeypatch):
    monkeypatch.setattr(python_process, "KEEPER", keeper)
    with pytest.raises(Fault):
        run_program("print(1)", ProgramLimits())
    with pytest.raises(TutelageError, match="python"):
        python_tool()


def children():
    """Process ids of the children of this process, finished ones included."""
    return {pid for task in os.listdir("/proc/self/task") for pid in _children_of(task)}


def _children_of(task):
    return (Path("/proc/self/task") / task / "children").read_text().split()


def test_no_process_and_no_descriptor_is_left():
    run_program("", ProgramLimits())
    before = len(os.listdir("/proc/self/fd")), children()
    for _ in range(3):
        run_program("print(1)", ProgramLimits())
    assert (len(os.listdir("/proc/self/fd")), children()) == before
