"""Progress on a stream: lines by a clock that the test moves, silence when asked; and a terminal that is real."""

import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fcntl import ioctl
from select import select
from termios import TIOCSWINSZ

import pytest
from offenders import for_each

from tutelage.base.progress import phases as module
from tutelage.base.progress.phases import phase
from tutelage.commands.display import display, progress


class Clock:
    """A clock that the test moves, and the times at which there was a new line on a stream."""

    def __init__(self) -> None:
        self.now, self.out, self.written = 100.0, io.StringIO(), [100.0]

    def monotonic(self) -> float:
        return self.now

    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()

    def sleep(self, seconds: float, shown) -> None:
        """Let the time pass, with a look every second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            shown.look()
            self.written += [self.now] * (len(self.lines()) + 1 - len(self.written))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_there_is_never_a_silence_of_20_seconds_nor_a_flood(clock: Clock) -> None:
    """Loading, a first step that compiles, steps of every length, an evaluation, the end."""
    lengths = [300, *[3] * 40, *[12] * 10, *[45] * 3, 1, 1, 1]
    with display(stream=clock.out, by_itself=False) as shown, phase("improve"):
        with phase("load"):
            clock.sleep(65, shown)
        with progress("ppo", len(lengths), show=("loss",)) as advance:
            for step, seconds in enumerate(lengths, 1):
                with phase("compile kernels" if step == 1 else "update"):
                    clock.sleep(seconds, shown)
                advance(step, {"loss": 0.5, "lr": 0.1})
        with phase("evaluate"):
            clock.sleep(50, shown)
    silences = [after - before for before, after in zip(clock.written, clock.written[1:], strict=False)]
    assert max(silences) <= 20
    assert len(clock.lines()) <= (clock.now - 100.0) / 7
    lines = clock.lines()
    assert re.fullmatch(r"improve  load  0:00:15 spent", lines[0])
    assert re.fullmatch(r"ppo 0/57  compile kernels  0:\d\d:\d\d spent", lines[10])
    assert lines[-4].startswith("ppo 57/57  ")
    assert lines[-1].startswith("improve  evaluate  ")
    steps = [int(found[1]) for line in lines if (found := re.match(r"ppo (\d+)/57  0:", line))]
    assert steps[0] == 1
    assert set(range(42, 55)) <= set(steps)  # the long ones
    during = [line for line in lines if "update" in line and " left" in line]
    assert during
    assert all("loss 0.5" in line for line in during)
    assert "lr" not in clock.out.getvalue()


def test_the_last_line_of_a_loop_that_ends_early_is_its_last_step(clock: Clock) -> None:
    with display(stream=clock.out, by_itself=False), progress("sft", 100) as advance:
        for step in range(1, 8):
            clock.now += 1
            advance(step, {})
    assert [line.split()[1] for line in clock.lines()] == ["1/100", "7/100"]


def test_who_is_in_the_middle_of_a_line_ends_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", clock.out)
    with display(by_itself=False) as shown, phase("load"):
        clock.now += 14.0
        print("half", end="", file=sys.stderr)
        clock.now += 14.0
        shown.look()
        print(" a line", file=sys.stderr)
        print("another", file=sys.stderr)
        assert sys.stderr is not clock.out
    assert sys.stderr is clock.out
    assert clock.lines() == ["half a line", "load  0:00:28 spent", "another"]


def test_quiet_and_other_ranks_than_the_first_are_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()

    def run(quiet: bool) -> None:
        with display(quiet=quiet), progress("sft", 1, quiet=quiet) as advance:
            assert threading.active_count() == before
            advance(1, {"loss": 1.0})

    run(quiet=True)
    monkeypatch.setenv("RANK", "1")
    run(quiet=False)
    assert capsys.readouterr() == ("", "")


def test_the_thread_writes_by_itself_and_nothing_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from tutelage.base.progress.displays import LogLines

    monkeypatch.setattr(LogLines, "every", 0.01)
    monkeypatch.setattr("tutelage.base.progress.displays.SILENCE", 0.05)
    out, before = io.StringIO(), threading.active_count()
    with display(stream=out), phase("load"):
        time.sleep(0.5)
        assert out.getvalue().count("load") >= 2
    said = out.getvalue()
    assert threading.active_count() == before
    with phase("save"):
        time.sleep(0.2)
    assert out.getvalue() == said


def test_an_error_of_the_work_passes_and_one_of_the_stream_does_not_end_the_work() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space")

    with pytest.raises(KeyError), display(stream=io.StringIO()), phase("load"):
        raise KeyError
    with display(stream=Full()), phase("load"):
        pass


CODE = """
    import sys, time
    from tutelage.commands.display import progress
    with progress("sft", 4, show=("loss",)) as advance:
        for step in range(1, 5):
            time.sleep(0.3)
            advance(step, {"loss": 0.25})
            print(f"said {step}", file=sys.stderr)
"""


@contextmanager
def terminal(code: str, columns: int, environment: Mapping[str, str]) -> Iterator[tuple[int, subprocess.Popen]]:
    """A program on a terminal of so many columns: the other side of the terminal, and the process."""
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 20, columns, 0, 0))
    known = {"TERM": "xterm", "PATH": "", "LC_ALL": "C.UTF-8", **environment}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=slave, env=known)
    try:
        yield master, process
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(master)


def shown(code: str, columns: int, **environment: str) -> str:
    """What a program writes to a terminal of so many columns."""
    with terminal(code, columns, environment) as (master, process):
        found = b""
        while process.poll() is None or select([master], [], [], 0.1)[0]:
            if select([master], [], [], 0.1)[0]:
                found += os.read(master, 100_000)
        assert process.returncode == 0
    return found.decode(errors="replace")


ON_TERMINALS: dict[str, tuple[int, dict[str, str]]] = {
    "narrow": (40, {"NO_COLOR": "1"}),
    "wide": (100, {"NO_COLOR": "1"}),
    "coloured": (100, {}),
    "dumb": (100, {"TERM": "dumb"}),
    "watched by nobody": (100, {"CI": "true"}),
    "without a name": (100, {"TERM": ""}),
    "of ASCII": (100, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}),
}


@pytest.fixture(scope="module")
def on_terminal() -> dict[str, str]:
    """What the program writes to each terminal. It mostly sleeps, so all run at once."""
    with ThreadPoolExecutor(len(ON_TERMINALS)) as pool:
        texts = pool.map(lambda terminal: shown(CODE, terminal[0], **terminal[1]), ON_TERMINALS.values())
        return dict(zip(ON_TERMINALS, texts, strict=True))


def screen(text: str) -> list[str]:
    """The rows of a terminal after the text, which knows returns, line feeds and erasures of the rest of a row."""
    rows, cursor = [""], 0
    for part in re.split(r"(\r|\n|\x1b\[K)", text):
        if part in ("\r", "\n"):
            cursor = 0
            rows += [""] if part == "\n" else []
        elif part == "\x1b[K":
            rows[-1] = rows[-1][:cursor]
        else:
            rows[-1] = rows[-1][:cursor].ljust(cursor) + part + rows[-1][cursor + len(part) :]
            cursor += len(part)
    return rows


@for_each([("narrow", 40), ("wide", 100)])
def test_on_a_terminal_there_is_one_line_below_what_others_write(
    name: str, columns: int, on_terminal: dict[str, str]
) -> None:
    output = on_terminal[name]
    rows = screen(output)
    assert rows[:4] == [f"said {step}" for step in range(1, 5)]
    assert re.match(r"sft ━+ 4/4  0:00:0\d spent", rows[4])
    assert (columns == 100) == ("loss    0.25" in rows[4])
    assert rows[5:] == [""]
    assert max(map(len, re.split(r"\r|\n|\x1b\[K", output))) < columns


def test_a_line_is_drawn_anew_where_it_has_changed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    out = Terminal()
    with display(stream=out, by_itself=False) as shown, phase("load"):
        shown.look()
        before = out.getvalue()
        shown.look()
        assert out.getvalue() == before
        clock.now += 1.0
        shown.look()
        assert out.getvalue() > before


def test_colours_can_be_switched_off(on_terminal: dict[str, str]) -> None:
    assert "\x1b[36m" in on_terminal["coloured"]
    assert "m━" not in on_terminal["wide"]


@for_each(["dumb", "watched by nobody", "without a name"])
def test_a_terminal_that_nobody_watches_or_that_cannot_go_back_gets_lines(
    name: str, on_terminal: dict[str, str]
) -> None:
    output = on_terminal[name]
    assert "\x1b" not in output
    assert "\r" not in output.replace("\r\n", "\n")
    assert [line.split("  ")[0] for line in output.split("\r\n") if "sft" in line] == ["sft 1/4", "sft 4/4"]


def test_a_locale_without_the_characters_of_the_bar_gets_others(on_terminal: dict[str, str]) -> None:
    output = on_terminal["of ASCII"]
    assert output.isascii()
    assert re.search(r"sft #+ 4/4", output)


def test_a_terminal_that_becomes_narrower_gets_a_shorter_line() -> None:
    code = """
        import sys, time
        from tutelage.commands.display import progress
        with progress("sft", 4, show=("loss",)) as advance:
            advance(1, {"loss": 0.25})
            time.sleep(30)
    """
    with terminal(code, 100, {}) as (master, process):
        limit, found = time.monotonic() + 20, b""
        while b"loss" not in found and time.monotonic() < limit:
            found += os.read(master, 1000)
        ioctl(master, TIOCSWINSZ, struct.pack("HHHH", 20, 40, 0, 0))
        late = b""
        while late.count(b"\r") < 4 and time.monotonic() < limit:
            late += os.read(master, 1000)
        process.send_signal(signal.SIGKILL)
    lines = re.sub(r"\x1b\[\d*[A-Za-z]", "", late.decode()).split("\r")
    assert all(len(line) < 40 for line in lines[2:])
    assert "loss" not in lines[-2] + lines[-1]
