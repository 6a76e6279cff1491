"""Reading the two kinds of folder a report is made of: a run, and a round of several runs.

A run directory may hold, each only if it is there: `config.json`, `metrics.jsonl`, `samples.jsonl`, `summary.json`,
and for its kind `judgements.json` (judge) or `answers.jsonl` (evaluate). A run that has not written its summary is
still running or was interrupted.

A round is a folder with `round.json`, its stages in the order in which they happen:

    {"title": "The tutoring round",
     "about": "A sentence or two on what was taught, and to which model.",                        optional
     "created": "2026-03-01 12:00",                                                               optional
     "command": "tutelage demo --seed 0",                                                         optional
     "reference": "SFT", "policy": "policy",               optional: what the two compared models are called
     "stages": [{"name": "sft",                            unique; the anchor of its section
                 "kind": "sft",                            optional: pretrain sft sample judge reward improve evaluate;
                                                           without it, the name where that is one of these words
                 "title": "Supervised fine-tuning",        optional
                 "folder": "sft",                          a run directory, relative to the round; default: the name
                 "seconds": 41.5,                          optional
                 "status": "done"}]}                       waiting | running | done | failed; default: by its summary

and, once there is something to tell, `summary.json` with the decisive figures, either flat ("policy.win_rate") or
nested ({"policy": {"win_rate": …}}); `headline` says which of them are shown.

Only a folder that is neither, and a `round.json` that is not of this form, is an error. Everything else that is
missing is absent from the report, and what cannot be read is named in it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tutelage.errors import TutelageError
from tutelage.evaluate.report.json_values import Object, flat, items, number, section, string

KINDS = ("pretrain", "sft", "sample", "judge", "reward", "improve", "evaluate")
TELLTALE = {"improve": "kl/reference", "reward": "margin", "sft": "loss"}
STATUSES = ("waiting", "running", "done", "failed")
OBJECTS = ("config", "summary", "judgements")
TABLES = ("metrics", "samples", "answers")


@dataclass(frozen=True)
class Run:
    """What a run directory holds. `metrics` has one object per step, in order; `troubles` names what is there but could
    not be read; `finished` means that there is a summary, whatever it says."""

    config: Object = field(default_factory=dict)
    summary: Object = field(default_factory=dict)
    judgements: Object = field(default_factory=dict)
    metrics: tuple[Object, ...] = ()
    samples: tuple[Object, ...] = ()
    answers: tuple[Object, ...] = ()
    troubles: tuple[str, ...] = ()
    finished: bool = False

    @property
    def empty(self) -> bool:
        """Nothing has been written yet."""
        return not any((self.config, self.summary, self.judgements, self.metrics, self.samples, self.answers))

    @property
    def last_step(self) -> int | None:
        """The number of the last step in the metrics."""
        return int(number(self.metrics[-1], "step") or 0) if self.metrics else None


@dataclass(frozen=True)
class Stage:
    """One part of a round. `status` is waiting, running (which an interrupted stage looks like too), done or failed."""

    name: str
    kind: str
    title: str
    status: str
    seconds: float | None
    run: Run


@dataclass(frozen=True)
class Round:
    """All that the report tells of. A single run is a round of one stage and `alone`."""

    title: str
    stages: tuple[Stage, ...]
    summary: Object = field(default_factory=dict)
    about: str = ""
    created: str = ""
    command: str = ""
    reference: str = "SFT"
    policy: str = "policy"
    alone: bool = False


def read(folder: Path) -> Round:
    """The round or the single run in a folder. Raises TutelageError when it is neither."""
    if not folder.is_dir():
        raise TutelageError(f"There is no folder {folder}: give the folder of a run or of a round.")
    if (folder / "round.json").exists():
        return read_round(folder)
    files = (*(f"{name}.json" for name in OBJECTS), *(f"{name}.jsonl" for name in TABLES))
    if any((folder / name).exists() for name in files):
        return read_alone(folder)
    raise TutelageError(
        f"{folder} is neither a run nor a round: it has no config.json, metrics.jsonl or summary.json, and no"
        " round.json. Give the folder that a verb wrote with --out."
    )


def read_round(folder: Path) -> Round:
    """A round by its `round.json`, whose form the module describes."""
    index = folder / "round.json"
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TutelageError(f"{index} cannot be read as JSON: {error}.") from error
    stages = content.get("stages") if isinstance(content, dict) else None
    if not isinstance(stages, list) or not all(isinstance(s, dict) and string(s, "name") for s in stages):
        raise TutelageError(
            f'{index} must be {{"title": ..., "stages": [{{"name": ...}}, ...]}}; a stage needs a name.'
        )
    summary, _ = read_object(folder / "summary.json")
    return Round(
        title=string(content, "title", folder.resolve().name),
        stages=tuple(read_stage(folder, stage) for stage in stages),
        summary=flat(summary),
        about=string(content, "about"),
        created=string(content, "created"),
        command=string(content, "command"),
        reference=string(content, "reference", "SFT"),
        policy=string(content, "policy", "policy"),
    )


def read_stage(folder: Path, told: Object) -> Stage:
    """One stage of `round.json`, with its run directory."""
    name = string(told, "name")
    run = read_run(folder / string(told, "folder", name))
    status = string(told, "status")
    return Stage(
        name=name,
        kind=string(told, "kind") or kind_of(run, name),
        title=string(told, "title"),
        status=status if status in STATUSES else status_of(run),
        seconds=number(told, "seconds") or seconds_of(run),
        run=run,
    )


def read_alone(folder: Path) -> Round:
    """A single run as a round of one stage."""
    run, name = read_run(folder), folder.resolve().name
    stage = Stage(name, kind_of(run, name), "", status_of(run), seconds_of(run), run)
    return Round(title=name, stages=(stage,), alone=True)


def read_run(folder: Path) -> Run:
    """What there is of a run directory."""
    found = {name: read_object(folder / f"{name}.json") for name in OBJECTS}
    tables = {name: read_table(folder / f"{name}.jsonl") for name in TABLES}
    troubles = [trouble for _, trouble in (*found.values(), *tables.values()) if trouble]
    return Run(
        config=found["config"][0],
        summary=found["summary"][0],
        judgements=found["judgements"][0],
        metrics=by_step(tables["metrics"][0]),
        samples=tuple(tables["samples"][0]),
        answers=tuple(tables["answers"][0]),
        troubles=tuple(troubles),
        finished=(folder / "summary.json").exists(),
    )


def read_object(path: Path) -> tuple[Object, str]:
    """The JSON object in a file, and what is wrong with the file. No file is nothing wrong."""
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name} could not be read: {error}"
    return (content, "") if isinstance(content, dict) else ({}, f"{path.name} is not a JSON object")


def read_table(path: Path) -> tuple[list[Object], str]:
    """The JSON objects in the lines of a file, and how many lines were none (a crash may cut the last one short)."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return [], ""
    except OSError as error:
        return [], f"{path.name} could not be read: {error}"
    rows = [parsed(line) for line in lines if line.strip()]
    objects = [row for row in rows if row is not None]
    broken = len(rows) - len(objects)
    return objects, f"{path.name}: {broken} of {len(rows)} lines could not be read" if broken else ""


def parsed(line: str) -> Object | None:
    """The object in a line of JSON."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def by_step(rows: list[Object]) -> tuple[Object, ...]:
    """One object per step, in order of steps. A step that was written twice (before and after a resumption) counts as
    it was written last."""
    steps: dict[float, dict[str, object]] = {}
    for row in rows:
        step = number(row, "step")
        if step is not None:
            steps.setdefault(step, {}).update(row)
    return tuple(steps[step] for step in sorted(steps))


def kind_of(run: Run, name: str) -> str:
    """What a run did: its folder's name or the verb in its command where one of them says so, or else what its files
    and metrics give away."""
    command = [word for word in items(run.config, "command") if isinstance(word, str)]
    told = next((word for word in (name, *command[1:2]) if word in KINDS), "")
    if told:
        return told
    if run.judgements or run.answers:
        return "judge" if run.judgements else "evaluate"
    names = {name for row in run.metrics for name in row}
    return next(
        (kind for kind, name in TELLTALE.items() if name in names), "sample" if run.samples else "run"
    )


def status_of(run: Run) -> str:
    """A run that has written its summary is done; one that has written nothing has not begun."""
    if run.finished:
        return "done"
    return "waiting" if run.empty else "running"


def seconds_of(run: Run) -> float | None:
    """How long a run took, by its summary or its last step."""
    last = run.metrics[-1] if run.metrics else {}
    return number(run.summary, "seconds") or number(last, "seconds")


def settings_of(run: Run) -> Mapping[str, object]:
    """The resolved settings in a run's configuration, flat; what `config.json` says beside them is `origin_of`."""
    return flat(section(run.config, "settings") or run.config)


def origin_of(run: Run) -> Mapping[str, object]:
    """Versions, revision and the like, flat."""
    if not section(run.config, "settings"):
        return {}
    return flat({key: value for key, value in run.config.items() if key != "settings"})
