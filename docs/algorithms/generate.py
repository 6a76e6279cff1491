"""Write the pages of this folder from the code: `python docs/algorithms/generate.py`; with --check only compare.

Everything on a page comes from the file it is about: the words from its docstring, the slots from its recipes, the code
from its source. So a page cannot say anything that the code does not.
"""

import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

from tutelage.algorithms.registry import FILES, RECIPES
from tutelage.algorithms.table import pieces, row, table
from tutelage.core import preferences

HERE = Path(__file__).parent
OPENINGS = r"Differs from [\w ]+(?=:| in)|Degenerates|Watch|Left out|\w+ differs from [\w ]+(?=:)|ppo_kl_stop(?= ends)"
COMMANDS = {"distillation": "tutelage distill --teacher MODEL"}
"""How the recipes of a file are run, by its name, where it is not `tutelage improve`."""
EXAMPLES = {COMMANDS["distillation"]: "penalty.mixture=1"}
USUAL = "surrogate.low=0.1"
"""Changes of a slot."""
NOTE = "<!-- written by docs/algorithms/generate.py -->\n"


INTRODUCTION = """\
Every algorithm is a value: a `Recipe` that names its pieces. Compare two lines of the table to see how two algorithms
differ. `tutelage recipes` prints the same table; [adding an algorithm](../howto/custom_algorithm.md) takes one file."""


ESTIMATORS = {"k1": "x", "k2": "x² / 2", "k3": "exp(−x) − 1 + x"}
ESTIMATES = "Estimates of the KL to the reference, with x = log π − log π_ref of a sampled token"

OWN_STATE = """\
A piece with a state has two methods, as in
[optax](https://optax.readthedocs.io/en/latest/api/transformations.html): `init() -> state`, and a call that takes the
state last and returns it after its result. A piece without `init` is called without a state. This controller holds the
KL to the reference at a target:

```python
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Pid:
    \"\"\"β ← β exp(p (e − e₁) + i e + d (e − 2 e₁ + e₂)), e = kl / target − 1 of this step and the two before it.\"\"\"

    target: float = 6.0  # nats per response
    p: float = 0.2
    i: float = 0.05
    d: float = 0.0

    def init(self):
        return {"last": 0.0, "before": 0.0}

    def __call__(self, coef, kl, rows, state):
        error = min(max(kl / self.target - 1.0, -1.0), 1.0)
        last, before = state["last"], state["before"]
        change = self.p * (error - last) + self.i * error + self.d * (error - 2 * last + before)
        return coef * math.exp(change), {"last": error, "before": last}
```

Saved as `pid.py` somewhere on `PYTHONPATH`, it runs with `--set penalty.controller=pid:Pid` and takes
`--set penalty.controller.target=3`.

- A state consists of numbers, strings, lists, and dicts with string keys, and it is never changed in place. The run's
  checkpoints keep it as JSON. Restoring a state into a recipe that it does not fit is an error.
- Baselines, advantages, shapings and controllers may have a state.
  [An algorithm of your own](../howto/custom_algorithm.md) lists the arguments of each.
- Further inputs of a piece come in one `Context`: the prompt's id of each row, the limit on tokens, the scores of
  greedy completions. So a mean per prompt is a baseline with a state:
  [examples/6_own_algorithm.py](../../examples/6_own_algorithm.py) is one file with such a piece, a recipe and a loop.
- A surrogate is called once per minibatch, and all minibatches of a step see the same state. One with a state has
  `at(state) -> surrogate` and `observe(observation, state) -> state`, which is called after the step
  (`KlPenalised` in `tutelage/core/surrogates.py`)."""


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made = {f"{file}.md": page(file, names) for file, names in FILES.items()}
    made |= {f"loss_{words.names[0]}.md": loss_page(cls, words) for cls, words in losses().items()}
    return made | {"README.md": index()}


def page(file: str, names: tuple[str, ...]) -> str:
    module = importlib.import_module(f"tutelage.algorithms.{file}")
    title, _, rest = (module.__doc__ or "").strip().partition("\n\n")
    code = inspect.getsource(module).split('"""', 2)[2].strip()
    called = " or ".join(f"`--recipe {name}`" for name in names)
    command = COMMANDS.get(file, "tutelage improve")
    parts = [
        f"# {re.split(r' [(]|: |[.]$', title)[0]}",
        words(title),
        words(rest),
        f"## Slots\n\n{slots(names)}",
        *estimators(rest + slots(names)),
        f"## Source\n\n```python\n{code}\n```",
        f"Run it with `{command}` {called}; change a slot with `--set`, as in `--set {EXAMPLES.get(command, USUAL)}`.",
    ]
    return NOTE + "\n\n".join(parts) + "\n"


def words(text: str) -> str:
    """Indented lines are equations; lines that open with one of `OPENINGS` begin a point of a list."""
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            blocks.append(block)
        else:
            said = re.sub(rf"\n(?!{OPENINGS})", " ", block)
            blocks.append(re.sub(rf"^({OPENINGS})", r"- **\1**", said, flags=re.M))
    return "\n\n".join(blocks)


def slots(names: tuple[str, ...]) -> str:
    rows = [row(RECIPES[name]) for name in names]
    lines = [f"| | {' | '.join(r['name'] for r in rows)} |", "|---" * (len(rows) + 1) + "|"]
    for slot in rows[0]:
        if slot != "name" and any(r[slot] for r in rows):
            lines.append(f"| {slot} | {' | '.join(r[slot] or '-' for r in rows)} |")
    return "\n".join(lines)


def estimators(text: str) -> list[str]:
    """The paragraph that defines the estimators of the KL in a text, if it names any."""
    named = [f"{name} = {value}" for name, value in ESTIMATORS.items() if name in text]
    return [f"{ESTIMATES}: {', '.join(named)} ([where the KL is applied](../explanation/kl.md))."] if named else []


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
        "whole completions, and s the logistic function:"
    )
    parts = [
        f"# {words.title}",
        told,
        textwrap.indent(words.equation, "    "),
        "\n".join(points),
        "## Settings\n\n" + "\n".join(settings),
        f"## Source\n\n```python\n{bare}\n```",
        f"Run it with `tutelage dpo` {called}; change a setting with `--set`, as in `--set {known[0]}=0.05`.",
    ]
    return NOTE + "\n\n".join(parts) + "\n"


def index() -> str:
    homes = {name: file for file, names in FILES.items() for name in names}
    columns = list(table()[0])
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for line in table():
        texts = [f"[{line['name']}]({homes[line['name']]}.md)"] + [line[c] or "-" for c in columns[1:]]
        lines.append(f"| {' | '.join(texts)} |")
    parts = [
        "# Algorithms",
        INTRODUCTION,
        "\n".join(lines),
        *estimators("\n".join(lines)),
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
    parts += ["# A piece with state of your own", OWN_STATE]
    return NOTE + "\n\n".join(parts) + "\n"


def main() -> int:
    stale = {file: text for file, text in pages().items() if not same(HERE / file, text)}
    if "--check" in sys.argv:
        print("\n".join(f"{file} does not say what the code says; run docs/algorithms/generate.py" for file in stale))
        return 1 if stale else 0
    for file, text in stale.items():
        (HERE / file).write_text(text)
    return 0


def same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
