"""The rater models on simulated votes whose truth is known: accuracy, log-loss, calibration and time, beside crowd-kit.

    python -m bench.raters [--peer PYTHON] [--repeat 20] [--only TEXT] [--minutes 60] [--votes 15000]

The grid has 180 designs: 5 to 5,000 raters, 2 to 100 votes each, 2 to 5 classes, and raters who are alike, differ in
accuracy, guess in three of ten cases, are biased towards a choice, confuse neighbouring classes, or face items that are
hard for all. A design is repeated until it has some 4,000 items and five studies, or `--repeat` studies; one of half a
million votes has one. All designs have their first study before any has its second.

Without `--peer` our models are measured, with it crowd-kit's and our default on the same votes; PYTHON is the
interpreter of an environment of crowd-kit's:

    python3 -m venv .bench/raters && .bench/raters/bin/pip install -r bench/peers-raters.txt

It is told the votes through files, so neither side imports the other. Each study is a line of here.jsonl or peer.jsonl
in .bench/rater-studies, and a study that stands there is not measured again; bench/results/raters.json and raters.md
have the summary. Accuracies share draws evenly. `--minutes` begins no study after that time; `--votes` leaves out
larger designs.
"""

import argparse
import json
import math
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np

from bench.raters_table import write_tables
from tutelage.stats.model_choice import choose_model, fit_model
from tutelage.stats.reliability import dawid_skene, majority, one_coin
from tutelage.stats.vote_codes import Floats, Ints, Votes

STUDIES = Path(__file__).parents[1] / ".bench" / "rater-studies"
KINDS = ("alike", "differing", "guessers", "biased", "confused", "hard")
SIZES = ((5, 20), (5, 100), (20, 10), (20, 100), (100, 6), (100, 50), (1000, 2), (1000, 20), (5000, 6), (5000, 100))
ENOUGH_ITEMS = 4_000
ENOUGH_STUDIES = 5
MANY = 100_000  # votes; one study of so many is enough
OVERLAP = {2: 3, 3: 4, 5: 5}
BINS = 10

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


def default(votes: Votes) -> tuple[Floats, float, str]:
    """The posterior by `--model auto`, its seconds of a processor, and which model it chose."""
    began = time.process_time()
    choice = choose_model(votes)
    posterior = fit_model(choice.name, votes, links=choice.links).posterior
    name = choice.name + (" with links" if choice.links else "")
    return posterior, time.process_time() - began, name


def ours(votes: Votes) -> Found:
    """The posterior by each of our other ways, and its seconds of a processor."""
    found: Found = {}
    for name, way in (
        ("majority", lambda: majority(votes)),
        ("one-coin", lambda: one_coin(votes).posterior),
        ("Dawid-Skene", lambda: dawid_skene(votes).posterior),
    ):
        began = time.process_time()
        found[name] = (way(), time.process_time() - began, "")
    return found


class Peer:
    """A process of crowd-kit's environment, which stays for all studies since it takes long to import."""

    def __init__(self, python: str) -> None:
        script = Path(__file__).parent / "raters_peer.py"
        self.process = subprocess.Popen([python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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


def measure(design: Design, seed: int, peer: Peer | None) -> dict[str, Any]:
    """What is kept of one study: of each method the accuracy, the log-loss, the seconds, for each bin of the label's
    probability `[labels, sum of probabilities, right ones]`, and the default's accuracy less its own with the standard
    error over items."""
    votes, truth = simulate(design, seed)
    found = {"default": default(votes)} | (peer(votes) if peer else ours(votes))
    best = right(found["default"][0], truth)
    methods = {}
    for name, (posterior, seconds, _) in found.items():
        hit = right(posterior, truth)
        ahead = best - hit
        methods[name] = {
            "accuracy": float(hit.mean()),
            "log_loss": float(log_loss(posterior, truth).mean()),
            "seconds": round(seconds, 4),
            "bins": label_bins(posterior, hit),
            "ahead": [float(ahead.mean()), float(ahead.std() / math.sqrt(len(ahead)))],
        }
    return {
        "design": design.name,
        "seed": seed,
        "items": len(truth),
        "votes": len(votes),
        "chosen": found["default"][2],
        "methods": methods,
    }


def label_bins(posterior: Floats, hit: Floats) -> list[list[float]]:
    """[bins, 3]: labels whose probability lies in the bin, the sum of these probabilities, and how many are right."""
    sure = posterior.max(axis=1)
    code = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    columns = [np.bincount(code, weights=w, minlength=BINS) for w in (np.ones(len(sure)), sure, hit)]
    return [[round(float(x), 3) for x in row] for row in np.column_stack(columns)]


def studies_of(design: Design, most: int) -> int:
    """How many studies of a design are simulated."""
    votes = design.raters * design.each
    enough = max(ENOUGH_STUDIES, -(-ENOUGH_ITEMS * design.overlap // votes))
    return min(most, enough) if votes <= MANY else 1


def main() -> None:
    """Measure what has not been measured, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default="", help="interpreter of an environment with crowd-kit")
    parser.add_argument("--repeat", type=int, default=20, help="studies of each design at most")
    parser.add_argument("--only", default="", help="designs whose name contains this text")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no study after this time")
    parser.add_argument("--votes", type=int, default=1_000_000, help="votes of a study at most")
    asked = parser.parse_args()
    ends = time.monotonic() + 60 * asked.minutes
    path = STUDIES / ("peer.jsonl" if asked.peer else "here.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {(study["design"], study["seed"]) for study in read_studies(path)}
    peer = Peer(asked.peer) if asked.peer else None
    fitting = [each for each in grid() if asked.only in each.name and each.raters * each.each <= asked.votes]
    open_ones = (
        (design, seed)
        for seed in range(asked.repeat)
        for design in fitting
        if seed < studies_of(design, asked.repeat) and (design.name, seed) not in known
    )
    for design, seed in open_ones:
        if time.monotonic() > ends:
            break
        study = measure(design, seed, peer)
        with path.open("a") as file:
            file.write(json.dumps(study) + "\n")
        print(design.name, seed, json.dumps(study["methods"]["default"]["accuracy"]), flush=True)
    write_tables(read_studies(STUDIES / "here.jsonl"), read_studies(STUDIES / "peer.jsonl"))


def read_studies(path: Path) -> list[dict[str, Any]]:
    """The studies of a file; none without it. Raises ValueError for a line that was cut off: take it out."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
