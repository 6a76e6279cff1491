"""The notebooks run, and show what stands in them."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TRAINS = "whole_loop"
"""The notebook whose numbers depend on the machine: rounding decides which tokens are sampled."""
NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: dict) -> list[tuple[str, str]]:
    """The outputs of a notebook: kind and text."""
    found = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data") or {"stdout": output.get("text")}
            found += [(kind, "".join(text)) for kind, text in data.items()]
    return found


def numbers(text: str) -> list[float]:
    return [float(one.replace("−", "-")) for one in NUMBER.findall(text)]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_shows_what_stands_in_it(file: Path, runner: ModuleType) -> None:
    committed, fresh = shown(json.loads(file.read_text(encoding="utf-8"))), shown(runner.run(file))
    assert [kind for kind, _ in fresh] == [kind for kind, _ in committed]
    for (kind, new), (_, old) in zip(fresh, committed, strict=True):
        if file.stem != TRAINS:
            assert NUMBER.sub("#", new) == NUMBER.sub("#", old)
            near = {"abs": 0.3 if "svg" in kind else 2e-3, "rel": 1e-2}
            assert numbers(new) == pytest.approx(numbers(old), **near)
        elif kind == "stdout" and "question:" not in old:
            assert NUMBER.sub("#", new) == NUMBER.sub("#", old)
            if found := re.search(r"win rate\s+(\S+), 95 % interval (\S+) to (\S+)\nKL\s+(\S+)", new):
                rate, low, high, divergence = map(float, found.groups())
                assert 0 <= low <= rate <= high <= 1
                assert divergence > 0, "PPO moved the policy"
        elif kind != "image/svg+xml":
            assert new == old


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_small_and_each_section_ends_in_a_take_away(file: Path, runner: ModuleType) -> None:
    text = file.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len(text) < 60_000
    assert "/tmp" not in text
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"] == list(
        range(1, 1 + sum(cell["cell_type"] == "code" for cell in cells))
    )
    assert max(len(cell["source"]) for cell in cells) <= 36
    prose = "\n".join(runner.source_of(cell) for cell in cells if cell["cell_type"] == "markdown")
    sections = re.split(r"^## ", prose, flags=re.MULTILINE)[1:]
    assert len(sections) >= 6
    assert sections[-1].startswith("Next")
    for section in sections[1:-1]:
        assert "**Take-away.**" in section, section.split("\n")[0]


def test_values_of_last_lines_are_shown_as_jupyter_shows_them(runner: ModuleType) -> None:
    names: dict = {}
    assert runner.outputs_of("a = 3\nprint(a)\na + 1", names, 5) == [
        {"name": "stdout", "output_type": "stream", "text": ["3\n"]},
        {"data": {"text/plain": ["4"]}, "execution_count": 5, "metadata": {}, "output_type": "execute_result"},
    ]
    assert runner.outputs_of("b = a\nNone", names, 6) == []
