"""Run notebooks, and write what their cells show into them.

    python examples/notebooks/run.py                                  all notebooks of this folder
    python examples/notebooks/run.py examples/notebooks/NAME.ipynb

The cells are plain Python, so that no kernel is needed. What a cell prints, and the value of its last line, a text or a
drawing, become its outputs, in the form in which Jupyter writes them.
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def source_of(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def outputs_of(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run the code of a cell among `names`, and return its outputs."""
    body = ast.parse(source, f"cell {number}").body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None:
        draw = getattr(value, "_repr_svg_", None)
        shown = {"image/svg+xml": lines(draw())} if draw else {"text/plain": lines(repr(value))}
        outputs.append({"data": shown, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def lines(text: str) -> list[str]:
    """A text as a notebook holds it."""
    return text.splitlines(keepends=True)


def run(file: Path) -> dict[str, Any]:
    """The notebook of a file with the outputs of its cells, each run in the order of the page."""
    notebook: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with contextlib.chdir("."):  # back from wherever a notebook goes
        for number, cell in enumerate(code, 1):
            cell["execution_count"] = number
            cell["outputs"] = outputs_of(source_of(cell), names, number)
    return notebook


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.ipynb")):
        made = run(file)
        file.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
