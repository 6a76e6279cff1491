"""The architecture of the package: who may import whom, and figures about its economy.

    python scripts/architecture.py            figures, one a line with its definition
    python scripts/architecture.py --table    the table of packages, as CONTRIBUTING.md has it
    python scripts/architecture.py --modules  also the modules that a finished run loads (a minute)

`tests/test_layers.py` holds the code against `PACKAGES` and against the bounds that must hold.
"""

import ast
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tutelage"


@dataclass(frozen=True)
class Package:
    """A package, or a folder of one with rules of its own: what it is, and what it may import beside itself and
    `base.errors`, `base.modules`, `base.nouns` and `base.version`.

    `imports` names packages and folders in this table; `libraries` names libraries beside the standard one, None for
    any dependency. The longest name that a module's path begins with applies.
    """

    name: str
    what: str
    imports: str = ""
    libraries: str | None = None

    def allows(self, module: str) -> bool:
        """Whether a module of the package, dotted below `tutelage`, may be imported."""
        names = (*self.imports.split(), self.name, "base.errors", "base.modules", "base.nouns", "base.version")
        return any(_within(module, name) for name in names)


PACKAGES = (
    Package("base", "errors, version, counted nouns, sentences, concurrent calls, extras of the package", libraries=""),
    Package("base.config", "settings: frozen dataclasses, TOML, JSON and flags", libraries="tomli_w tyro"),
    Package("base.progress", "phases of the work, and their line on a terminal", libraries="rich"),
    Package(
        "core", "tensors in, tensors out: returns, advantages, surrogates, KL, losses", libraries="torch jaxtyping"
    ),
    Package("algorithms", "recipes: which pieces of `core` make PPO, GRPO, ...", "core", "torch jaxtyping"),
    Package(
        "data",
        "prompts, demonstrations, preferences; files of every kind; endpoints",
        "base",
        "numpy pyarrow datasets httpx msgspec",
    ),
    Package("data.worlds", "the embedded worlds: a small language, children's questions, their gold", "data", ""),
    Package(
        "stats",
        "votes, agreement, reliability, intervals, win rates, text measures; no torch",
        "data base",
        "numpy scipy rouge_score nltk",
    ),
    Package("report.figures", "figures as SVG text, for every page and file; nothing else draws", "base", "numpy"),
    Package(
        "people",
        "the web application in which people compare completions; simulated raters; no torch",
        "base data stats report.figures",
    ),
    Package("engines.plans", "the bill of a run beforehand: memory, operations, time, cost as closed forms", "", ""),
    Package("engines.ranks", "the processes that compute one run together", "", "torch"),
    Package("engines", "how a transformer computes: the reference `plain`, the fast `cpu` and `gpu`", "core data base"),
    Package("models", "policies and reward models: loading, adapters, heads, saving", "engines core data base"),
    Package("rewards", "rewards of completions: models, functions, rules, judges", "models core data base"),
    Package("rollout.tools", "tools that a policy calls, each with a schema and limits", "data base", "transformers"),
    Package(
        "rollout",
        "where completions come from: a policy, a server, best of n, a chat; the server of a model",
        "rewards models engines core data base",
    ),
    Package(
        "train",
        "the two loops (`rl`, `supervised`) and the run directory (`run`)",
        "rollout rewards models engines algorithms core data base",
    ),
    Package("report", "one HTML page about a run or a round; model cards", "stats base"),
    Package(
        "commands",
        "the commands: their settings, their functions, what they print; the command line",
        "report train rollout rewards models engines algorithms core people stats data base",
    ),
    Package(
        "demo",
        "the demonstration in rounds, and the laboratory: an application on the commands",
        "commands report train rollout rewards models algorithms core people stats data base",
    ),
    Package("__main__", "`python -m tutelage`", "commands", ""),
)
"""Every package, from the ground up: a package imports only those above it in this table."""

FAST_ENGINE, CHOOSER = "engines/cpu/", "engines/choose.py"
"""The folder of the CPU engine, and the only file outside it that may import from it."""

TORCH_FAMILY = {"torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers"}
NO_TORCH = ("people", "report")
"""Packages with any library but those of `TORCH_FAMILY`."""

REPEATED = {"__init__", "settings", "run", "show"}
"""Names of files that many folders have on purpose."""

MAX_FILE, MAX_FUNCTION = 400, 60
"""Lines of a file and of a function at most."""


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def package_of(module: str) -> Package | None:
    """The entry of the table for a module, dotted below `tutelage`; None for the package's face."""
    around = [package for package in PACKAGES if _within(module, package.name)]
    return max(around, key=lambda package: len(package.name), default=None)


@cache
def imported(source: str) -> tuple[tuple[int, str], ...]:
    """The dotted names that a module imports, anywhere in it, with their lines."""
    return tuple(_imported(_tree(source)))


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if base == "tutelage":
                yield from ((node.lineno, f"tutelage.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base


def violations(path: str, source: str) -> list[str]:
    """The imports of a module at `path`, relative to the package, that the table forbids."""
    module = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    faults = []
    for line, name in imported(source):
        reason = _forbidden(module, name)
        if name.startswith("tutelage.engines.cpu") and not path.startswith(FAST_ENGINE) and path != CHOOSER:
            reason = f"only {CHOOSER} imports the CPU engine"
        if reason:
            faults.append(f"{path}:{line} imports {name}: {reason}")
    return faults


def _forbidden(module: str, name: str) -> str:
    """Why a module must not import `name`; empty where it may."""
    if name.startswith("."):
        return "imports are absolute"
    package = package_of(module)
    top, _, inner = name.partition(".")
    if top == "bench":
        return "the package does not import its benchmarks"
    if package is None:
        return ""
    if top == "tutelage":
        if not inner or inner == "__version__":
            return "the package's face imports the package; the version is in base.version"
        if package.allows(inner):
            return ""
        return f"{package.name} may import {', '.join(package.imports.split()) or 'nothing'} of the package"
    if top in sys.stdlib_module_names:
        return ""
    if package.libraries is not None and top not in package.libraries.split():
        return f"{package.name} may import {', '.join(package.libraries.split()) or 'nothing'} from outside"
    if package.name in NO_TORCH and top in TORCH_FAMILY:
        return f"{package.name} works without torch"
    return ""


def files(*folders: str) -> list[Path]:
    """The Python files below folders of the repository, relative to it."""
    return sorted(
        path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py") if path.is_file()
    )


@cache
def read(path: Path) -> str:
    """The source of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file of the repository."""
    return _tree(read(path))


_tree = cache(ast.parse)


def dotted(path: Path) -> str:
    """tutelage/core/kl.py -> tutelage.core.kl"""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@cache
def arrows() -> dict[str, set[str]]:
    """The modules that each module of the package and of the benchmarks imports."""
    modules = {dotted(path): path for path in files("tutelage", "bench")}
    return {name: _targets(path, modules) for name, path in modules.items()}


def _targets(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules that a file imports; of a package only what is taken from it."""
    targets: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & set(modules)
            targets |= inside or {node.module}
        elif isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
    return targets & set(modules) - {dotted(path), "tutelage"}


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The modules of one circle of imports; empty where there is none."""
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


@cache
def between_packages() -> set[tuple[str, str]]:
    """The pairs of top-level packages of which one imports the other."""
    return {
        (importer.split(".")[1], target.split(".")[1])
        for importer, targets in arrows().items()
        for target in targets
        if importer.startswith("tutelage.")
        and target.startswith("tutelage.")
        and importer.split(".")[1] != target.split(".")[1]
    }


def against_layers() -> list[str]:
    """Every import that the table forbids."""
    return [
        fault for path in files("tutelage") for fault in violations(path.relative_to("tutelage").as_posix(), read(path))
    ]


def long_functions() -> list[str]:
    """The functions of the package with more than `MAX_FUNCTION` lines, docstring included."""
    return [
        f"{path}:{node.lineno} {node.name}: {length} lines"
        for path in files("tutelage")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION
    ]


def long_files() -> list[str]:
    """The files of the package with more than `MAX_FILE` lines."""
    lengths = {path: len(read(path).splitlines()) for path in files("tutelage")}
    return [f"{path}: {length} lines" for path, length in lengths.items() if length > MAX_FILE]


def repeated_files() -> dict[str, int]:
    """Names of files that the package has twice or more, but for `REPEATED`, with their number."""
    names = Counter(path.stem for path in files("tutelage") if path.stem not in REPEATED)
    return {name: number for name, number in names.items() if number > 1}


def repeated_classes() -> dict[str, int]:
    """Names of classes at the top of modules that the package has twice or more, with their number."""
    names = Counter(
        node.name for path in files("tutelage") for node in parsed(path).body if isinstance(node, ast.ClassDef)
    )
    return {name: number for name, number in names.items() if number > 1}


def single_calls() -> tuple[int, int]:
    """Private functions of modules that are named once beside their definition, and all private functions."""
    once = every = 0
    for path in files("tutelage"):
        tree = parsed(path)
        names = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
                every += 1
                once += names[node.name] == 1
    return once, every


def import_lines() -> int:
    """Lines of the package that belong to import statements."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in files("tutelage")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


RUN = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, "tests")
import tiny
import tutelage as tt
folder = Path(tempfile.mkdtemp())
(folder / "prompts.jsonl").write_text("".join('{"prompt": "say %d"}\\n' % i for i in range(8)))
tt.improve(
    model=tt.Model(tiny.save("llama", folder / "model"), engine="plain"), prompts=str(folder / "prompts.jsonl"),
    reward="rule:length(limit=200)", recipe="grpo", out=folder / "run", steps=2, batch_size=2,
    sampling={"max_new_tokens": 8}, quiet=True,
)
print(sum(name.partition(".")[0] == "tutelage" for name in sys.modules), len(sys.modules))
"""


def loaded_modules() -> str:
    """Modules of the package, and all, in `sys.modules` after a run of `improve` of two steps on the plain engine."""
    done = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return " of ".join(done.stdout.split())


def figures() -> Iterator[tuple[str, object, str]]:
    """Name, value and definition of each figure."""
    lengths = [len(read(path).splitlines()) for path in files("tutelage")]
    names, classes = repeated_files(), repeated_classes()
    tops = {path.parts[1].removesuffix(".py") for path in files("tutelage") if len(path.parts) > 1}
    yield ("packages", len(tops - {"__init__", "__main__"}), "folders and files below tutelage/, without its face")
    yield "files", len(lengths), "files of Python in the package"
    yield "median file", statistics.median(lengths), "lines of the median file"
    yield "lines", sum(lengths), "lines of Python in the package, all"
    yield "import lines", import_lines(), "lines of import statements"
    yield ("file names twice", f"{len(names)} ({sum(names.values())} files)", f"names of files but {_listed(REPEATED)}")
    yield "class names twice", len(classes), "names of classes at the top of modules"
    yield ("single calls", "{} of {}".format(*single_calls()), "private functions named once beside their definition")
    yield "package imports", len(between_packages()), "pairs of packages of which one imports the other"
    yield "against the layers", len(against_layers()), "imports that the table forbids; 0 is tested"
    yield "circles", int(bool(circle(arrows()))), "whether files import each other in a circle; 0 is tested"
    yield "long files", len(long_files()), f"files of more than {MAX_FILE} lines; 0 is tested"
    yield "long functions", len(long_functions()), f"functions of more than {MAX_FUNCTION} lines; 0 is tested"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def table() -> str:
    """The table of packages, as CONTRIBUTING.md has it."""
    rows = [f"| `{each.name}` | {each.what} | {_imports(each)} |" for each in PACKAGES if each.name != "__main__"]
    return "\n".join(["| package | what it is | imports |", "|---|---|---|", *rows]) + "\n"


def _imports(package: Package) -> str:
    libraries = (package.libraries or "").replace("_", "-").split()
    parts = (", ".join(f"`{name}`" for name in package.imports.split()), ", ".join(libraries))
    return "; ".join(part for part in parts if part)


def main(words: list[str]) -> None:
    """Print the table or the figures."""
    if "--table" in words:
        print(table(), end="")
        return
    for name, value, definition in figures():
        print(f"{name:<20} {value!s:>20}   {definition}")
    if "--modules" in words:
        print(f"{'modules of a run':<20} {loaded_modules():>20}   of the package, and all, after two steps of improve")


if __name__ == "__main__":
    main(sys.argv[1:])
