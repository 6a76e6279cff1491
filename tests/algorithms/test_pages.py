"""The pages about algorithms say what the code says, and their example works."""

import importlib.util
import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from algorithms.batches import scored_for
from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Observation, prepare
from tutelage.algorithms.recipe_state import after_update, initial_state, restored_state
from tutelage.algorithms.registry import RECIPES, recipe_named

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
    assert {path.name for path in DOCS.glob("*.md")} == set(pages)
    assert all(f"`--recipe {name}`" in "".join(pages.values()) for name in RECIPES)


def test_the_example_of_adding_an_algorithm_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(
        r"```python\n(.*?)```", (DOCS.parent / "howto" / "custom_algorithm.md").read_text(), flags=re.S
    )
    (tmp_path / "ranked.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ranked", raising=False)
    recipe = recipe_named("ranked:RANKED")
    scored = scored_for(recipe)
    batch, _, _ = prepare(recipe, scored, initial_state(recipe))
    per_row = batch.advantage[:, 0].reshape(-1, 8)
    assert torch.allclose(per_row.sort(1).values, (torch.arange(8) - 3.5).expand(4, 8) / 8)
    assert override(RECIPES["dapo"], ["advantage=ranked:Ranked"]).advantage == recipe.advantage


@pytest.fixture
def pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller of the index, saved where it says."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "README.md").read_text(), flags=re.S)
    (tmp_path / "pid.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pid", raising=False)


def test_the_example_of_a_piece_with_state_follows_its_equation(pid: None) -> None:
    settings = ["penalty.controller=pid:Pid", "penalty.controller.target=4", "penalty.controller.d=0.3"]
    recipe = override(RECIPES["ppo"], settings)
    state, errors = initial_state(recipe), [0.0, 0.0]
    for kl in (6.0, 2.0, 100.0, 4.0):
        before = state.penalty_coef
        state = restored_state(recipe, json.loads(json.dumps(state.to_dict())))
        state = after_update(recipe, state, Observation(kl_reference=kl, kl_old=9.0, rows=64))
        errors.append(min(kl / 4 - 1, 1.0))
        e, last, older = errors[-1], errors[-2], errors[-3]
        change = 0.2 * (e - last) + 0.05 * e + 0.3 * (e - 2 * last + older)
        assert math.log(state.penalty_coef / before) == pytest.approx(change)
    assert state.penalty["controller"] == {"last": 0.0, "before": 1.0}


def test_the_example_of_a_piece_with_state_holds_a_process_at_its_target(pid: None) -> None:
    recipe = override(RECIPES["ppo"], ["penalty.controller=pid:Pid", "penalty.controller.target=4"])
    state = initial_state(recipe)
    for _ in range(300):
        kl = 3.0 / (0.1 + state.penalty_coef)  # the higher the price of a nat, the lower the KL
        state = after_update(recipe, state, Observation(kl_reference=kl, kl_old=0.0, rows=64))
    assert kl == pytest.approx(4.0, rel=1e-3)
