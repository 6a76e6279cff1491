"""Reading of runs and rounds from their folders.

All files of a run directory are optional: `config.json`, `metrics.jsonl`, `samples.jsonl`, `summary.json`, and by kind
`completions.jsonl` with `prompts.jsonl` (sample), `judgements.json` (judge) or `answers.jsonl` (evaluate). A run with
neither a summary nor completions is still running or was interrupted.

A round is a folder with `round.json`, which lists its stages in chronological order:

    {"title": "The tutoring round",
     "about": "A sentence or two on what was taught, and to which model.",                        optional
     "created": "2026-03-01 12:00",                                                               optional
     "command": "tutelage demo --seed 0",                                                         optional
     "reference": "SFT", "policy": "policy",               optional: names of the two compared models
     "stages": [{"name": "sft",                            unique
                 "kind": "sft",                            optional: pretrain sft sample judge reward improve evaluate;
                                                           by default inferred from the name, then the files
                 "title": "Supervised fine-tuning",        optional
                 "about": "What happens in this stage.",   optional; default: by the kind
                 "folder": "sft",                          a run directory, relative to the round; default: the name
                 "seconds": 41.5,                          optional
                 "status": "done"}]}                       waiting | running | done | failed; default: by its summary

and, once there are results, `summary.json` with the headline figures, either flat ("policy.win_rate") or nested
({"policy": {"win_rate": …}}); see `headline` for those that are shown.

The only errors are a folder that is neither a run nor a round, and an invalid `round.json`. Other missing files are
left out of the report, and unreadable ones are listed in it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tutelage.base.config.files import check_run_format
from tutelage.base.config.mapping import flat
from tutelage.base.errors import TutelageError
from tutelage.report.chat_templates import mismatches
from tutelage.report.json_files import (
    Object,
    items,
    number,
    read_completions,
    read_metrics,
    read_object,
    read_table,
    section,
    settings_in,
    string,
)

KINDS = ("pretrain", "sft", "sample", "judge", "reward", "improve", "evaluate")
DISTILLATION = "distill"
"""The kind of a distillation run, which is never part of a round: a round has raters in place of a teacher."""
TELLTALE = {"improve": "kl/reference", "reward": "margin", "sft": "loss"}
STATUSES = ("waiting", "running", "done", "failed")
OBJECTS = ("config", "summary", "judgements")
TABLES = ("metrics", "samples", "answers", "completions")
MODEL_FILES = ("model.safetensors", "model.safetensors.index.json", "adapter_config.json", "checkpoint.json")
WRITTEN_LAST = ("summary.json", "completions.jsonl")


@dataclass(frozen=True)
class RunContent:
    """The contents of a run directory. `metrics` has one object per step, in order; `troubles` lists unreadable files;
    `mismatches` has messages about models with different chat templates or end tokens; `finished` means that a file of
    `WRITTEN_LAST` exists, whatever its content."""

    config: Object = field(default_factory=dict)
    summary: Object = field(default_factory=dict)
    judgements: Object = field(default_factory=dict)
    metrics: tuple[Object, ...] = ()
    samples: tuple[Object, ...] = ()
    answers: tuple[Object, ...] = ()
    troubles: tuple[str, ...] = ()
    mismatches: tuple[str, ...] = ()
    finished: bool = False

    @property
    def empty(self) -> bool:
        """Whether the directory has no content yet."""
        return not any((self.config, self.summary, self.judgements, self.metrics, self.samples, self.answers))

    @property
    def last_step(self) -> int | None:
        """The number of the last step in the metrics."""
        return int(number(self.metrics[-1], "step") or 0) if self.metrics else None


@dataclass(frozen=True)
class StageContent:
    """One stage of a round. `status` is waiting, running (also for an interrupted stage), done or failed."""

    name: str
    kind: str
    title: str
    status: str
    seconds: float | None
    run: RunContent
    about: str = ""


@dataclass(frozen=True)
class RoundContent:
    """The content of a report. A single run is a round of one stage with `alone` set."""

    title: str
    stages: tuple[StageContent, ...]
    summary: Object = field(default_factory=dict)
    about: str = ""
    created: str = ""
    command: str = ""
    reference: str = "SFT"
    policy: str = "policy"
    alone: bool = False
    troubles: tuple[str, ...] = ()


def holds_run(folder: Path) -> bool:
    """Whether the folder is that of a run or a round."""
    files = ("round.json", *(f"{name}.json" for name in OBJECTS), *(f"{name}.jsonl" for name in TABLES))
    return any((folder / name).exists() for name in files) and not holds_model(folder)


def holds_model(folder: Path) -> bool:
    """Whether the folder contains a model or a checkpoint, whose `config.json` is not that of a run."""
    return (
        any((folder / name).exists() for name in MODEL_FILES) or "model_type" in read_object(folder / "config.json")[0]
    )


def read(folder: Path) -> RoundContent:
    """The round or the single run in a folder. Raises TutelageError if it is neither."""
    if not folder.is_dir():
        raise TutelageError(f"There is no folder {folder}: give the folder of a run or of a round.")
    if (folder / "round.json").exists():
        return read_round(folder)
    if holds_run(folder):
        return read_alone(folder)
    if holds_model(folder):
        run = next((parent for parent in folder.resolve().parents[:2] if holds_run(parent)), None)
        raise TutelageError(
            f"{folder} holds a model, not a run: give the folder that a command wrote with --out"
            + (f", which is {run}." if run else ".")
        )
    raise TutelageError(
        f"{folder} is neither a run nor a round: it has no config.json, metrics.jsonl or summary.json, and no"
        " round.json. Give the folder that a command wrote with --out."
    )


def read_round(folder: Path) -> RoundContent:
    """The round in a folder with `round.json`, whose format the module docstring describes."""
    index = folder / "round.json"
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TutelageError(f"{index} cannot be read as JSON: {error}.") from error
    stages = content.get("stages") if isinstance(content, dict) else None
    if not isinstance(stages, list) or not all(isinstance(s, dict) and string(s, "name") for s in stages):
        raise TutelageError(
            f'{index} must be {{"title": ..., "stages": [{{"name": ...}}, ...]}}; a stage needs a name.'
        )
    summary, trouble = read_object(folder / "summary.json")
    return RoundContent(
        title=string(content, "title", folder.resolve().name),
        stages=with_ceiling(tuple(read_stage(folder, stage) for stage in stages)),
        summary=flat(summary),
        about=string(content, "about"),
        created=string(content, "created"),
        command=string(content, "command"),
        reference=string(content, "reference", "SFT"),
        policy=string(content, "policy", "policy"),
        troubles=(trouble,) if trouble else (),
    )


def with_ceiling(stages: tuple[StageContent, ...]) -> tuple[StageContent, ...]:
    """The stages, with the accuracy ceiling from the judgements copied into the summary of the reward model."""
    ceilings = [stage.run.summary["ceiling"] for stage in stages if "ceiling" in stage.run.summary]
    if not ceilings:
        return stages
    return tuple(
        replace(stage, run=replace(stage.run, summary={"ceiling": ceilings[0], **stage.run.summary}))
        if stage.kind == "reward"
        else stage
        for stage in stages
    )


def read_stage(folder: Path, entry: Object) -> StageContent:
    """A stage from its entry in `round.json` and its run directory."""
    name = string(entry, "name")
    run = read_run(folder / string(entry, "folder", name))
    status = string(entry, "status")
    return StageContent(
        name=name,
        kind=string(entry, "kind") or kind_of(run, name),
        title=string(entry, "title"),
        status=status if status in STATUSES else status_of(run),
        seconds=number(entry, "seconds") or seconds_of(run),
        run=run,
        about=string(entry, "about"),
    )


def read_alone(folder: Path) -> RoundContent:
    """A single run as a round of one stage."""
    run, name = read_run(folder), folder.resolve().name
    stage = StageContent(name, kind_of(run, name), "", status_of(run), seconds_of(run), run)
    return RoundContent(title=name, stages=(stage,), alone=True)


def read_run(folder: Path) -> RunContent:
    """The run in a directory; missing files are empty. Raises TutelageError for a run in another format."""
    config, summary, judgements = (read_object(folder / f"{name}.json") for name in OBJECTS)
    metrics, completions = read_metrics(folder / "metrics.jsonl"), read_completions(folder)
    samples, answers = read_table(folder / "samples.jsonl"), read_table(folder / "answers.jsonl")
    parts = (config, summary, judgements, metrics, completions, samples, answers)
    if section(config[0], "settings"):
        check_run_format(config[0], folder)
    return RunContent(
        config=config[0],
        summary=summary[0],
        judgements=judgements[0],
        metrics=tuple(metrics[0]),
        samples=(*samples[0], *completions[0]),
        answers=tuple(answers[0]),
        troubles=tuple(trouble for _, trouble in parts if trouble),
        mismatches=mismatches(folder, config[0]),
        finished=any((folder / name).exists() for name in WRITTEN_LAST),
    )


def kind_of(run: RunContent, name: str) -> str:
    """The kind of a run: distillation if its settings name a teacher; otherwise the kind named by its folder or the
    second word of its command; otherwise by its files and metrics."""
    if "teacher" in settings_of(run):
        return DISTILLATION
    command = [word for word in items(run.config, "command") if isinstance(word, str)]
    for word in (name, *command[1:2]):
        if word in KINDS:
            return word
    if run.judgements or run.answers:
        return "judge" if run.judgements else "evaluate"
    names = {name for row in run.metrics for name in row}
    return next((kind for kind, name in TELLTALE.items() if name in names), "sample" if run.samples else "run")


def status_of(run: RunContent) -> str:
    """The status of a run by its files; waiting if it has written nothing."""
    if run.finished:
        return "done"
    return "waiting" if run.empty else "running"


def seconds_of(run: RunContent) -> float | None:
    """The duration of a run in seconds, by its summary or its last step."""
    last = run.metrics[-1] if run.metrics else {}
    return number(run.summary, "seconds") or number(last, "seconds")


def settings_of(run: RunContent) -> Mapping[str, object]:
    """The resolved settings in a run's configuration, flattened; see `origin_of` for the rest."""
    return flat(settings_in(run.config))


def origin_of(run: RunContent) -> Mapping[str, object]:
    """The versions, revision and similar metadata in a run's configuration, flattened."""
    if not section(run.config, "settings"):
        return {}
    return flat({key: value for key, value in run.config.items() if key != "settings"})
