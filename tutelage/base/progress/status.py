"""Status of a thread's phases as one line: limited width and fixed columns for a terminal, in full for a file.

    ppo ━━━━━━━───  12/40  0:01:24 left   score/mean  -0.123  kl/reference 0.04512  generate

Label, bar, count and time come first, then as many metrics as fit, each in a fixed column, then the phase. In a narrow
terminal the phase is omitted first, then metrics, then the bar is shortened, then the label is truncated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from tutelage.base.progress.phases import Phase

VALUE = 7
"""Width of the value of a metric in columns."""
SHORTEST_BAR, LONGEST_BAR = 3, 30
PHASE = len("  compile kernels")
"""Width of a phase in columns, which the bar leaves free until there are metrics."""
SHORTEST_PHASE = 5
"""Minimum width of a truncated phase in columns."""
CLOCK = 8
"""Width of a time in columns."""


@dataclass(frozen=True)
class Marks:
    """Characters of a status line: done and remaining parts of a bar, and the truncation mark."""

    done: str = "━"
    rest: str = "─"
    cut: str = "…"


ASCII = Marks("#", "-", "~")


@dataclass(frozen=True)
class StatusLine:
    """State of the work at a moment. `label` is its name; `phase` its innermost part, or ""."""

    label: str
    phase: str
    done: int | None
    total: int | None
    elapsed: float
    left: float | None
    metrics: Mapping[str, float]

    @classmethod
    def of(cls, phases: Sequence[Phase]) -> "StatusLine":
        """Return the status of phases (at least one, the outermost first).

        The main phase is the outermost loop, else the outermost phase; the count is that of the first counted phase
        from there.
        """
        main = loop_of(phases) or phases[0]
        inner = phases[phases.index(main) :]
        counted = next((one for one in inner if one.done is not None), main)
        name = _printable(inner[-1].name) if inner[-1] is not main else ""
        left = None if counted.done == counted.total else counted.left
        return cls(
            *(_printable(main.name), name, counted.done, counted.total, main.elapsed, left),
            {_printable(key): value for key, value in main.metrics.items()},
        )

    @property
    def count(self) -> str:
        """Progress, with the total if known, in constant width."""
        if self.done is None:
            return ""
        return str(self.done) if self.total is None else f"{self.done:>{len(str(self.total))}}/{self.total}"

    @property
    def time(self) -> str:
        """Time left, or elapsed time if that is unknown or at the end, in constant width."""
        seconds, word = (self.elapsed, "spent") if self.left is None else (self.left, "left")
        return f"{clock(seconds):>{CLOCK}} {word:<5}"

    def full_line(self) -> str:
        """Return the line in full, for a file."""
        times = [f"{clock(self.elapsed)} spent", *([] if self.left is None else [f"{clock(self.left)} left"])]
        values = (f"{name} {number(value)}" for name, value in self.metrics.items())
        parts = (f"{self.label} {self.count.strip()}".rstrip(), self.phase, ", ".join(times), *values)
        return "  ".join(part for part in parts if part)

    def line(self, columns: int, marks: Marks = Marks()) -> str:
        """Return label, bar, count and time, and as much of the rest as fits into `columns`."""
        bar, end = "", " ".join(part for part in (self.count, self.time) if part)
        if self.total is not None:
            length = min(max(SHORTEST_BAR, columns // 8), LONGEST_BAR)
            room = columns - cell_len(self.label) - len(end) - 2 - (0 if self.metrics else PHASE)
            bar = self._bar(max(SHORTEST_BAR, min(length, room)), marks) + " "
        room = columns - len(bar) - len(end) - 1
        line = f"{cut(self.label, room, marks)} {bar}{end}" if room > 0 else cut(end, columns, marks)
        for name, value in self.metrics.items():
            column = f"  {name} {number(value):>{VALUE}}"
            if cell_len(line + column) <= columns:
                line += column
        room = columns - cell_len(line) - 2
        if self.phase and room >= min(cell_len(self.phase), SHORTEST_PHASE):
            line += "  " + cut(self.phase, room, marks)
        return line.rstrip()

    def _bar(self, width: int, marks: Marks) -> str:
        filled = min(width, width * (self.done or 0) // self.total) if self.total else width
        return marks.done * filled + marks.rest * (width - filled)


def loop_of(phases: Sequence[Phase]) -> Phase | None:
    """Return the outermost loop, or None."""
    return next((one for one in phases if one.loop), None)


def number(value: float) -> str:
    """Format a number in at most `VALUE` characters, with four significant digits where they fit."""
    whole = [f"{value:.0f}"] if 1e4 <= abs(value) < 10 ** (VALUE - 1) else []
    texts = (f"{value:.{digits}g}" for digits in (4, 3, 2, 1))
    return next(text for text in (*whole, *texts) if len(text) <= VALUE)


def clock(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds, or as days and hours, in at most `CLOCK` characters."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours < 100:
        return f"{hours}:{minutes:02}:{rest:02}"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h" if days < 1000 else f"{days}d"


def cut(text: str, columns: int, marks: Marks) -> str:
    if cell_len(text) <= columns:
        return text
    return set_cell_size(text, columns - 1) + marks.cut if columns > 0 else ""


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
