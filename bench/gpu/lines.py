"""Lines of JSON of a measurement on a GPU, one a unit, and their tables in Markdown.

Lines worth keeping lie in `bench/results/gpu/<card>.jsonl`.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]


def read(file: Path) -> list[Line]:
    """The last line of each unit; a line that was cut off is left out."""
    last: dict[tuple[str, str], Line] = {}
    for text in file.read_text().splitlines() if file.is_file() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        last[line["part"], line["subject"]] = line
    return list(last.values())


def append(file: Path, line: Line) -> None:
    """Write one more line at once."""
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")


def markdown(lines: Iterable[Line], columns: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    """A table for each part that has lines. `columns` gives, for each part, its heading and the figures to show; all
    figures where there are none."""
    lines = list(lines)
    texts = [_versions(lines)] if lines else []
    for part, (about, names) in columns.items():
        own = [line for line in lines if line["part"] == part]
        if own:
            texts.append(f"### {about}\n\n{_table(own, names)}")
    return "\n\n".join(texts) + "\n"


def _versions(lines: Sequence[Line]) -> str:
    tables = {
        f"{line['card']}, torch {line['torch']}, transformers {line['transformers']}, revision {line['revision']}": None
        for line in lines
    }
    return "\n".join(tables)


def _table(lines: Sequence[Line], names: Sequence[str]) -> str:
    """Rows are subjects; a line without figures shows its error. Without names, rows are all figures."""
    if not names:
        return _list(lines)
    rows = [["", *(name.replace("_", " ") for name in names), "seconds"]]
    for line in lines:
        figures = line.get("figures", {})
        cells = [_cell(figures.get(name)) for name in names]
        if "error" in line:
            cells[0] = _last(line)
        rows.append([line["subject"], *cells, _cell(line["seconds"])])
    return _grid(rows)


def _list(lines: Sequence[Line]) -> str:
    """All figures or errors of a part, one a row."""
    rows = [["", "figure"]]
    for line in lines:
        figures = line.get("figures", {"error": _last(line)})
        rows += [[name.replace("_", " "), _cell(value)] for name, value in figures.items()]
    return _grid(rows)


def _last(line: Line) -> str:
    """The last line of an error, as a cell."""
    texts = str(line.get("error", "")).strip().splitlines() or [""]
    return texts[-1].replace("|", "¦")[:120]


def _grid(rows: Sequence[Sequence[str]]) -> str:
    """Rows in Markdown, the first as the head."""
    head, *body = rows
    alignment = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, alignment, *body))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
