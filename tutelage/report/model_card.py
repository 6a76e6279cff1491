"""Model cards: the README.md of a trained model, in the hub's format, written from the folders of its stages.

The lineage is found by following settings: the run of the model that a run began with, of its reward, its reference,
its teacher and its data, and the same for each of these, down to models that no run made. A card holds names of files
and folders but no paths, no addresses of databases, and no times, so that it may be published and equal runs have equal
cards.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tutelage.figures.number_text import number as written
from tutelage.figures.number_text import percent
from tutelage.report.files import read_object
from tutelage.report.json_values import Object, flat, interval, items, number, section, string
from tutelage.report.task_lines import task_lines

CARD = "README.md"
MODEL = "model"
LINEAGE = "## Lineage"
"""Heading at which the part of a card that this module writes begins."""

VERBS = {
    "teacher": "distill",
    "recipe": "improve",
    "centre": "reward",
    "unpaired": "dpo",
    "overall": "rejection",
    "rouge": "sft",
    "shape": "pretrain",
    "best_of": "sample",
}
"""Verbs by a setting that no verb below them has. The command may be that of a script."""
SOURCES = {
    "model": "model",
    "reward": "reward",
    "reference": "reference",
    "critic_from": "critic from",
    "teacher": "teacher",
    "data": "data",
    "prompts": "prompts",
}
"""Settings that name what a run was made from, with what they are called in a card."""
SHOWN = (
    *("epochs", "steps", "batch_size", "max_length", "optimiser.lr", "lora.rank", "recipe", "loss", "set"),
    *("keep", "on_policy", "seed"),
)
"""Settings that a card shows, where a run has them."""
SAMPLING = ("rounds", "samples", "sampling.temperature", "sampling.max_new_tokens")
"""Settings that a card shows of a run that answered prompts while it learned."""
SHARES = {
    "accuracy": "accuracy",
    "held_out/accuracy": "accuracy on held-out pairs",
    "held_out/rougeL": "ROUGE-L on held-out prompts",
}
NUMBERS = {
    "held_out/loss": "loss on held-out rows",
    "held_out/perplexity": "perplexity on held-out rows, per token",
    "held_out/margin": "margin of the implied reward on held-out pairs",
    "held_out/score": "mean score on held-out prompts",
    "score/mean": "mean score of the last rollout",
    "kl/reference": "KL from the reference in the last rollout, nats per answer",
    "divergence": "divergence from the teacher in the last batch, nats per token",
    "pairs": "pairs trained on",
    "rows": "rows trained on",
    "dropped": "rows left out because they did not fit",
}
"""Figures of summary.json that a card shows, where a run has them, with their names."""
LICENCE = ("license", "license_name", "license_link")


@dataclass(frozen=True)
class Base:
    """A model that no run made. `hub` is its name on the hub, "" for a folder; `licence` what its card says."""

    name: str
    hub: str = ""
    revision: str = ""
    licence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """A run in a lineage. `sources` maps settings to what they name: a stage, a model that no run made, or the name of
    a file or a data set."""

    folder: Path
    verb: str
    config: Object
    summary: Object
    study: Object
    sources: Mapping[str, tuple["Stage | Base | str", ...]]

    @property
    def base(self) -> Base | None:
        """The model from which the weights come, through every stage; None where they began as random numbers."""
        began = self.sources.get("model", ())
        if not began or isinstance(began[0], str):
            return None
        return began[0].base if isinstance(began[0], Stage) else began[0]

    def lineage(self) -> list["Stage"]:
        """This stage behind all that it was made from, each once."""
        found: dict[Path, Stage] = {}
        for source in (each for group in self.sources.values() for each in group):
            if isinstance(source, Stage):
                found |= {stage.folder: stage for stage in source.lineage() if stage.folder not in found}
        found[self.folder] = self
        return list(found.values())


def write_model_card(folder: Path) -> None:
    """Write README.md into the model of the finished run in `folder`. What is there is replaced, but for the part of a
    reward model's card that says how its scores are read."""
    file = folder / MODEL / CARD
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    file.write_text(model_card(folder, old), encoding="utf-8")


def model_card(folder: Path, old: str = "") -> str:
    """The card of the model of a run: YAML front matter of the hub, then Markdown. `old` is the card that is there."""
    from huggingface_hub import ModelCard, ModelCardData

    stage = read_stage(folder.resolve())
    reward = stage.verb == "reward"
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification" if reward else "text-generation",
        tags=["tutelage", *(["reward-model"] if reward else []), *_tags(stage)],
    )
    for key, value in _of_the_base(stage.base).items():
        data[key] = value
    body = ModelCard(old, ignore_metadata_errors=True).text if reward and old else _title(stage)
    head = body.partition(f"\n{LINEAGE}\n")[0].strip()
    return f"---\n{data.to_yaml()}\n---\n\n{head}\n\n{LINEAGE}\n\n" + "\n".join(_sections(stage))


def read_stage(folder: Path, above: frozenset[Path] = frozenset()) -> Stage:
    """The run in a folder with all that it was made from. `above` are the stages that lead to it, against circles."""
    config, summary, study = (
        read_object(folder / name)[0] for name in ("config.json", "summary.json", "study.json")
    )
    settings = _settings(config)
    verb = next((verb for key, verb in VERBS.items() if key in settings), "run")
    places = (_started_in(folder, settings), Path())
    sources = {}
    for key in SOURCES:
        given = settings.get(key)
        given = given.get("path") if isinstance(given, dict) else given
        texts = [text for text in (given if isinstance(given, list) else [given]) if isinstance(text, str)]
        found = [_source(text, key, places, above | {folder}) for text in texts if text]
        if found:
            sources[key] = tuple(found)
    return Stage(folder, verb, config, summary, study, sources)


def _settings(config: Object) -> Object:
    """The settings in a config.json: verbs that do not train write them alone."""
    return section(config, "settings") or config


def _started_in(folder: Path, settings: Object) -> Path:
    """The folder in which a run was started, as far as its --out tells: paths in its settings are relative to it."""
    out = Path(string(settings, "out"))
    parts = () if out.is_absolute() else out.parts
    fits = bool(parts) and folder.parts[-len(parts) :] == parts
    return Path(*folder.parts[: -len(parts)]) if fits else folder.parent


def _source(text: str, key: str, places: tuple[Path, ...], above: frozenset[Path]) -> "Stage | Base | str":
    """What a setting names."""
    for name in (text, re.sub(r"=[\d.eE+-]+$", "", text)):  # the weight of a reward
        path = next((place / name for place in places if (place / name).exists()), None)
        if path is None:
            continue
        folder = _run_of(path.resolve())
        if folder is not None and folder not in above:
            return read_stage(folder, above)
        if key in ("data", "prompts") or folder is not None:
            return path.name
        return Base(path.resolve().name, licence=_licence(path / CARD))
    if key in ("data", "prompts", "reward"):
        return "a database" if "://" in text else Path(text).name if Path(text).is_absolute() else text
    return _on_the_hub(text)


def _run_of(path: Path) -> Path | None:
    """The folder of the run that wrote what lies at `path`; None for what no run wrote."""
    if path.name == MODEL or path.is_file():
        path = path.parent
    elif path.parent.name == "checkpoints":
        path = path.parent.parent
    settings = _settings(read_object(path / "config.json")[0])
    return path if any(key in settings for key in VERBS) else None


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


def _of_the_base(base: Base | None) -> dict[str, str]:
    """The front matter that comes from the model with which the lineage began."""
    if base is None:
        return {}
    return ({"base_model": base.hub} if base.hub else {}) | dict(base.licence)


def _tags(stage: Stage) -> list[str]:
    recipe = string(_settings(stage.config), "recipe")
    return [stage.verb, *([recipe] if recipe else [])]


def _title(stage: Stage) -> str:
    recipe = string(_settings(stage.config), "recipe")
    trained = f"`tutelage {stage.verb}`" + (f" with the recipe `{recipe}`" if recipe else "")
    return f"# {stage.folder.name}\n\nA language model, trained by Tutelage: {trained}."


def _sections(stage: Stage) -> Iterator[str]:
    """The lines from the lineage on."""
    stages = stage.lineage()
    yield f"{_beginning(stage.base)} Each stage below was made from what it names; the last is this model."
    for place, each in enumerate(stages, start=1):
        yield from ("", f"### {place}. {each.folder.name}: {each.verb}", "")
        yield from (f"- {line}" for line in _facts(each))
    compared = [line for each in stages for line in _comparisons(each)]
    if compared:
        yield from ("", "## Evaluation", "", *(f"- {line}" for line in compared))
    yield from ("", "## Limits", "", *(f"- {line}" for line in _limits(stage, compared)))
    versions = ", ".join(f"{name} {text}" for name, text in section(stage.config, "versions").items())
    yield from ("", "## Versions", "", versions or "Not recorded.", "")


def _beginning(base: Base | None) -> str:
    if base is None:
        return "The weights began as random numbers."
    revision = f" at revision `{base.revision}`" if base.revision else ""
    where = f"`{base.hub}`{revision} of the hub" if base.hub else f"the folder `{base.name}`"
    licence = base.licence.get("license_name") or base.licence.get("license")
    return f"The weights began with {where}, " + (
        f"whose licence is `{licence}`." if licence else "whose licence is not recorded where it was read."
    )


def _facts(stage: Stage) -> Iterator[str]:
    for key, sources in stage.sources.items():
        yield f"{SOURCES[key]}: {', '.join(map(_named, sources))}"
    if rows := string(stage.config, "data"):
        yield f"rows read and their fingerprint: {rows}"
    yield from _study_facts(stage)
    settings = flat(_settings(stage.config))
    names = (*SHOWN, *SAMPLING) if "prompts" in stage.sources else SHOWN
    shown = {name: settings[name] for name in names if settings.get(name) not in (None, "", [])}
    if shown:
        yield "settings: " + ", ".join(f"`{name}` {_text(value)}" for name, value in shown.items())
    for key, name in SHARES.items():
        if key == "accuracy" and stage.verb != "reward":
            continue  # that of the last batch of training
        if (value := number(stage.summary, key)) is not None:
            yield f"{name}: {percent(value, 1)}{_spread(interval(stage.summary, f'{key}_interval'))}"
    for key, name in NUMBERS.items():
        if (value := number(stage.summary, key)) is not None:
            yield f"{name}: {written(value)}"


def _study_facts(stage: Stage) -> Iterator[str]:
    """The study of a reward model: its judgements, its raters, and how far they agree."""
    if not stage.study:
        return
    snapshot, selection = section(stage.study, "snapshot"), section(stage.study, "selection")
    kinds = ", ".join(str(kind) for kind in items(selection, "kinds")) or "all"
    raters = number(stage.study, "raters")
    yield (
        f"study: {string(stage.study, 'study')}, up to judgement {snapshot.get('last_judgement')}, raters of kind: "
        f"{kinds}" + ("" if raters is None else f"; {raters:.0f} raters")
    )
    fates = ", ".join(f"{name} {count}" for name, count in section(stage.study, "judgements").items())
    if fates:
        yield f"judgements: {fates}"
    ceiling = section(stage.summary, "ceiling")
    agreement, value = number(ceiling, "agreement"), number(ceiling, "value")
    if agreement is not None:
        yield f"agreement of two raters on a pair: {percent(agreement, 1)}"
    if value is not None:
        spread = _spread(interval(ceiling, "interval"))
        yield f"accuracy that the best predictor of single votes could reach: {percent(value, 1)}{spread}"
    votes = section(stage.summary, "votes")
    if (accuracy := number(votes, "accuracy")) is not None:
        yield f"accuracy on single votes: {percent(accuracy, 1)}{_spread(interval(votes, 'interval'))}"


def _evaluations(stage: Stage) -> Iterator[tuple[Path, Object, tuple[Path, ...]]]:
    """The evaluations of a stage's model whose folders lie beside its own: the folder, its settings, and the places
    that paths in them may start from."""
    for file in sorted(stage.folder.parent.glob("*/summary.json")):
        settings = read_object(file.with_name("config.json"))[0]
        path = string(section(settings, "model"), "path")
        places = (_started_in(file.parent, settings), Path())
        if any(_run_of((place / path).resolve()) == stage.folder for place in places):
            yield file.parent, settings, places


def _comparisons(stage: Stage) -> Iterator[str]:
    """Win rates of a stage's model, and what it reached on tasks."""
    for folder, settings, places in _evaluations(stage):
        summary = read_object(folder / "summary.json")[0]
        against = _source(string(settings, "against"), "model", places, frozenset())
        for reward, rate in section(summary, "win_rate").items():
            measured = rate if isinstance(rate, dict) else {}
            if (value := number(measured, "win_rate")) is not None:
                yield (
                    f"{stage.folder.name} against {_named(against)} by `{reward}`: win rate {percent(value, 1)}"
                    f"{_spread(interval(measured, 'win_rate_ci'))}, ties half"
                )
        yield from task_lines(stage.folder.name, summary)


def _limits(stage: Stage, compared: list[str]) -> Iterator[str]:
    if stage.verb == "reward":
        yield (
            "Scores compare answers to the same prompt, of the kind that the model was trained on; they say nothing of "
            "truth."
        )
    elif not compared:
        yield "No evaluation against another model is recorded beside the run."
    if stage.verb == "improve":
        yield "The score is that of the reward that was maximised: people may prefer other answers than it does."
    yield "Nothing here measures safety, truthfulness or bias; what the base and the data bring of these stays."
    yield "Figures are those of one run with one seed; intervals are 95 % and cover the choice of examples only."


def _named(source: "Stage | Base | str") -> str:
    if isinstance(source, Stage):
        return f"stage {source.folder.name}"
    return f"`{source.name}`" if isinstance(source, Base) else f"`{source}`"


def _spread(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" (95 % interval {percent(ends[0], 1)} to {percent(ends[1], 1)})"


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
