"""Provenance of a model, from the folders on this machine."""

import hashlib
import json
from pathlib import Path

from tutelage.commands.study_data import RECORD
from tutelage.report.json_files import read_object, section

WEIGHTS = ("*.safetensors", "*.bin")
ENDS = 1 << 20


def fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits that identify the weights in a folder: a hash of the name, the size, and the first
    and last mebibyte of every weights file."""
    digest = hashlib.sha256()
    for path in sorted(file_path for pattern in WEIGHTS for file_path in folder.glob(pattern)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(ENDS))
            file.seek(max(0, size - ENDS))
            digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]


def lineage_of(model: str) -> dict[str, object]:
    """Return the policy with its fingerprint; for a model trained by `tutelage`, its initial model and reward; for a
    reward model trained on a study, that study and its last judgement."""
    lineage: dict[str, object] = {"policy": model}
    folder = Path(model)
    if not folder.is_dir():
        return lineage
    lineage["fingerprint"] = fingerprint(folder)
    settings = section(read_object(_run_of(folder) / "config.json")[0], "settings")
    start = settings.get("model")
    if isinstance(start, dict) and start.get("path"):
        lineage["trained_from"] = start["path"]
    rewards = settings.get("reward")
    if isinstance(rewards, list) and rewards:
        lineage["reward"] = ", ".join(map(str, rewards))
        lineage |= _studied([str(each).partition("=")[0] for each in rewards])
    return lineage


def _run_of(folder: Path) -> Path:
    """Return the run folder whose final model is in `folder`."""
    return folder.parent if folder.name == "model" else folder


def _studied(rewards: list[str]) -> dict[str, object]:
    for name in rewards:
        file = _run_of(Path(name)) / RECORD
        if file.is_file():
            record = json.loads(file.read_text(encoding="utf-8"))
            return {"study": record["study"], "judgements_until": record["snapshot"]["last_judgement"]}
    return {}
