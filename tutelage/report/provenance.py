"""The lineage of a run: the stages before it and the model with which they began, read from their folders.

It is found by following settings: the run of the model that a run began with, of its reward, its reference,
its teacher and its data, and the same for each of these, down to models that no run made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tutelage.report.json_files import Object, read_object, settings_in, string

CARD = "README.md"
MODEL = "model"
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
"""Commands by a setting that no command below them has: the command line of a run may be that of a script."""
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
    """A model that no run made. `hub` is its name on the hub, "" for a folder; `licence` what its card says."""

    name: str
    hub: str = ""
    revision: str = ""
    licence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ancestor:
    """A run in a lineage. `sources` maps settings to what they name: a stage, a model that no run made, or the name of
    a file or a data set."""

    folder: Path
    command: str
    config: Object
    summary: Object
    study: Object
    sources: Mapping[str, tuple["Ancestor | Base | str", ...]]

    @property
    def base(self) -> Base | None:
        """The model from which the weights come, through every stage; None where they began as random numbers."""
        (source, *_) = self.sources.get("model") or (None,)
        return source.base if isinstance(source, Ancestor) else source if isinstance(source, Base) else None

    def lineage(self) -> list["Ancestor"]:
        """This stage behind all that it was made from, each once."""
        stages: dict[Path, Ancestor] = {}
        for source in (each for group in self.sources.values() for each in group):
            for stage in source.lineage() if isinstance(source, Ancestor) else ():
                stages.setdefault(stage.folder, stage)
        return [*stages.values(), self]


def read_stage(folder: Path, above: frozenset[Path] = frozenset()) -> Ancestor:
    """The run in a folder with all that it was made from. `above` are the stages that lead to it, against circles."""
    config, summary, study = (
        read_object(folder / name)[0] for name in ("config.json", "summary.json", "study.json")
    )
    settings = settings_in(config)
    command = next((name for key, name in COMMANDS.items() if key in settings), "run")
    places = (started_in(folder, settings), Path())
    sources = {}
    for key in SOURCES:
        value = settings.get(key)
        value = value.get("path") if isinstance(value, dict) else value
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        if named := tuple(source_named(text, key, places, above | {folder}) for text in texts if text):
            sources[key] = named
    return Ancestor(folder, command, config, summary, study, sources)


def started_in(folder: Path, settings: Object) -> Path:
    """The folder in which a run was started, as far as its --out tells: paths in its settings are relative to it."""
    out = Path(string(settings, "out"))
    parts = () if out.is_absolute() else out.parts
    fits = bool(parts) and folder.parts[-len(parts) :] == parts
    return Path(*folder.parts[: -len(parts)]) if fits else folder.parent


def source_named(
    text: str, key: str, places: tuple[Path, ...], above: frozenset[Path]
) -> "Ancestor | Base | str":
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
    """The folder of the run that wrote what lies at `path`; None for what no run wrote."""
    if path.name == MODEL or path.is_file():
        path = path.parent
    elif path.parent.name == "checkpoints":
        path = path.parent.parent
    settings = settings_in(read_object(path / "config.json")[0])
    return path if any(key in settings for key in COMMANDS) else None


def _on_the_hub(name: str) -> Base:
    """A model by its name, and what the hub's cache on this machine knows of it: without it the name is that of a
    folder that is no longer there."""
    from huggingface_hub import try_to_load_from_cache

    try:
        file = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name that the hub could have
        file = None
    if not isinstance(file, str):
        return Base(Path(name).name)
    snapshot = Path(file).parent
    return Base(name, hub=name, revision=snapshot.name, licence=_licence(snapshot / CARD))


def _licence(card: Path) -> Mapping[str, str]:
    """The licence in the front matter of a card; empty where there is none."""
    from huggingface_hub import ModelCard

    if not card.is_file():
        return {}
    try:
        stored = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=True).data.to_dict()
    except Exception:  # another's file: whatever is wrong with it, there is no licence to be read
        return {}
    return {key: stored[key] for key in LICENCE if isinstance(stored.get(key), str)}
