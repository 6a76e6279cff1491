"""The rater models on simulated votes whose truth is known: accuracy, log-loss, calibration and time, beside crowd-kit.

    python -m bench.raters [--grid ordered] [--peer PYTHON] [--repeat 20] [--only TEXT] [--minutes 60] [--votes 15000]

The nominal grid has 180 designs: 5 to 5,000 raters, 2 to 100 votes each, 2 to 5 classes, and raters who are alike,
differ in accuracy, guess in three of ten cases, are biased towards a choice, confuse neighbouring classes, or face
items that are hard for all. The ordered grid has 210: raters with private thresholds on the latent difference of the
items, 2 to 5 classes and 2 to 100 votes an item. A design is repeated until it has some 4,000 items and five studies,
or `--repeat` studies; one of half a million votes has one. All designs have their first study before any has its
second.

Without `--peer` our models are measured, with it crowd-kit's and our default on the same votes; PYTHON is the
interpreter of an environment of crowd-kit's:

    python3 -m venv .bench/raters && .bench/raters/bin/pip install -r bench/peers-raters.txt

It is told the votes through files, so neither side imports the other. Each study is a line of here.jsonl or peer.jsonl
in .bench/rater-studies, and a study that stands there is not measured again; bench/results/raters.json and raters.md,
or raters_ordered.json and .md, have the summary, an .svg file the reliability diagram. Accuracies share draws evenly.
`--minutes` begins no study after that time; `--votes` leaves out larger designs.
"""

import argparse
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bench.rater_designs import SimulatedStudy, nominal_grid, ordered_grid
from bench.raters_table import RESULTS, write_tables
from tutelage.stats.calibration import label_hits
from tutelage.stats.model_choice import choose_model, fit_model
from tutelage.stats.reliability import dawid_skene, majority, one_coin
from tutelage.stats.vote_codes import Floats, Ints, Votes

STUDIES = Path(__file__).parents[1] / ".bench" / "rater-studies"
ENOUGH_ITEMS = 4_000
ENOUGH_STUDIES = 5
MANY = 100_000  # votes; one study of so many is enough
BINS = 10

Found: TypeAlias = dict[str, tuple[Floats, float, str]]
"""By method: the posterior [I, K], its seconds of a processor, and which model the default chose."""


def log_loss(posterior: Floats, truth: Ints) -> Floats:
    """[I], in nats; no probability counts as less than 1e-6."""
    return np.asarray(-np.log(np.clip(posterior[np.arange(len(truth)), truth], 1e-6, 1)))


def default(votes: Votes, *, ordered: bool = False) -> tuple[Floats, float, str]:
    """The posterior by `--model auto`, its seconds of a processor, and which model it chose."""
    began = time.process_time()
    choice = choose_model(votes, ordered=ordered)
    seconds = time.process_time() - began
    return choice.fits[choice.name].posterior, seconds, choice.name + (" with links" if choice.links else "")


def ours(votes: Votes) -> Found:
    """The posterior by each of our other ways, and its seconds of a processor."""
    found: Found = {}
    for name, way in (
        ("majority", lambda: majority(votes)),
        ("one-coin", lambda: one_coin(votes).posterior),
        ("Dawid-Skene", lambda: dawid_skene(votes).posterior),
        ("hierarchical", lambda: fit_model("hierarchical", votes).posterior),
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


def measure(design: SimulatedStudy, seed: int, peer: Peer | None) -> dict[str, Any]:
    """What is kept of one study: of each method the accuracy, the log-loss, the seconds, for each bin of the label's
    probability `[labels, sum of probabilities, right ones]`, and the default's accuracy less its own with the standard
    error over items."""
    votes, truth = design.simulate(seed)
    found = {"default": default(votes, ordered=design.ordered)} | (peer(votes) if peer else ours(votes))
    best = label_hits(found["default"][0], truth)
    methods = {}
    for name, (posterior, seconds, _) in found.items():
        hit = label_hits(posterior, truth)
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


def studies_of(design: SimulatedStudy, most: int) -> int:
    """How many studies of a design are simulated."""
    votes = design.votes
    enough = max(ENOUGH_STUDIES, -(-ENOUGH_ITEMS * design.overlap // votes))
    return min(most, enough) if votes <= MANY else 1


def main() -> None:
    """Measure what has not been measured, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", choices=("nominal", "ordered"), default="nominal")
    parser.add_argument("--peer", default="", help="interpreter of an environment with crowd-kit")
    parser.add_argument("--repeat", type=int, default=20, help="studies of each design at most")
    parser.add_argument("--only", default="", help="designs whose name contains this text")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no study after this time")
    parser.add_argument("--votes", type=int, default=1_000_000, help="votes of a study at most")
    asked = parser.parse_args()
    ends = time.monotonic() + 60 * asked.minutes
    folder = STUDIES / asked.grid
    path = folder / ("peer.jsonl" if asked.peer else "here.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {(study["design"], study["seed"]) for study in read_studies(path)}
    peer = Peer(asked.peer) if asked.peer else None
    grid: Sequence[SimulatedStudy] = nominal_grid() if asked.grid == "nominal" else ordered_grid()
    fitting = [each for each in grid if asked.only in each.name and each.votes <= asked.votes]
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
    write_tables(read_studies(folder / "here.jsonl"), read_studies(folder / "peer.jsonl"), RESULTS[asked.grid])


def read_studies(path: Path) -> list[dict[str, Any]]:
    """The studies of a file; none without it. Raises ValueError for a line that was cut off: take it out."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
