"""`python -m bench.quality [EXPERIMENT ...] --data FILE`: run experiments, then write docs/results.md.

Every finished part is a line in bench/quality/results, with a fingerprint of its settings, of the model's name and of
the data: what is there is not computed again, and what was cut off goes on from its run in .bench/quality. --page only
writes the page from the lines.
"""

import argparse
import os
import resource
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from bench.machine import name_of
from bench.quality.experiment import Experiment, Figures, Line, Part, Place, append_line, digest, read_lines
from bench.quality.page import write_page
from bench.quality.table import EXPERIMENTS

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
KEPT = ROOT / ".bench" / "quality"
PEERS = ROOT / ".bench" / "peers" / "bin" / "python"


def main() -> None:
    """Run what was asked for and is not finished, seed by seed, and write the page of all results."""
    asked = _arguments()
    if not asked.page:
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            for name in asked.experiments or list(EXPERIMENTS):
                experiment = EXPERIMENTS[name]
                for part in experiment.parts(seed):
                    if asked.part and part.name not in asked.part:
                        continue
                    if experiment.world:
                        _finish(experiment, part, Place("", "", KEPT / name), "", "")
                    else:
                        place = Place(_folder_of(asked.model), asked.data, KEPT / name, str(PEERS))
                        _finish(experiment, part, place, asked.model, digest(asked.data))
    write_page(RESULTS, ROOT / "docs", EXPERIMENTS)


def _finish(experiment: Experiment, part: Part, place: Place, model: str, data: str) -> None:
    """Run a part, unless there is a line of it, and add its line."""
    file = RESULTS / f"{experiment.name}.jsonl"
    fingerprint = part.fingerprint(model, data)
    if any(line.fingerprint == fingerprint for line in read_lines(file)):
        return
    place.runs.mkdir(parents=True, exist_ok=True)
    began, spent = time.time(), _processor_seconds()
    found: Figures = experiment.run(part, place)
    worked = _processor_seconds() - spent
    line = Line(
        part=part.name,
        seed=part.seed,
        settings=part.settings,
        fingerprint=fingerprint,
        model=model,
        data=data,
        figures=found,
        seconds=round(time.time() - began),
        processor_seconds=round(worked, 1),
        date=datetime.now(UTC).date().isoformat(),
        machine=name_of("cpu"),
        threads=torch.get_num_threads(),
    )
    append_line(file, line)
    for folder in place.runs.glob(f"{part.folder}*"):  # weights and moments: gigabytes
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    print(f"{experiment.name} {part.name}, seed {part.seed}: {worked:.0f} CPU seconds", flush=True)


def _folder_of(model: str) -> str:
    """A model as a folder that both sides read: it is written once."""
    if os.path.isdir(model):
        return model
    folder = KEPT / "models" / model.replace("/", "+")
    if not (folder / "config.json").is_file():
        import tutelage as tt

        unfinished = folder.with_name(f".{folder.name}")
        tt.load_policy(model).save(unfinished)
        unfinished.rename(folder)
    return str(folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--model", default="smollm2", help="a chat model, as for --model of the commands")
    parser.add_argument("--data", default="", help="a file of preferences, such as hh-rlhf's")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each setting")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--part", action="append", help="only the parts of this name")
    parser.add_argument("--page", action="store_true", help="only write the page, from the existing results")
    asked = parser.parse_args()
    if unknown := set(asked.experiments) - EXPERIMENTS.keys():
        parser.error(f"no experiment is called {', '.join(sorted(unknown))}")
    chosen = [EXPERIMENTS[name] for name in asked.experiments or EXPERIMENTS]
    if not asked.page and not os.path.isfile(asked.data) and not all(experiment.world for experiment in chosen):
        parser.error("--data needs a file of preferences: a comparison needs real answers")
    return asked


def _processor_seconds() -> float:
    """Seconds that processors have worked for this process and those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
