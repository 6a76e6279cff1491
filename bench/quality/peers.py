"""Running the peer's side of an experiment: a process of its environment, from values to values."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from bench.quality.experiment import Part, Place

ROOT = Path(__file__).parents[2]


def peer(place: Place, job: str, out: Path, **spec: Any) -> dict[str, Any]:
    """What a job of `peer_side` finds. A process that was finished is not started again: its answer is in `out`.

    Raises RuntimeError where the process fails, with the end of what it said.
    """
    out.mkdir(parents=True, exist_ok=True)
    answer = out / "found.json"
    if not answer.is_file():
        (out / "spec.json").write_text(json.dumps({"out": str(out)} | spec))
        command = [place.peers, "-m", "bench.quality.peer_side", job, str(out / "spec.json"), str(answer)]
        silent = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=os.environ | silent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the peer's side of {job} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def peer_grpo(place: Place, part: Part, out: Path, prompts: Path, **more: Any) -> dict[str, Any]:
    """What the peer's GRPO finds on the sentiment task, with the settings of a part. Its model is in `out`/model."""
    names = ("prompts_per_step", "samples", "response", "steps", "lr", "eps", "beta")
    return peer(
        place,
        "grpo",
        out,
        model=place.model,
        seed=part.seed,
        train=str(prompts),
        reward="sentiment",
        save=str(out / "model"),
        **{name: part.settings[name] for name in names},
        **more,
    )
