"""Displays of phases on a stream: one line that is drawn again and again, or lines now and then.

Whatever else the process writes to the stream goes through `Display.write`, so that no line gets into another.
"""

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from tutelage.base.progress.phases import Phase, now
from tutelage.base.progress.status import ASCII, Marks, StatusLine, loop_of

STEPS_APART = 10.0
"""The fewest seconds between the lines of two steps."""
SILENCE = 15.0
"""The most seconds without a line."""
AT_ONCE = 0.1
"""Seconds after which a step draws the line anew by itself."""
ERASE_REST, ERASE_BELOW = "\x1b[K", "\x1b[J"


class Display(ABC):
    """Watches `phases`, those of a thread, and writes about them to `stream` until it is closed."""

    every: float
    """Seconds between two looks."""

    def __init__(self, stream: TextIO, phases: Sequence[Phase]) -> None:
        self.stream, self.phases = stream, phases
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        self.lock = threading.RLock()  # a signal's handler may print while its thread writes
        self.closed = self.midline = False
        self.heard = now()

    @abstractmethod
    def look(self) -> None:
        """Write whatever is due by now."""

    @abstractmethod
    def advance(self, phase: Phase) -> None:
        """Write about a step that was taken, if it is due."""

    @abstractmethod
    def end(self, phase: Phase) -> None:
        """Write about the end of a phase, if it is due."""

    @abstractmethod
    def make_room(self) -> None:
        """Take away what stands where others write."""

    def write(self, stream: TextIO, text: str) -> int:
        """Write the text of somebody else to a stream of the same terminal or file."""
        with self.lock:
            if self.closed or not text:
                return stream.write(text)
            self.make_room()
            written = stream.write(text)
            self.midline, self.heard = not text.endswith("\n"), now()
            if not self.midline:
                stream.flush()
                self.look()
            return written

    def close(self) -> None:
        """Write nothing more."""
        with self.lock:
            self.make_room()
            self.stream.flush()
            self.closed = True

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Have a thread `look` every now and then."""
        over = threading.Event()

        def run() -> None:
            try:
                while not over.wait(self.every):
                    self.look()
            except (OSError, ValueError):  # the stream is closed, or has no reader: the run goes on
                return

        thread = threading.Thread(target=run, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def encodable(self, text: str) -> str:
        """The text with question marks for what the stream cannot hold."""
        return text.encode(self.encoding, "replace").decode(self.encoding)


class LogLines(Display):
    """A line for the first step, the last one and those between that are `STEPS_APART`, and after each `SILENCE`."""

    every = 1.0

    def __init__(self, stream: TextIO, phases: Sequence[Phase]) -> None:
        super().__init__(stream, phases)
        self._written = now()
        self._loop: Phase | None = None
        self._step: int | None = None
        self._step_written = 0.0

    def look(self) -> None:
        """A line where there was none for so long. Who is in the middle of another one may go on for as long."""
        with self.lock:
            last = max(self._written, self.heard) if self.midline else self._written
            if not self.closed and now() - last >= SILENCE:
                self._write_line()

    def advance(self, phase: Phase) -> None:
        """A line about a step of the loop."""
        with self.lock:
            if phase is loop_of(self.phases):
                is_first, self._loop = phase is not self._loop, phase
                if is_first or phase.done == phase.total or now() - self._step_written >= STEPS_APART:
                    self._write_step(phase)

    def end(self, phase: Phase) -> None:
        """A line about the last step of a loop, which may be another than the last one of all."""
        with self.lock:
            if phase is self._loop and phase.done != self._step:
                self._write_step(phase)

    def make_room(self) -> None:
        """Lines stay."""

    def _write_step(self, loop: Phase) -> None:
        self._step, self._step_written = loop.done, now()
        self._write_line()

    def _write_line(self) -> None:
        phases = tuple(self.phases)
        if phases:
            self._written = now()
            before = "\n" if self.midline else ""
            self.midline = False
            self.stream.write(before + self.encodable(StatusLine.of(phases).full_line()) + "\n")
            self.stream.flush()


class Bar(Display):
    """One line at the bottom of a terminal."""

    every = 0.25

    def __init__(self, stream: TextIO, phases: Sequence[Phase]) -> None:
        super().__init__(stream, phases)
        self.marks = Marks() if self.encodable("━─…") == "━─…" else ASCII
        self._colours = self.marks is not ASCII and not os.environ.get("NO_COLOR")
        self._drawn, self._at = "", 0.0

    def look(self) -> None:
        """Draw the line, where it has changed."""
        with self.lock:
            if self.closed or self.midline:
                return
            columns, phases = self._columns(), tuple(self.phases)
            line = self.encodable(StatusLine.of(phases).line(columns - 1, self.marks)) if phases else ""
            self._at = now()
            if line != self._drawn:
                self._put(self._to_start(columns) + self._coloured(line) + ERASE_REST)
                self._drawn = line

    def advance(self, phase: Phase) -> None:
        """Draw the line, unless that was done a moment ago."""
        if now() - self._at >= AT_ONCE:
            self.look()

    def end(self, phase: Phase) -> None:
        """Leave the last line of a loop where it is."""
        with self.lock:
            if phase is loop_of(self.phases):
                self.look()
                if self._drawn:
                    self._put("\n")
                    self._drawn = ""

    def make_room(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._put(self._to_start(self._columns()) + ERASE_REST)
            self._drawn = ""

    def _put(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def _to_start(self, columns: int) -> str:
        """Moves to the start of the line that is drawn. A terminal that became narrower has broken it into several."""
        above = (len(self._drawn) - 1) // columns if self._drawn and _breaks_lines() else 0
        return "\r" + (f"\x1b[{above}A{ERASE_BELOW}" if above else "")

    def _coloured(self, line: str) -> str:
        return (
            re.sub(f"{self.marks.done}+", "\x1b[36m\\g<0>\x1b[0m", line, count=1) if self._colours else line
        )

    def _columns(self) -> int:
        try:
            found = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            found = 0
        given = os.environ.get("COLUMNS", "")
        return found or (int(given) if given.isdecimal() and int(given) else 80)


class Stream:
    """A stream of the terminal that a display is on, for other writers."""

    def __init__(self, display: Display, stream: TextIO) -> None:
        self.display, self.stream = display, stream

    def write(self, text: str) -> int:
        """Write, with room made for the text."""
        return self.display.write(self.stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one text after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _breaks_lines() -> bool:
    """Whether the terminal breaks lines anew when it becomes narrower; xterm, screen and the console of Linux cut
    them."""
    known = os.environ
    return bool(known.get("TMUX")) or not (
        known.get("XTERM_VERSION") or known.get("STY") or known.get("TERM") == "linux"
    )
