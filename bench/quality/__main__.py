"""`python -m bench.quality [EXPERIMENT ...] --data FILE`: run experiments, then write docs/results.md.

The results of all experiments are kept in bench/quality/results; --page only writes the page from them. Runs are kept
in .bench/quality, and one that was interrupted goes on from there.
"""

import argparse
import json
import os
import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from bench.machine import name_of
from bench.quality import chosen
from bench.quality.experiment import Experiment, Place
from bench.quality.page import write_page

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (chosen.EXPERIMENT,)}


def main() -> None:
    """Run the experiments that were asked for, and write the page of all results."""
    asked = _arguments()
    for name in [] if asked.page else asked.experiments or list(EXPERIMENTS):
        experiment = EXPERIMENTS[name]
        print(f"{name}: {experiment.about}", flush=True)
        place = Place(asked.model, asked.data, ROOT / ".bench" / "quality" / name, asked.seeds)
        began, spent = time.time(), _processor_seconds()
        result = dict(experiment.run(place)) | {
            "command": "python -m bench.quality " + " ".join(sys.argv[1:]),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": name_of("cpu"),
            "threads": torch.get_num_threads(),
            "seconds": round(time.time() - began),
            "processor_seconds": round(_processor_seconds() - spent),
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    write_page(RESULTS, ROOT / "docs", EXPERIMENTS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--model", default="smollm2", help="a chat model, as --model of the verbs takes it")
    parser.add_argument("--data", default="", help="a file of preferences, such as hh-rlhf's")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each setting")
    parser.add_argument(
        "--page", action="store_true", help="only write the page of the results that there are"
    )
    asked = parser.parse_args()
    if unknown := set(asked.experiments) - EXPERIMENTS.keys():
        parser.error(f"no experiment is called {', '.join(sorted(unknown))}")
    if not asked.page and not os.path.isfile(asked.data):
        parser.error("--data needs a file of preferences: a comparison needs real answers")
    return asked


def _processor_seconds() -> float:
    """Seconds that processors have worked for this process: what other programs do does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
