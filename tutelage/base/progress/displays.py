"""Displays of phases on a stream: a status line that is redrawn, or log lines at intervals.

All other output of the process to the stream goes through `Display.write`, so that lines do not mix.
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
"""Minimum seconds between the lines of two steps."""
SILENCE = 15.0
"""Maximum seconds without a line."""
AT_ONCE = 0.1
"""Minimum seconds between two redraws by steps."""
ERASE_REST, ERASE_BELOW = "\x1b[K", "\x1b[J"


class Display(ABC):
    """Observer of `phases`, those of a thread, that writes their progress to `stream` until it is closed."""

    every: float
    """Seconds between two updates."""

    def __init__(self, stream: TextIO, phases: Sequence[Phase]) -> None:
        self.stream, self.phases = stream, phases
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        self.lock = threading.RLock()  # a signal's handler may print while its thread writes
        self.closed = self.midline = False
        self.heard = now()

    @abstractmethod
    def look(self) -> None:
        """Write the output that is due."""

    @abstractmethod
    def advance(self, phase: Phase) -> None:
        """Report a completed step, if due."""

    @abstractmethod
    def end(self, phase: Phase) -> None:
        """Report the end of a phase, if due."""

    @abstractmethod
    def make_room(self) -> None:
        """Clear the status line before other output is written."""

    def write(self, stream: TextIO, text: str) -> int:
        """Write other output to a stream of the same terminal or file."""
        with self.lock:
            if self.closed or not text:
                return stream.write(text)
            self.make_room()
            count = stream.write(text)
            self.midline, self.heard = not text.endswith("\n"), now()
            if not self.midline:
                stream.flush()
                self.look()
            return count

    def close(self) -> None:
        """Stop writing."""
        with self.lock:
            self.make_room()
            self.stream.flush()
            self.closed = True

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Run `look` periodically in a thread."""
        over = threading.Event()

        def run() -> None:
            try:
                while not over.wait(self.every):
                    self.look()
            except (OSError, ValueError):  # the stream is closed or has no reader: the run continues
                return

        thread = threading.Thread(target=run, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def encodable(self, text: str) -> str:
        """Replace characters that the stream cannot encode with question marks."""
        return text.encode(self.encoding, "replace").decode(self.encoding)


class LogLines(Display):
    """A line for the first step, the last one and steps at least `STEPS_APART` apart, and after each `SILENCE`."""

    every = 1.0

    def __init__(self, stream: TextIO, phases: Sequence[Phase]) -> None:
        super().__init__(stream, phases)
        self._written = now()
        self._loop: Phase | None = None
        self._step: int | None = None
        self._step_written = 0.0

    def look(self) -> None:
        """Write a line after `SILENCE` without one; an unfinished line of other output delays it by as long."""
        with self.lock:
            last = max(self._written, self.heard) if self.midline else self._written
            if not self.closed and now() - last >= SILENCE:
                self._write_line()

    def advance(self, phase: Phase) -> None:
        """Write a line about a step of the loop."""
        with self.lock:
            if phase is loop_of(self.phases):
                is_first, self._loop = phase is not self._loop, phase
                if is_first or phase.done == phase.total or now() - self._step_written >= STEPS_APART:
                    self._write_step(phase)

    def end(self, phase: Phase) -> None:
        """Write a line about the last step of a loop, which may end before its total."""
        with self.lock:
            if phase is self._loop and phase.done != self._step:
                self._write_step(phase)

    def make_room(self) -> None:
        """Keep lines; there is nothing to clear."""

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
    """A status line at the bottom of a terminal."""

    every = 0.25

    def __init__(self, stream: TextIO, phases: Sequence[Phase]) -> None:
        super().__init__(stream, phases)
        self.marks = Marks() if self.encodable("━─…") == "━─…" else ASCII
        self._colours = self.marks is not ASCII and not os.environ.get("NO_COLOR")
        self._drawn, self._at = "", 0.0

    def look(self) -> None:
        """Redraw the line if it has changed."""
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
        """Redraw the line, unless it was redrawn within `AT_ONCE`."""
        if now() - self._at >= AT_ONCE:
            self.look()

    def end(self, phase: Phase) -> None:
        """Keep the last line of a loop on the terminal."""
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
        """Return the escape codes that move to the start of the line, which a narrowed terminal wraps into several."""
        above = (len(self._drawn) - 1) // columns if self._drawn and _breaks_lines() else 0
        return "\r" + (f"\x1b[{above}A{ERASE_BELOW}" if above else "")

    def _coloured(self, line: str) -> str:
        return re.sub(f"{self.marks.done}+", "\x1b[36m\\g<0>\x1b[0m", line, count=1) if self._colours else line

    def _columns(self) -> int:
        try:
            width = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            width = 0
        variable = os.environ.get("COLUMNS", "")
        return width or (int(variable) if variable.isdecimal() and int(variable) else 80)


class Stream:
    """A stream of the terminal that a display uses, for other writers."""

    def __init__(self, display: Display, stream: TextIO) -> None:
        self.display, self.stream = display, stream

    def write(self, text: str) -> int:
        """Write a text after clearing the status line."""
        return self.display.write(self.stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each text."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _breaks_lines() -> bool:
    """Whether the terminal rewraps lines when it becomes narrower; xterm, screen and the Linux console cut them."""
    environ = os.environ
    return bool(environ.get("TMUX")) or not (
        environ.get("XTERM_VERSION") or environ.get("STY") or environ.get("TERM") == "linux"
    )
