"""Who may import whom: the table of `scripts/architecture.py`, held against the syntax tree of every file, so that an
import inside a function counts too; and the bounds of the architecture."""

import ast
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tutelage.commands.table import COMMANDS

ROOT = Path(__file__).parents[1]


def _script():
    spec = spec_from_file_location("architecture", ROOT / "scripts" / "architecture.py")
    module = module_from_spec(spec)
    sys.modules["architecture"] = module
    spec.loader.exec_module(module)
    return module


architecture = _script()
NAMES = [package.name for package in architecture.PACKAGES]


@pytest.fixture(scope="module", autouse=True)
def _trees_are_forgotten():
    """A million nodes, which each later collection of garbage would walk through."""
    yield
    architecture._tree.cache_clear()


def test_each_module_imports_only_what_its_package_may() -> None:
    assert architecture.against_layers() == []


def test_every_folder_of_the_package_is_in_the_table() -> None:
    tops = {path.parts[1].removesuffix(".py") for path in architecture.files("tutelage")}
    assert tops - {"__init__"} == {name.partition(".")[0] for name in NAMES}


def test_imports_run_downwards() -> None:
    """A package imports only those above it in the table."""
    offenders = [
        package.name
        for place, package in enumerate(architecture.PACKAGES)
        if not set(package.imports.split()) <= set(NAMES[:place])
    ]
    assert offenders == []


def test_no_package_may_import_what_it_does_not() -> None:
    """Each import that the table allows is made somewhere."""
    used: dict[str, set[str]] = {name: set() for name in NAMES}
    for path in architecture.files("tutelage"):
        package = architecture.package_of(architecture.dotted(path).partition(".")[2])
        if package is not None:
            imported = {name.partition(".")[2] for _, name in architecture.imported(architecture.read(path))}
            used[package.name] |= imported
    unused = {
        package.name: [
            name
            for name in package.imports.split()
            if not any(module == name or module.startswith(f"{name}.") for module in used[package.name])
        ]
        for package in architecture.PACKAGES
    }
    assert {name: names for name, names in unused.items() if names} == {}


def test_no_circle_of_files_or_packages() -> None:
    """Imports for type checking count, and those of the benchmarks."""
    assert architecture.circle(architecture.arrows()) == []
    packages = {name: {b for a, b in architecture.between_packages() if a == name} for name in NAMES}
    assert architecture.circle(packages) == []


def test_a_planted_circle_is_found() -> None:
    assert architecture.circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


def test_files_and_functions_have_a_bounded_length() -> None:
    assert architecture.long_files() == []
    assert architecture.long_functions() == []


def test_contributing_has_this_table() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert architecture.table() in text, "replace the table of packages by `python scripts/architecture.py --table`"


PLANTED = [
    ("people/app.py", "import torch"),
    ("people/app.py", "def serve():\n    import torch.nn as nn"),
    ("people/app.py", "def f():\n    from transformers import AutoTokenizer"),
    ("people/app.py", "from tutelage import __version__"),
    ("people/app.py", "from tutelage.report.page import render"),
    ("data/formats.py", "async def f():\n    from torch.utils.data import Dataset"),
    ("data/worlds/gold.py", "import numpy as np"),
    ("stats/agreement.py", "if True:\n    from transformers.utils import logging"),
    ("core/kl.py", "from tutelage.models.policy import Policy"),
    ("core/kl.py", "import numpy as np"),
    ("core/kl.py", "import bench.machine"),
    ("base/errors.py", "import numpy"),
    ("base/config/files.py", "from tutelage.data.records import Prompt"),
    ("base/progress/phases.py", "from tutelage.engines.ranks.processes import world_rank"),
    ("report/figures/drawing.py", "from tutelage.stats.intervals import wilson"),
    ("report/figures/drawing.py", "def draw():\n    import torch"),
    ("report/page.py", "from tutelage.train.run.folder import Folder"),
    ("report/page.py", "import torch"),
    ("stats/intervals.py", "from tutelage.report.figures import draw"),
    ("stats/text.py", "from tutelage.report import write_report"),
    ("engines/plans/rank_memory.py", "import torch"),
    ("engines/plans/rank_memory.py", "from tutelage.engines.interface import Engine"),
    ("engines/plain.py", "def f():\n    from tutelage.engines.cpu import states"),
    ("train/learner.py", "from tutelage.engines.cpu.weight_gradients import total_norm"),
    ("train/supervised/fit.py", "class A:\n    def f(self):\n        from tutelage.people.store import Store"),
    ("train/supervised/fit.py", "from tutelage.demo.rounds.round import run_round"),
    ("algorithms/ppo.py", "try:\n    import transformers\nexcept ImportError:\n    pass"),
    ("algorithms/ppo.py", "from tutelage import models"),
    ("models/policy.py", "import tutelage.algorithms.recipe"),
    ("models/heads.py", "from tutelage.rewards.reward import Reward"),
    ("rewards/judge.py", "from tutelage.people.model_judges import EndpointJudge"),
    ("commands/sft/old.py", "from tutelage.demo.rounds.round import run_round"),
    ("data/pairing.py", "from .records import Prompt"),
]


def test_planted_violations_are_found() -> None:
    assert [case for case in PLANTED if len(architecture.violations(*case)) != 1] == []


PERMITTED = [
    ("people/app.py", "import starlette\nfrom tutelage.stats import agreement"),
    ("people/app.py", "from tutelage.base.version import __version__"),
    ("people/web/templating.py", "from tutelage.report.figures import draw"),
    ("core/kl.py", "import torch\nfrom tutelage.core.reduce import masked_mean"),
    ("core/kl.py", "import math\nfrom tutelage.base.errors import TutelageError"),
    ("algorithms/ppo.py", "from tutelage.core.kl import kl_estimate"),
    ("data/tables.py", "def load():\n    import datasets"),
    ("engines/choose.py", "from tutelage.engines.cpu.cpu_engine import CpuEngine"),
    ("engines/cpu/cpu_engine.py", "from tutelage.engines.cpu.weight_gradients import Gradients"),
    ("train/run/folder.py", "from tutelage.base.config.files import save"),
]


def test_what_is_permitted_passes() -> None:
    assert [fault for case in PERMITTED for fault in architecture.violations(*case)] == []


def test_no_command_imports_another() -> None:
    """What two commands share lies beside them or below. Settings may build on others' settings."""
    names = {command.name for command in COMMANDS}
    assert [
        f"{path} imports {name}"
        for path in architecture.files("tutelage/commands")
        if path.parts[2].removesuffix(".py") in names
        for _, name in architecture.imported(architecture.read(path))
        if name.startswith("tutelage.commands.")
        and not name.endswith(".settings")
        and name.split(".")[2] in names - {path.parts[2].removesuffix(".py")}
    ] == []


TERMINAL = {"train/run/interrupt.py"}
"""What answers ctrl-C, for the command line."""
SILENT = ("train", "rollout", "core", "algorithms")


def test_nothing_below_the_command_line_prints() -> None:
    """Functions of commands and what they stand on return values and log; the command line prints."""
    silent = [
        path
        for path in architecture.files("tutelage")
        if (path.parts[1] in SILENT or path.name == "run.py")
        and path.relative_to("tutelage").as_posix() not in TERMINAL
    ]
    assert [path for path in silent if _names(path) & {"print", "sys.stderr", "sys.stdout"}] == []


def _names(path: Path) -> set[str]:
    """The names in a file, with their attributes."""
    tree = architecture.parsed(path)
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}
