"""Where a model comes from, as far as the folders on this machine tell."""

import hashlib
import json
from pathlib import Path

from tutelage.commands.study_data import RECORD
from tutelage.report.json_files import read_object, section

WEIGHTS = ("*.safetensors", "*.bin")
ENDS = 1 << 20


def fingerprint(folder: Path) -> str:
    """16 hexadecimal digits that tell the weights in a folder from others: a hash of the name, the size and the first
    and last mebibyte of every file of weights."""
    digest = hashlib.sha256()
    for path in sorted(found for pattern in WEIGHTS for found in folder.glob(pattern)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(ENDS))
            file.seek(max(0, size - ENDS))
            digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]


def lineage_of(model: str) -> dict[str, object]:
    """The policy with its fingerprint; where a run of `tutelage` made it, what it was trained from and by which reward;
    where that reward model learnt from a study, from which and how much of it."""
    told: dict[str, object] = {"policy": model}
    folder = Path(model)
    if not folder.is_dir():
        return told
    told["fingerprint"] = fingerprint(folder)
    settings = section(read_object(_run_of(folder) / "config.json")[0], "settings")
    start = settings.get("model")
    if isinstance(start, dict) and start.get("path"):
        told["trained_from"] = start["path"]
    rewards = settings.get("reward")
    if isinstance(rewards, list) and rewards:
        told["reward"] = ", ".join(map(str, rewards))
        told |= _studied([str(each).partition("=")[0] for each in rewards])
    return told


def _run_of(folder: Path) -> Path:
    """The run whose final model the folder is."""
    return folder.parent if folder.name == "model" else folder


def _studied(rewards: list[str]) -> dict[str, object]:
    for name in rewards:
        file = _run_of(Path(name)) / RECORD
        if file.is_file():
            record = json.loads(file.read_text(encoding="utf-8"))
            return {"study": record["study"], "judgements_until": record["snapshot"]["last_judgement"]}
    return {}
