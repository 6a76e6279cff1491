"""Model cards: the README.md of a trained model in Hugging Face format, generated from its lineage of runs.

Cards contain file and folder names but no paths, database URLs or times, so that they can be published and equal runs
have equal cards.
"""

from collections.abc import Iterator
from pathlib import Path

from tutelage.base.config.mapping import flat
from tutelage.base.number_text import number as written
from tutelage.base.number_text import percent
from tutelage.report.json_files import (
    Object,
    interval,
    items,
    number,
    objects,
    read_object,
    section,
    settings_in,
    string,
    truth,
)
from tutelage.report.provenance import (
    CARD,
    MODEL,
    PROMOTIONS,
    SOURCES,
    Ancestor,
    Base,
    read_stage,
    run_of,
    source_named,
    started_in,
)

LINEAGE = "## Lineage"
"""The heading from which on the card is generated."""
SHOWN = (
    *("epochs", "steps", "batch_size", "max_length", "optimiser.lr", "lora.rank", "recipe", "loss", "set"),
    *("keep", "on_policy", "seed"),
)
"""Settings to show in a card, if a run has them."""
SAMPLING = ("rounds", "samples", "sampling.temperature", "sampling.max_new_tokens")
"""Settings to show for a run that sampled completions during training."""
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
    "kl/reference": "KL from the reference in the last rollout, nats per completion",
    "divergence": "divergence from the teacher in the last batch, nats per token",
    "pairs": "pairs trained on",
    "rows": "rows trained on",
    "dropped": "rows skipped because they did not fit",
}
"""Figures of summary.json to show in a card, if present, with their names."""


def write_model_card(folder: Path) -> None:
    """Write README.md into the model of the finished run in `folder`. Replaces an existing card, except for the part of
    a reward model's card on reading its scores."""
    file = folder / MODEL / CARD
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    file.write_text(model_card(folder, old), encoding="utf-8")


def model_card(folder: Path, old: str = "") -> str:
    """The card of a run's model: YAML front matter, then Markdown. `old` is the existing card."""
    from huggingface_hub import ModelCard, ModelCardData

    stage = read_stage(folder.resolve())
    reward = stage.command == "reward"
    recipe = string(settings_in(stage.config), "recipe")
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification" if reward else "text-generation",
        tags=["tutelage", *(["reward-model"] if reward else []), stage.command, *([recipe] if recipe else [])],
    )
    for key, value in _of_the_base(stage.base).items():
        data[key] = value
    trained = f"`tutelage {stage.command}`" + (f" with the recipe `{recipe}`" if recipe else "")
    title = f"# {stage.folder.name}\n\nA language model, trained by Tutelage: {trained}."
    body = ModelCard(old, ignore_metadata_errors=True).text if reward and old else title
    head = body.partition(f"\n{LINEAGE}\n")[0].strip()
    return f"---\n{data.to_yaml()}\n---\n\n{head}\n\n{LINEAGE}\n\n" + "\n".join(_sections(stage))


def _of_the_base(base: Base | None) -> dict[str, str]:
    """The front matter that is inherited from the base model."""
    if base is None:
        return {}
    return ({"base_model": base.hub} if base.hub else {}) | dict(base.licence)


def _sections(stage: Ancestor) -> Iterator[str]:
    """The lines from the lineage on."""
    stages = stage.lineage()
    yield f"{_beginning(stage.base)} Each stage below lists its sources; the last stage is this model."
    for place, each in enumerate(stages, start=1):
        yield from ("", f"### {place}. {each.folder.name}: {each.command}", "")
        yield from (f"- {line}" for line in _facts(each))
    compared = [line for each in stages for line in _comparisons(each)]
    if compared:
        yield from ("", "## Evaluation", "", *(f"- {line}" for line in compared))
    if promotion := _promotion(stage.folder):
        yield from ("", "## Promotion", "", *promotion)
    yield from ("", "## Limits", "", *(f"- {line}" for line in _limits(stage, compared)))
    versions = ", ".join(f"{name} {text}" for name, text in section(stage.config, "versions").items())
    yield from ("", "## Versions", "", versions or "Not recorded.", "")


def _beginning(base: Base | None) -> str:
    if base is None:
        return "The weights were initialised randomly."
    revision = f" at revision `{base.revision}`" if base.revision else ""
    where = f"`{base.hub}`{revision} of the hub" if base.hub else f"the folder `{base.name}`"
    licence = base.licence.get("license_name") or base.licence.get("license")
    return f"The weights began with {where}, " + (
        f"whose licence is `{licence}`." if licence else "whose licence is unknown."
    )


def _facts(stage: Ancestor) -> Iterator[str]:
    for key, sources in stage.sources.items():
        yield f"{SOURCES[key]}: {', '.join(map(_named, sources))}"
    if rows := string(stage.config, "data"):
        yield f"rows read and their fingerprint: {rows}"
    yield from _study_facts(stage)
    settings = flat(settings_in(stage.config))
    names = (*SHOWN, *SAMPLING) if "prompts" in stage.sources else SHOWN
    values = {name: settings[name] for name in names if settings.get(name) not in (None, "", [])}
    if values:
        yield "settings: " + ", ".join(f"`{name}` {_text(value)}" for name, value in values.items())
    for key, name in SHARES.items():
        if key == "accuracy" and "accuracy_interval" not in stage.summary:
            continue  # the accuracy on the last training batch
        if (value := number(stage.summary, key)) is not None:
            yield f"{name}: {percent(value, 1)}{_spread(interval(stage.summary, f'{key}_interval'))}"
    for key, name in NUMBERS.items():
        if (value := number(stage.summary, key)) is not None:
            yield f"{name}: {written(value)}"


def _study_facts(stage: Ancestor) -> Iterator[str]:
    """The study of a reward model: judgements, raters and agreement."""
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
        yield f"accuracy ceiling for single votes: {percent(value, 1)}{spread}"
    votes = section(stage.summary, "votes")
    if (accuracy := number(votes, "accuracy")) is not None:
        yield f"accuracy on single votes: {percent(accuracy, 1)}{_spread(interval(votes, 'interval'))}"


def _comparisons(stage: Ancestor) -> Iterator[str]:
    """Win rates and task results of a stage's model, from the evaluations in sibling folders."""
    for file in sorted(stage.folder.parent.glob("*/summary.json")):
        settings = read_object(file.with_name("config.json"))[0]
        path = string(section(settings, "model"), "path")
        places = (started_in(file.parent, settings), Path())
        if not any(run_of((place / path).resolve()) == stage.folder for place in places):
            continue
        summary = read_object(file)[0]
        against = source_named(string(settings, "against"), "model", places, frozenset())
        for reward, rate in section(summary, "win_rate").items():
            measured = rate if isinstance(rate, dict) else {}
            if (value := number(measured, "win_rate")) is not None:
                yield (
                    f"{stage.folder.name} against {_named(against)} by `{reward}`: win rate {percent(value, 1)}"
                    f"{_spread(interval(measured, 'win_rate_ci'))}, ties half"
                )
        yield from _task_lines(stage.folder.name, summary)


def _promotion(folder: Path) -> list[str]:
    """The evidence of the last promotion of the model, or that it was withdrawn."""
    decisions = objects(read_object(folder / PROMOTIONS)[0], "decisions")
    if not decisions:
        return []
    if not truth(decisions[-1], "promoted"):
        return ["The last promotion of this model was withdrawn."]
    test, required = section(decisions[-1], "test"), section(decisions[-1], "required")
    level = number(required, "level") or 0.0
    conditions = (f"- {string(each, 'name')}: {string(each, 'finding')}" for each in objects(test, "conditions"))
    head = "Promoted after a split test against the model that was served (A; this model is B). Each statement holds at"
    return [f"{head} all looks together with probability {percent(level, 1)}:", "", *conditions]


def _task_lines(name: str, summary: Object) -> Iterator[str]:
    """Task results with standard errors from the summary.json of an evaluation; `name` is the model's."""
    tasks, figures = section(summary, "tasks"), section(summary, "model")
    versions = section(tasks, "versions")
    for figure in map(str, items(tasks, "figures")):
        task, _, metric = figure.rpartition("/")
        value, error = number(figures, figure), number(figures, f"{figure}_error")
        if value is not None:
            yield (
                f"{name} on `{task}` (lm-evaluation-harness, version {versions.get(task, 'unknown')} of the task): "
                f"{metric} {value:.3f}" + ("" if error is None else f", standard error {error:.3f}")
            )


def _limits(stage: Ancestor, compared: list[str]) -> Iterator[str]:
    if stage.command == "reward":
        yield (
            "Scores compare completions to the same prompt, like those of the training data; they do not measure truth."
        )
    elif not compared:
        yield "No evaluation against another model was found next to the run."
    if stage.command == "improve":
        yield "The score is the reward that was maximised; people may prefer other completions."
    yield "Nothing here measures safety, truthfulness or bias; problems of the base model and the data remain."
    yield "Figures are those of one run with one seed; intervals are 95 % and cover the choice of examples only."


def _named(source: "Ancestor | Base | str") -> str:
    if isinstance(source, Ancestor):
        return f"stage {source.folder.name}"
    return f"`{source.name}`" if isinstance(source, Base) else f"`{source}`"


def _spread(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" (95 % interval {percent(ends[0], 1)} to {percent(ends[1], 1)})"


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
