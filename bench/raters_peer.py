"""The peer's side of `bench.raters`, in an environment of crowd-kit's.

Each line of the input is a job: the `folder` with votes.npz, the numbers of `items` and `classes`. It writes the
posterior of each model to the folder, and answers with a line of their seconds of a processor. Models have their own
defaults; on many votes only the quick one runs, since the others would take minutes.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from crowdkit.aggregation import GLAD, MACE, DawidSkene

MANY = 60_000


def main(folder: Path, items: int, classes: int) -> dict[str, float]:
    """Fit each model."""
    votes = np.load(folder / "votes.npz")
    rows = pd.DataFrame({"task": votes["item"], "worker": votes["rater"], "label": votes["choice"]})
    seconds = {}
    for name, model in (("crowd-kit DS", DawidSkene()), ("MACE", MACE()), ("GLAD", GLAD(silent=True))):
        if len(rows) > MANY and name != "crowd-kit DS":
            continue
        began = time.process_time()
        found = model.fit_predict_proba(rows)
        seconds[name] = time.process_time() - began
        posterior = np.zeros((items, classes))
        posterior[np.ix_(found.index.to_numpy(), found.columns.to_numpy())] = found.fillna(0).to_numpy()
        posterior[posterior.sum(axis=1) == 0] = 1 / classes
        np.save(folder / f"{name}.npy", posterior / posterior.sum(axis=1, keepdims=True))
    return seconds


if __name__ == "__main__":
    for line in sys.stdin:
        job = json.loads(line)
        told = main(Path(job["folder"]), job["items"], job["classes"])
        print(json.dumps(told), flush=True)
