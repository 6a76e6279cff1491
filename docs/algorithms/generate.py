"""Write the pages of this folder from the code: `python docs/algorithms/generate.py`; with --check only compare.

Everything on a page comes from the file it is about: the words from its docstring, the slots from its recipes, the code
from its source. So a page cannot say anything that the code does not.
"""

import importlib.util
import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.registry import FILES
from tutelage.algorithms.table import pieces, row, table
from tutelage.core import preferences

HERE = Path(__file__).parent
OPENINGS = r"Differs from [\w ]+(?=:| in)|Degenerates|Watch|Left out|\w+ differs from [\w ]+(?=:)|ppo_kl_stop(?= ends)"
NOTE = "<!-- written by docs/algorithms/generate.py -->\n"


INTRODUCTION = """\
Every algorithm is a value: a `Recipe` that names its pieces. Two lines of the table show how two algorithms differ.
`tutelage recipes` prints the same; [adding one](adding.md) takes one file."""


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made = {f"{name(file)}.md": page(file, recipes) for file, recipes in FILES.items()}
    made |= {f"loss_{words.names[0]}.md": loss_page(cls, words) for cls, words in losses().items()}
    return made | {"README.md": index()}


def name(file: ModuleType) -> str:
    return file.__name__.rpartition(".")[2]


def page(file: ModuleType, recipes: tuple[Recipe, ...]) -> str:
    title, _, rest = (file.__doc__ or "").strip().partition("\n\n")
    source = Path(file.__file__ or "").read_text()
    code = source.split('"""', 2)[2].strip()
    called = " or ".join(f"`--recipe {recipe.name}`" for recipe in recipes)
    parts = [
        f"# {re.split(r' [(]|: |[.]$', title)[0]}",
        words(title),
        words(rest),
        f"## Slots\n\n{slots(recipes)}",
        f"## The whole of it\n\n```python\n{code}\n```",
        f"Run it with `tutelage improve` {called}; change a slot with `--set`, as in `--set surrogate.low=0.1`.",
    ]
    return NOTE + "\n\n".join(parts) + "\n"


def words(text: str) -> str:
    """Indented lines are equations; lines that open with one of `OPENINGS` begin a point of a list."""
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            blocks.append("```\n" + re.sub(r"^    ", "", block, flags=re.M) + "\n```")
        else:
            said = re.sub(rf"\n(?!{OPENINGS})", " ", block)
            blocks.append(re.sub(rf"^({OPENINGS})", r"- **\1**", said, flags=re.M))
    return "\n\n".join(blocks)


def slots(recipes: tuple[Recipe, ...]) -> str:
    rows = [row(recipe) for recipe in recipes]
    lines = [f"| | {' | '.join(r['name'] for r in rows)} |", "|---" * (len(rows) + 1) + "|"]
    for slot in rows[0]:
        if slot != "name" and any(r[slot] for r in rows):
            lines.append(f"| {slot} | {' | '.join(r[slot] or '-' for r in rows)} |")
    return "\n".join(lines)


def losses() -> dict[str, Any]:
    """The words about each class of preference loss."""
    spec = importlib.util.spec_from_file_location("losses", HERE / "losses.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = sys.modules["losses"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.LOSSES
    return found


def loss_page(cls: str, words: Any) -> str:
    """A page about a loss over pairs: the words of `losses.py`, settings and code from the class."""
    code = inspect.getsource(getattr(preferences, cls))
    bare = re.sub(r'\n    """.*?"""\n+', "\n", code, count=1, flags=re.S).strip()
    kinds = [preferences.PREFERENCE_LOSSES[name] for name in words.names]
    known = [field.name for field in fields(kinds[0])]  # type: ignore[arg-type]
    settings = [f"| | {' | '.join(words.names)} |", "|---" * (len(kinds) + 1) + "|"]
    settings += [f"| {slot} | {' | '.join(str(getattr(kind, slot)) for kind in kinds)} |" for slot in known]
    needs = ", ".join(sorted(getattr(kinds[0], "needs", ()))) or "nothing"
    settings += [
        f"| needs | {' | '.join([needs] * len(kinds))} |",
        f"| paper | {' | '.join([words.paper] * len(kinds))} |",
    ]
    points = [f"- **Differs from {other}**: {how}" for other, how in words.differs]
    points += [f"- **Degenerates**: {words.degenerates}", f"- **Watch**: {words.watch}"]
    called = " or ".join(f"`--loss {name}`" for name in words.names)
    told = (
        f"{words.paper}. With h = [log π(chosen) − log π_ref(chosen)] − [log π(rejected) − log π_ref(rejected)], of "
        "whole answers, and s the logistic function:"
    )
    parts = [
        f"# {words.title}",
        told,
        f"```\n{words.equation}\n```",
        "\n".join(points),
        "## Settings\n\n" + "\n".join(settings),
        f"## The whole of it\n\n```python\n{bare}\n```",
        f"Run it with `tutelage dpo` {called}; change a setting with `--set`, as in `--set {known[0]}=0.05`.",
    ]
    return NOTE + "\n\n".join(parts) + "\n"


def index() -> str:
    homes = {recipe.name: name(file) for file, recipes in FILES.items() for recipe in recipes}
    columns = list(table()[0])
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for line in table():
        texts = [f"[{line['name']}]({homes[line['name']]}.md)"] + [line[c] or "-" for c in columns[1:]]
        lines.append(f"| {' | '.join(texts)} |")
    parts = [
        "# Algorithms",
        INTRODUCTION,
        "\n".join(lines),
        "# Losses over pairs, without rollouts",
        "`tutelage dpo --loss NAME` trains on preferences directly.",
        "\n".join(
            f"- [{', '.join(words.names)}](loss_{words.names[0]}.md): {words.title} ({words.paper})"
            for words in losses().values()
        ),
        "# Pieces",
    ]
    for slot, known in pieces().items():
        parts.append(f"## {slot}\n\n" + "\n".join(f"- `{piece}`: {says}" for piece, says in known.items()))
    return NOTE + "\n\n".join(parts) + "\n"


def main() -> int:
    stale = {file: text for file, text in pages().items() if not same(HERE / file, text)}
    if "--check" in sys.argv:
        print(
            "\n".join(
                f"{file} does not say what the code says; run docs/algorithms/generate.py" for file in stale
            )
        )
        return 1 if stale else 0
    for file, text in stale.items():
        (HERE / file).write_text(text)
    return 0


def same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
