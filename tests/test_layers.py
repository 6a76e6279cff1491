"""Who may import whom. The rule is read from the syntax tree, so an import inside a function counts too."""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tutelage

PACKAGE = Path(tutelage.__file__).parent


@dataclass(frozen=True)
class Room:
    """A room of the package: what it is, and what it may import beside itself and `errors`.

    `imports` names rooms; `libraries` names libraries beside the standard one, None for any dependency.
    """

    name: str
    what: str
    imports: str = ""
    libraries: str | None = None


ROOMS = (
    Room("errors", "the error that a user can do something about", libraries=""),
    Room("nouns", "numbers with the nouns that they count, in messages", libraries=""),
    Room("sentences", "sentences with their values, which a catalogue can translate", libraries=""),
    Room("extras", "the extras of the package, and what to say where one is missing", "sentences", ""),
    Room("config", "settings: frozen dataclasses, TOML, JSON and flags", libraries="tomli_w tyro"),
    Room(
        "data",
        "prompts, demonstrations, preferences; files of every kind",
        "sentences extras",
        "numpy pyarrow datasets httpx",
    ),
    Room("figures", "drawings as SVG text, for every page and file; nothing else draws", libraries="numpy"),
    Room("stats", "agreement, reliability, intervals, Bradley-Terry", "data", "numpy scipy"),
    Room(
        "simulate",
        "the embedded worlds: a small language, children's questions, gold preferences, raters",
        "data",
        "",
    ),
    Room("distributed", "the processes that compute one run together", libraries="torch"),
    Room(
        "progress",
        "what a process does at the moment, told where it happens; its line on the terminal",
        "distributed",
        "rich",
    ),
    Room(
        "people",
        "the web application in which people compare answers; never torch",
        "sentences progress extras data stats figures",
    ),
    Room(
        "core",
        "tensors in, tensors out: returns, advantages, surrogates, KL, losses",
        libraries="torch jaxtyping",
    ),
    Room("algorithms", "recipes: which pieces of `core` make PPO, GRPO, ...", "core", "torch jaxtyping"),
    Room("planning", "the bill of a run beforehand: memory, operations, time, cost as closed forms", "", ""),
    Room(
        "engines",
        "how a transformer computes: `plain` is the reference, `cpu` the fast one",
        "planning distributed core data config progress",
    ),
    Room(
        "models",
        "what a policy or a reward model is: loading, adapters, heads, saving",
        "engines planning distributed core data config progress",
    ),
    Room(
        "rewards",
        "what completions are worth: models, functions, rules, judges",
        "models distributed core data config progress",
    ),
    Room(
        "rollout",
        "where completions come from: a policy, a server, a script",
        "models engines distributed core data config progress",
    ),
    Room(
        "train",
        "the two loops (`rl`, `supervised`) and the run directory (`run`)",
        "rollout rewards models engines planning algorithms distributed core data config progress",
    ),
    Room(
        "infer",
        "best of n, test-time optimisation, chat",
        "rollout rewards models core data config",
    ),
    Room(
        "serving",
        "a policy behind HTTP: a queue, groups of answers, formats",
        "models engines planning core data config",
    ),
    Room(
        "evaluation",
        "win rates, drift, reward quality, text measures",
        "models core stats data",
    ),
    Room("report", "one HTML page about a run or a round; model cards", "evaluation stats figures config"),
    Room(
        "workflows",
        "what the verbs do, as functions of settings to results: the Python API",
        "report evaluation serving infer train rewards rollout models engines planning algorithms distributed core "
        "people stats data config extras progress",
    ),
    Room(
        "rounds",
        "the demonstration: workflows as stages with fingerprints",
        "workflows train people simulate stats data config progress",
    ),
    Room(
        "lab",
        "experiments: what the KL does, how noisy gradients are, over-optimisation",
        "rounds workflows report evaluation infer train rollout rewards models algorithms core simulate figures data "
        "config progress",
    ),
    Room(
        "commands",
        "the verbs of the command line: settings, a workflow, what is printed",
        "lab rounds workflows report serving infer train rewards models planning algorithms people "
        "simulate stats data config progress",
    ),
    Room(
        "cli",
        "the table of verbs, help, completion and exit statuses",
        "progress distributed config extras",
        "",
    ),
    Room("__main__", "`python -m tutelage`", "cli", ""),
)
"""Every room, from the ground up: a room imports only rooms above it in this table."""

ALLOWED = {room.name: set(room.imports.split()) for room in ROOMS}
THIRD_PARTIES = {room.name: set(room.libraries.split()) for room in ROOMS if room.libraries is not None}

FAST_ENGINE, CHOOSER = "engines/cpu/", "engines/choose.py"
"""The folder of the CPU engine, and the only file outside it that may import from it."""

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
        if name.startswith("tutelage.engines.cpu") and not path.startswith(FAST_ENGINE) and path != CHOOSER:
            reason = f"only {CHOOSER} imports the CPU engine"
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
        if layer in ALLOWED and other in ALLOWED and other not in ALLOWED[layer] | {layer, "errors", "nouns"}:
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


def test_each_module_imports_only_what_its_layer_may() -> None:
    assert [fault for path in modules() for fault in violations(path, read(path))] == []


def test_every_folder_of_the_package_is_a_room() -> None:
    layers = {path.split("/")[0].removesuffix(".py") for path in modules()}
    assert layers - {"__init__"} == set(ALLOWED)


def test_no_arrow_runs_up() -> None:
    names = [room.name for room in ROOMS]
    for place, room in enumerate(ROOMS):
        assert ALLOWED[room.name] <= set(names[:place]), (
            f"{room.name} may import only rooms above it in the table"
        )


def test_no_room_may_import_what_it_does_not() -> None:
    used = {name: set() for name in ALLOWED}
    for path in modules():
        names = {name.split(".")[1] for _, name in imported(read(path)) if name.startswith("tutelage.")}
        used.setdefault(path.split("/")[0].removesuffix(".py"), set()).update(names)
    assert {
        name: sorted(allowed - used[name]) for name, allowed in ALLOWED.items() if allowed - used[name]
    } == {}


def test_no_circle_of_files() -> None:
    """Imports for type checking count, but not those of the package's face, which loads its names when asked."""
    files = {dotted(path): path for path in modules()}
    arrows = {name: targets(path, files) for name, path in files.items() if name != "tutelage"}
    try:
        list(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_planted_circle_is_found() -> None:
    with pytest.raises(CycleError):
        list(TopologicalSorter({"a": {"b"}, "b": {"c"}, "c": {"a"}}).static_order())


def read(path: str) -> str:
    return (PACKAGE / path).read_text(encoding="utf-8")


def dotted(path: str) -> str:
    """core/kl.py -> tutelage.core.kl"""
    return ".".join(["tutelage", *path.removesuffix(".py").split("/")]).removesuffix(".__init__")


def targets(path: str, files: Mapping[str, str]) -> set[str]:
    """The modules of the package that a module imports; of a package only what is taken from it."""
    found = set()
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & set(files)
            found |= inside or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & set(files) - {dotted(path), "tutelage"}


def test_contributing_has_this_table() -> None:
    rows = [f"| `{room.name}` | {room.what} | {names(room)} |" for room in ROOMS if room.name != "__main__"]
    table = "\n".join(["| room | what it is | imports |", "|---|---|---|", *rows]) + "\n"
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert table in text, f"replace the table of rooms in CONTRIBUTING.md by:\n{table}"


def names(room: Room) -> str:
    """What a room imports, for the table."""
    libraries = (room.libraries or "").replace("_", "-").split()
    return "; ".join(
        part
        for part in (", ".join(f"`{name}`" for name in room.imports.split()), ", ".join(libraries))
        if part
    )


PLANTED = [
    ("people/app.py", "import torch"),
    ("people/app.py", "def serve():\n    import torch.nn as nn"),
    ("people/app.py", "def f():\n    from transformers import AutoTokenizer"),
    ("data/formats.py", "async def f():\n    from torch.utils.data import Dataset"),
    ("stats/agreement.py", "if True:\n    from transformers.utils import logging"),
    ("core/kl.py", "from tutelage.models.policy import Policy"),
    ("core/kl.py", "import numpy as np"),
    ("figures/drawing.py", "from tutelage.stats.intervals import wilson"),
    ("figures/drawing.py", "def draw():\n    import torch"),
    ("stats/intervals.py", "from tutelage.figures import draw"),
    ("report/page.py", "from tutelage.train.run.folder import Folder"),
    ("evaluation/text.py", "from tutelage.report import write_report"),
    ("rounds/demo.py", "from tutelage.commands.sft import main"),
    ("lab/start.py", "from tutelage.commands import sft"),
    ("train/learner.py", "from tutelage.engines.cpu.weight_gradients import total_norm"),
    ("engines/plain.py", "def f():\n    from tutelage.engines.cpu import states"),
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
]


def test_planted_violations_are_found() -> None:
    assert [(path, source) for path, source in PLANTED if len(violations(path, source)) != 1] == []


PERMITTED = [
    (
        "people/app.py",
        "import starlette\nfrom tutelage.stats import agreement\nfrom tutelage import __version__",
    ),
    ("people/web/drawings.py", "from tutelage.figures import draw"),
    ("core/kl.py", "import torch\nfrom tutelage.core.reduce import masked_mean"),
    ("algorithms/ppo.py", "from tutelage.core.kl import kl_estimate"),
    ("data/hub.py", "def load():\n    import datasets"),
    ("core/kl.py", "import math\nfrom tutelage.errors import TutelageError"),
    ("engines/choose.py", "from tutelage.engines.cpu.cpu_engine import CpuEngine"),
    ("engines/cpu/cpu_engine.py", "from tutelage.engines.cpu.weight_gradients import Gradients"),
    ("commands/sft.py", "from tutelage.train.supervised.fit import fit\nimport torch"),
    ("train/run/folder.py", "import tutelage\nfrom tutelage.config.files import save"),
]


def test_what_is_permitted_passes() -> None:
    assert [fault for path, source in PERMITTED for fault in violations(path, source)] == []


def test_no_verb_imports_another() -> None:
    """A verb is settings, a workflow and what is printed; what two verbs share lies below them or in a folder."""
    verbs = {path.stem for path in (PACKAGE / "commands").glob("*.py")} - {"__init__"}
    assert [
        f"{verb} imports {name}"
        for verb in sorted(verbs)
        for _, name in imported(read(f"commands/{verb}.py"))
        if name in {f"tutelage.commands.{other}" for other in verbs - {verb}}
    ] == []


TERMINAL = {"train/run/terminal.py", "train/run/interrupt.py"}
"""What draws progress and answers ctrl-C, for the edges."""
SILENT = ("workflows", "train", "rollout", "infer", "evaluation", "core", "algorithms")


def test_nothing_below_the_command_line_prints() -> None:
    """Workflows and what they stand on return values and log; the edges print."""
    silent = [path for path in modules() if path.split("/")[0] in SILENT and path not in TERMINAL]
    assert [path for path in silent if written(path) & {"print", "sys.stderr", "sys.stdout"}] == []


def written(path: str) -> set[str]:
    """The names that a module has, dotted ones as they stand."""
    tree = ast.parse(read(path))
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}
