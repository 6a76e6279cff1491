"""The lineage of a run: its ancestor runs and their base model, read from their folders.

The lineage follows settings to the runs that wrote the initial model, reward, reference, teacher and data, recursively,
down to models that no run wrote.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tutelage.report.json_files import Object, read_object, settings_in, string

CARD = "README.md"
MODEL = "model"
PROMOTIONS = "promotions.json"
"""Promotions of a run's model and their withdrawals."""
COMMANDS = {
    "teacher": "distill",
    "recipe": "improve",
    "centre": "reward",
    "unpaired": "dpo",
    "overall": "rejection",
    "rouge": "sft",
    "shape": "pretrain",
    "best_of": "sample",
}
"""Commands identified by a setting that no later one in the table has, since the command line of a run may be a
script's."""
SOURCES = {
    "model": "model",
    "reward": "reward",
    "reference": "reference",
    "critic_from": "critic from",
    "teacher": "teacher",
    "data": "data",
    "prompts": "prompts",
}
"""Settings that name the sources of a run, with their names in a card."""
LICENCE = ("license", "license_name", "license_link")


@dataclass(frozen=True)
class Base:
    """A base model, not written by a run. `hub` is its name on the Hugging Face Hub, "" for a folder; `licence` is from
    its card."""

    name: str
    hub: str = ""
    revision: str = ""
    licence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ancestor:
    """A run in a lineage. `sources` maps settings to what they name: an ancestor run, a base model, or the name of a
    file or data set."""

    folder: Path
    command: str
    config: Object
    summary: Object
    study: Object
    sources: Mapping[str, tuple["Ancestor | Base | str", ...]]

    @property
    def base(self) -> Base | None:
        """The base model of the weights, through all stages; None if they were initialised randomly."""
        (source, *_) = self.sources.get("model") or (None,)
        return source.base if isinstance(source, Ancestor) else source if isinstance(source, Base) else None

    def lineage(self) -> list["Ancestor"]:
        """All ancestors and this stage last, each once."""
        stages: dict[Path, Ancestor] = {}
        for source in (each for group in self.sources.values() for each in group):
            for stage in source.lineage() if isinstance(source, Ancestor) else ():
                stages.setdefault(stage.folder, stage)
        return [*stages.values(), self]


def read_stage(folder: Path, above: frozenset[Path] = frozenset()) -> Ancestor:
    """The run in a folder with its ancestors. `above` are its descendants, for detection of cycles."""
    config, summary, study = (read_object(folder / name)[0] for name in ("config.json", "summary.json", "study.json"))
    settings = settings_in(config)
    command = next((name for key, name in COMMANDS.items() if key in settings), "run")
    places = (started_in(folder, settings), Path())
    sources = {}
    for key in SOURCES:
        value = settings.get(key)
        value = value.get("path") if isinstance(value, dict) else value
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        if resolved := tuple(source_named(text, key, places, above | {folder}) for text in texts if text):
            sources[key] = resolved
    return Ancestor(folder, command, config, summary, study, sources)


def started_in(folder: Path, settings: Object) -> Path:
    """The working directory in which a run was started, inferred from --out; paths in its settings are relative to
    it."""
    out = Path(string(settings, "out"))
    parts = () if out.is_absolute() else out.parts
    fits = bool(parts) and folder.parts[-len(parts) :] == parts
    return Path(*folder.parts[: -len(parts)]) if fits else folder.parent


def source_named(text: str, key: str, places: tuple[Path, ...], above: frozenset[Path]) -> "Ancestor | Base | str":
    """The source that a setting names."""
    for name in (text, re.sub(r"=[\d.eE+-]+$", "", text)):  # the weight of a reward
        path = next((place / name for place in places if (place / name).exists()), None)
        if path is None:
            continue
        folder = run_of(path.resolve())
        if folder is not None and folder not in above:
            return read_stage(folder, above)
        if key in ("data", "prompts") or folder is not None:
            return path.name
        return Base(path.resolve().name, licence=_licence(path / CARD))
    if key in ("data", "prompts", "reward"):
        return "a database" if "://" in text else Path(text).name if Path(text).is_absolute() else text
    return _on_the_hub(text)


def run_of(path: Path) -> Path | None:
    """The folder of the run that wrote the file or folder at `path`; None if no run wrote it."""
    if path.name == MODEL or path.is_file():
        path = path.parent
    elif path.parent.name == "checkpoints":
        path = path.parent.parent
    settings = settings_in(read_object(path / "config.json")[0])
    return path if any(key in settings for key in COMMANDS) else None


def _on_the_hub(name: str) -> Base:
    """A base model by its name, with the contents of the local hub cache. A name without a cache entry is that of a
    folder that no longer exists."""
    from huggingface_hub import try_to_load_from_cache

    try:
        file = try_to_load_from_cache(name, "config.json")
    except ValueError:  # not a valid name on the hub
        file = None
    if not isinstance(file, str):
        return Base(Path(name).name)
    snapshot = Path(file).parent
    return Base(name, hub=name, revision=snapshot.name, licence=_licence(snapshot / CARD))


def _licence(card: Path) -> Mapping[str, str]:
    """The licence in the front matter of a card; empty without one."""
    from huggingface_hub import ModelCard

    if not card.is_file():
        return {}
    try:
        stored = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=True).data.to_dict()
    except Exception:  # third-party file: any error means no readable licence
        return {}
    return {key: stored[key] for key in LICENCE if isinstance(stored.get(key), str)}
