"""The rater models on simulated votes whose truth is known: accuracy, log-loss and time, beside crowd-kit.

    python -m bench.raters [--peer PYTHON] [--repeat 20] [--only TEXT] [--minutes 60] [--votes 15000]

Writes bench/results/raters.json and a table. The grid has 5 to 5,000 raters, 2 to 100 votes each, 2 to 5 classes, and
raters who are alike, differ in accuracy, guess in three of ten cases, are biased towards a choice, confuse neighbouring
classes, or face items that are hard for all. Small designs are repeated until they have some 4,000 items. `--peer` is
the interpreter of an environment of crowd-kit's, which the first three studies of each design are given to:

    python3 -m venv .bench/raters && .bench/raters/bin/pip install -r bench/peers-raters.txt

It is told the votes through files, so neither side imports the other. Accuracies share draws evenly. With `--minutes`
no design begins after that time, and those that were measured before come last; `--votes` leaves out larger designs.
"""

import argparse
import json
import math
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np

from tutelage.stats.model_choice import choose_model, fit_model
from tutelage.stats.reliability import dawid_skene, majority, one_coin
from tutelage.stats.votes import Floats, Ints, Votes

RESULTS = Path(__file__).parent / "results" / "raters.json"
KINDS = ("alike", "differing", "guessers", "biased", "confused", "hard")
SIZES = (
    (5, 20),
    (5, 100),
    (20, 10),
    (20, 100),
    (100, 6),
    (100, 50),
    (1000, 2),
    (1000, 20),
    (5000, 6),
    (5000, 100),
)
ENOUGH_ITEMS = 4_000
OVERLAP = {2: 3, 3: 4, 5: 5}
PEER_STUDIES = 3
PEERS = ("MACE", "GLAD", "crowd-kit DS")

Found: TypeAlias = dict[str, tuple[Floats, float, str]]
"""By method: the posterior [I, K], its seconds of a processor, and which model the default chose."""


@dataclass(frozen=True)
class Design:
    """A simulated study: raters of a kind, about `each` votes by each rater, `overlap` votes on each item."""

    kind: str
    raters: int
    each: int
    classes: int
    overlap: int

    @property
    def name(self) -> str:
        """As it stands in the table."""
        return f"{self.kind} {self.raters} x {self.each}, {self.classes} classes"


def grid() -> list[Design]:
    """All designs, in a random order that is always the same, so that what was measured first is a sample of all."""
    designs = [
        Design(kind, raters, each, classes, overlap)
        for kind in KINDS
        for raters, each in SIZES
        for classes, overlap in OVERLAP.items()
    ]
    Random(0).shuffle(designs)
    return designs


def simulate(design: Design, seed: int) -> tuple[Votes, Ints]:
    """Votes and the truth [I]."""
    generator = np.random.default_rng(seed)
    raters, classes = design.raters, design.classes
    number = np.maximum(1, np.round(design.each * generator.lognormal(-0.125, 0.5, size=raters)).astype(int))
    if raters <= 20:
        number = np.full(raters, design.each)
    items = max(2, int(number.sum()) // design.overlap)
    item = np.concatenate([generator.permutation(items)[:n] for n in number])
    rater = np.repeat(np.arange(raters), np.minimum(number, items))
    truth = generator.integers(classes, size=items)
    chance = _confusion(design, generator)[rater, truth[item]]
    if design.kind == "hard":
        chance = _with_hard_items(chance, truth, item, generator)
    choice = (generator.random((len(item), 1)) > np.cumsum(chance, axis=1)).sum(axis=1).clip(max=classes - 1)
    names = [tuple(map(str, range(size))) for size in (items, raters, classes)]
    return Votes(item, rater, choice, names[0], names[1], names[2]), truth


def _confusion(design: Design, generator: np.random.Generator) -> Floats:
    """[R, K, K]."""
    raters, classes = design.raters, design.classes

    def coins(accuracy: Floats) -> Floats:
        a = accuracy[:, None, None]
        return np.where(np.eye(classes, dtype=bool), a, (1 - a) / (classes - 1))

    if design.kind == "alike":
        return coins(np.full(raters, 0.75))
    if design.kind == "guessers":
        return coins(np.where(generator.random(raters) < 0.3, 1 / classes, 0.85))
    if design.kind == "biased":
        share = generator.beta(1, 3, size=(raters, 1, 1))
        favourite = np.eye(classes)[generator.integers(classes, size=raters)][:, None, :]
        return (1 - share) * coins(generator.beta(12, 4, size=raters)) + share * favourite
    if design.kind == "confused":
        distance = np.abs(np.arange(classes)[:, None] - np.arange(classes))
        near = np.exp(-distance / generator.gamma(4, 0.15, size=(raters, 1, 1))) + 0.01
        return np.asarray(near / near.sum(axis=2, keepdims=True))
    return coins(generator.beta(6, 2.5, size=raters))


def _with_hard_items(chance: Floats, truth: Ints, item: Ints, generator: np.random.Generator) -> Floats:
    """Each item lures all raters to one wrong class, by a share that differs from item to item."""
    classes = chance.shape[1]
    wrong = (truth + generator.integers(1, classes, size=len(truth))) % classes
    share = 0.6 * generator.beta(1.2, 3, size=len(truth))[item][:, None]
    return np.asarray((1 - share) * chance + share * np.eye(classes)[wrong[item]])


def right(posterior: Floats, truth: Ints) -> Floats:
    """[I]: 1 where the most probable class is the truth, 1/n where it is one of n that are equally probable."""
    leading = posterior >= posterior.max(axis=1, keepdims=True) - 1e-12
    return np.asarray((leading / leading.sum(axis=1, keepdims=True))[np.arange(len(truth)), truth])


def log_loss(posterior: Floats, truth: Ints) -> Floats:
    """[I], in nats; no probability counts as less than 1e-6."""
    return np.asarray(-np.log(np.clip(posterior[np.arange(len(truth)), truth], 1e-6, 1)))


def ours(votes: Votes) -> Found:
    """The posterior by each of our ways, its seconds of a processor, and which model the default chose."""
    found: Found = {}
    for name, way in (
        ("majority", lambda: majority(votes)),
        ("one-coin", lambda: one_coin(votes).posterior),
        ("Dawid-Skene", lambda: dawid_skene(votes).posterior),
    ):
        began = time.process_time()
        found[name] = (way(), time.process_time() - began, "")
    began = time.process_time()
    choice = choose_model(votes)
    posterior = fit_model(choice.name, votes, links=choice.links).posterior
    name = choice.name + (" with links" if choice.links else "")
    found["default"] = (posterior, time.process_time() - began, name)
    return found


class Peer:
    """A process of crowd-kit's environment, which stays for all studies since it takes long to import."""

    def __init__(self, python: str) -> None:
        script = Path(__file__).parent / "raters_peer.py"
        self.process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, votes: Votes) -> Found:
        """The posterior by crowd-kit's models."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            np.savez(path / "votes.npz", item=votes.item, rater=votes.rater, choice=votes.choice)
            job = {"folder": folder, "items": len(votes.items), "classes": len(votes.choices)}
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            told = json.loads(self.process.stdout.readline())
            return {name: (np.load(path / f"{name}.npy"), seconds, "") for name, seconds in told.items()}


def measure(design: Design, repeat: int, peer: Peer | None) -> dict[str, Any]:
    """Means over all items of all repetitions, with the standard errors of accuracy differences to the default."""
    scores: dict[str, list[tuple[Floats, Floats, float]]] = {}
    chosen: dict[str, int] = {}
    items = 0
    for seed in range(repeat):
        votes, truth = simulate(design, seed)
        found = ours(votes) | (peer(votes) if peer and seed < PEER_STUDIES else {})
        for name, (posterior, seconds, model) in found.items():
            judged = (right(posterior, truth), log_loss(posterior, truth), seconds)
            scores.setdefault(name, []).append(judged)
            if model:
                chosen[model] = chosen.get(model, 0) + 1
        items += len(truth)
        if items >= ENOUGH_ITEMS:
            break
    methods = {name: _summary(each, scores["default"]) for name, each in scores.items()}
    return {
        **asdict(design),
        "items": items,
        "studies": len(scores["default"]),
        "chosen": chosen,
        "methods": methods,
    }


def _summary(
    each: list[tuple[Floats, Floats, float]], default: list[tuple[Floats, Floats, float]]
) -> dict[str, float]:
    """`behind` is the default's accuracy less this one's; its standard error is over studies, or over items of one."""
    difference = [one[0] - other[0] for one, other in zip(default, each, strict=False)]
    pooled = np.concatenate(difference)
    means = np.array([d.mean() for d in difference])
    over_items = pooled.std() / np.sqrt(len(pooled))
    over_studies = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 4 else 0.0
    return {
        "accuracy": float(np.concatenate([e[0] for e in each]).mean()),
        "log_loss": float(np.concatenate([e[1] for e in each]).mean()),
        "seconds": float(np.mean([e[2] for e in each])),
        "behind": float(pooled.mean()),
        "error": float(max(over_items, over_studies)),
    }


def main() -> None:
    """Measure, keep what was measured before, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", default="", help="interpreter of an environment with crowd-kit")
    parser.add_argument("--repeat", type=int, default=20, help="studies of each design at most")
    parser.add_argument("--only", default="", help="designs whose name contains this text")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no design after this time")
    parser.add_argument("--votes", type=int, default=1_000_000, help="votes of a study at most")
    asked = parser.parse_args()
    ends = time.monotonic() + 60 * asked.minutes
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    peer = Peer(asked.peer) if asked.peer else None
    fitting = [each for each in grid() if asked.only in each.name and each.raters * each.each <= asked.votes]
    for design in sorted(fitting, key=lambda each: _is_measured(kept.get(each.name), asked.peer)):
        if time.monotonic() > ends:
            break
        kept[design.name] = measure(design, asked.repeat, peer)
        print(design.name, json.dumps(kept[design.name]["methods"]["default"]), flush=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(table(kept))


def _is_measured(found: dict[str, Any] | None, peer: str) -> bool:
    return found is not None and (not peer or PEERS[-1] in found["methods"])


def table(kept: dict[str, Any]) -> str:
    """Accuracy / log-loss of each way on each design, and where the default lies behind by more than its interval."""
    names = ["default", "majority", "one-coin", "Dawid-Skene", *PEERS]
    lines = ["| design | chosen | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    worse = []
    for design, found in sorted(kept.items()):
        cells = [
            f"{found['methods'][name]['accuracy']:.3f} / {found['methods'][name]['log_loss']:.2f}"
            if name in found["methods"]
            else ""
            for name in names
        ]
        most = max(found["chosen"], key=lambda name: found["chosen"][name])
        lines.append(f"| {design} | {most} | " + " | ".join(cells) + " |")
        for name in ("majority", "one-coin"):
            against = found["methods"][name]
            if against["behind"] < -1.96 * against["error"]:
                worse.append(
                    f"{design}: {against['behind']:+.4f} ± {1.96 * against['error']:.4f} against {name}"
                )
    head = f"{len(kept)} designs; the default lies behind by more than its 95 % interval in {len(worse)} comparisons"
    return "\n".join(["# Rater models: accuracy / log-loss", "", head + ".", "", *worse, "", *lines, ""])


if __name__ == "__main__":
    main()
