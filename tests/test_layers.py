"""Who may import whom. The rule is read from the syntax tree, so an import inside a function counts too."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tutelage

PACKAGE = Path(tutelage.__file__).parent

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config": set(),
    "data": set(),
    "stats": {"data"},
    "simulate": {"data", "stats"},
    "people": {"data", "stats", "config"},
    "core": set(),
    "algorithms": {"core"},
    "engines": {"core", "data", "config"},
    "models": {"engines", "core", "data", "config"},
    "rollout": {"models", "engines", "core", "data", "config"},
    "rewards": {"models", "engines", "core", "data", "config"},
    "train": {"rewards", "rollout", "models", "engines", "algorithms", "core", "data", "config"},
    "infer": {"rewards", "rollout", "models", "engines", "core", "data", "config"},
    "evaluation": {"infer", "rewards", "models", "engines", "core", "stats", "data", "config"},
    "report": {"evaluation", "data", "config", "stats"},
    "workflows": {
        *("evaluation", "infer", "train", "rewards", "rollout", "models", "engines", "algorithms", "core"),
        *("people", "stats", "data", "config"),
    },
    "rounds": {"workflows", "train", "rewards", "people", "simulate", "stats", "data", "config"},
    "lab": {
        *("rounds", "workflows", "report", "evaluation", "infer", "train", "rewards", "rollout", "models"),
        *("engines", "algorithms", "core", "simulate", "data", "config"),
    },
}
"""What a layer may import of the house, beside itself, the errors and the version."""

EDGES = {"cli", "commands", "__main__"}
"""The edges of the house import anything; nothing imports them but each other."""

THIRD_PARTIES: dict[str, set[str]] = {
    "errors": set(),
    "config": {"tomli_w", "tyro"},
    "data": {"numpy", "pyarrow", "datasets", "httpx"},
    "stats": {"numpy", "scipy"},
    "simulate": {"numpy"},
    "core": {"torch", "jaxtyping"},
    "algorithms": {"torch", "jaxtyping"},
}
"""What a layer may import beside the standard library. A layer not named here may import any dependency."""

TORCH_FAMILY = {"torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers"}


def imported(source: str) -> Iterator[tuple[int, str]]:
    """The dotted names that a module imports, anywhere in it, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if base == "tutelage":
                yield from ((node.lineno, f"tutelage.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base


def violations(path: str, source: str) -> list[str]:
    """What a module at `path` (relative to the package) imports although its layer must not."""
    layer = path.split("/")[0].removesuffix(".py")
    found = []
    for line, name in imported(source):
        reason = forbidden(layer, name)
        if reason:
            found.append(f"{path}:{line} imports {name}: {reason}")
    return found


def forbidden(layer: str, name: str) -> str:
    """Why `layer` must not import `name`; empty when it may."""
    if name.startswith("."):
        return "imports are absolute"
    top, _, inner = name.partition(".")
    if top == "tutelage":
        other = inner.split(".")[0]
        known = other in ALLOWED or other in EDGES
        if layer in ALLOWED and known and other not in ALLOWED[layer] | {layer, "errors"}:
            return f"{layer} may import {', '.join(sorted(ALLOWED[layer])) or 'nothing'} of the house"
        return ""
    if top in sys.stdlib_module_names:
        return ""
    if layer in THIRD_PARTIES and top not in THIRD_PARTIES[layer]:
        return f"{layer} may import {', '.join(sorted(THIRD_PARTIES[layer])) or 'nothing'} from outside"
    if layer == "people" and top in TORCH_FAMILY:
        return "the application for people works without torch"
    return ""


def modules() -> list[str]:
    return sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", modules())
def test_each_module_imports_only_what_its_layer_may(path: str) -> None:
    assert violations(path, (PACKAGE / path).read_text(encoding="utf-8")) == []


def test_every_folder_of_the_package_has_a_layer() -> None:
    layers = {path.split("/")[0].removesuffix(".py") for path in modules()}
    assert layers - {"__init__"} <= set(ALLOWED) | EDGES


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("people/app.py", "import torch"),
        ("people/app.py", "def serve():\n    import torch.nn as nn"),
        ("people/app.py", "def f():\n    from transformers import AutoTokenizer"),
        ("data/formats.py", "async def f():\n    from torch.utils.data import Dataset"),
        ("stats/agreement.py", "if True:\n    from transformers.utils import logging"),
        ("core/kl.py", "from tutelage.models.policy import Policy"),
        ("core/kl.py", "import numpy as np"),
        ("algorithms/ppo.py", "try:\n    import transformers\nexcept ImportError:\n    pass"),
        ("algorithms/ppo.py", "from tutelage import models"),
        ("models/policy.py", "import tutelage.algorithms.recipe"),
        (
            "train/supervised/fit.py",
            "class A:\n    def f(self):\n        from tutelage.people.store import Store",
        ),
        ("train/supervised/fit.py", "from tutelage.simulate.gold import gold"),
        ("config/files.py", "from tutelage.data.records import Prompt"),
        ("infer/chat.py", "from tutelage.cli import main"),
        ("rewards/judge.py", "from tutelage.people.judging import EndpointJudge"),
        ("models/heads.py", "from tutelage.rewards.reward import Reward"),
        ("data/pairing.py", "from .records import Prompt"),
    ],
)
def test_a_planted_violation_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "people/app.py",
            "import starlette\nfrom tutelage.stats import agreement\nfrom tutelage import __version__",
        ),
        ("core/kl.py", "import torch\nfrom tutelage.core.reduce import masked_mean"),
        ("algorithms/ppo.py", "from tutelage.core.kl import kl_estimate"),
        ("data/hub.py", "def load():\n    import datasets"),
        ("core/kl.py", "import math\nfrom tutelage.errors import TutelageError"),
        ("commands/sft.py", "from tutelage.train.supervised.fit import fit\nimport torch"),
        ("train/run/folder.py", "import tutelage\nfrom tutelage.config.files import save"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(path, source) == []


VERBS = sorted({path.stem for path in (PACKAGE / "commands").glob("*.py")} - {"__init__"})


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_imports_another(verb: str) -> None:
    """A verb is settings, a workflow and what is printed; what two verbs share lies below them or in a folder."""
    source = (PACKAGE / "commands" / f"{verb}.py").read_text(encoding="utf-8")
    others = {f"tutelage.commands.{other}" for other in VERBS if other != verb}
    assert not others & {name for _, name in imported(source)}


TERMINAL = {"train/run/terminal.py", "train/run/progress.py", "train/run/interrupt.py"}
"""What draws progress and answers ctrl-C, for the edges."""
SILENT = ("workflows", "train", "rollout", "infer", "evaluation", "core", "algorithms")


@pytest.mark.parametrize("path", [path for path in modules() if path.split("/")[0] in SILENT])
def test_nothing_below_the_command_line_prints(path: str) -> None:
    """Workflows and what they stand on return values and log; the edges print."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    written = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}
    assert path in TERMINAL or not written & {"print", "sys.stderr", "sys.stdout"}
