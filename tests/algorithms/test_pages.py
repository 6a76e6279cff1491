"""The pages about algorithms say what the code says, and their example works."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from algorithms.batches import scored_for
from tutelage.algorithms import RECIPES, override, recipe_named
from tutelage.algorithms.recipe import initial_state, prepare

DOCS = Path(__file__).parents[2] / "docs" / "algorithms"


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_those_that_the_code_would_write() -> None:
    pages = loaded(DOCS / "generate.py").pages()
    stale = [name for name, text in pages.items() if (DOCS / name).read_text() != text]
    assert not stale, "run python docs/algorithms/generate.py"
    assert {path.name for path in DOCS.glob("*.md")} == {*pages, "adding.md"}
    assert all(f"`--recipe {name}`" in "".join(pages.values()) for name in RECIPES)


def test_the_example_of_adding_an_algorithm_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / "adding.md").read_text(), flags=re.S)
    (tmp_path / "ranked.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ranked", raising=False)
    recipe = recipe_named("ranked:RANKED")
    scored = scored_for(recipe)
    batch, _, _ = prepare(recipe, scored, initial_state(recipe))
    per_row = batch.advantage[:, 0].reshape(-1, 8)
    assert torch.allclose(per_row.sort(1).values, (torch.arange(8) - 3.5).expand(4, 8) / 8)
    assert override(RECIPES["dapo"], ["advantage=ranked:Ranked"]).advantage == recipe.advantage
