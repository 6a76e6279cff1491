"""`import tutelage as tt`: what it offers, and that it loads nothing before it is used."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from offenders import for_each

import tutelage as tt
import tutelage.people
import tutelage.train

ROOT = Path(__file__).parents[1]
PACKAGES = {"tutelage": tt, "tutelage.people": tutelage.people, "tutelage.train": tutelage.train}


@for_each(PACKAGES)
def test_every_name_is_there_and_no_other(name):
    package = PACKAGES[name]
    for one in package.__all__:
        assert getattr(package, one) is not None
        assert one in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'smt'"):
        package.smt  # noqa: B018


@for_each(PACKAGES)
def test_editors_see_the_names_that_are_there(name):
    """`__init__.pyi` is what `scripts/interface.py` writes."""
    script = runpy.run_path(str(ROOT / "scripts" / "interface.py"))
    assert script["file_of"](name).read_text(encoding="utf-8") == script["interface"](name)


KEYWORDS = """
from pathlib import Path
import tutelage as tt
result: tt.SftResult = tt.sft(model="m", data=Path("d"), out="o", lora={"rank": 16}, dtype="bf16")
tt.improve(model=result.model, prompts="p", out="o", reward={len: 0.5, "rule:math": 1}, recipe=tt.RECIPES["ppo"])
tt.sft(model="m", data="d", out="o", epochz=1.0)
tt.sft(model="m", data="d")
tt.sft(model="m", data="d", out="o", epochs="two")
"""


@pytest.mark.long
def test_a_type_checker_sees_wrong_keywords(tmp_path):
    (tmp_path / "code.py").write_text(KEYWORDS)
    words = [sys.executable, "-m", "mypy", str(tmp_path / "code.py")]
    output = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout
    wrong = {int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line}
    assert wrong == {6, 7, 8}, output


def test_importing_is_quick_and_loads_no_torch():
    """Processor time, since a machine that others use too may take its time."""
    code = """
import resource, sys
import tutelage
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sorted({"torch", "numpy", "transformers", "tyro"} & set(sys.modules)))
"""
    words = [sys.executable, "-c", code]
    told = [subprocess.run(words, check=True, capture_output=True, text=True).stdout.split() for _ in range(3)]
    assert all(len(one) == 1 for one in told), told
    assert min(float(one[0]) for one in told) < 0.3
