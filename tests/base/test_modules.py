"""Values that are imported when they are first asked for."""

import subprocess
import sys

import pytest

from tutelage.base.modules import LazyTable

TABLE: LazyTable[object] = LazyTable({"pi": ("math", "pi"), "turtle": ("turtle", "Turtle")})


def test_a_table_has_its_names_and_the_values_of_the_modules() -> None:
    assert (list(TABLE), len(TABLE), "turtle" in TABLE, "e" in TABLE) == (["pi", "turtle"], 2, True, False)
    assert TABLE["pi"] == pytest.approx(3.141592653589793)
    with pytest.raises(KeyError):
        TABLE["e"]


def test_only_the_value_that_is_asked_for_is_imported() -> None:
    code = (
        "import sys; from tutelage.algorithms.registry import RECIPES; RECIPES['grpo']; "
        "print(*(name.rpartition('.')[2] for name in sys.modules if 'tutelage.algorithms.' in name))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "grpo" in loaded
    assert not {"ppo", "dapo", "trpo"} & set(loaded)
