"""Comparison of runs of one kind: their curves, the settings that differ, final figures, and paired tests.

Runs that differ only in their seed, and in settings that do not affect the computation, are one *variant*. Its curves
and figures are means over its seeds. A second run of a seed is of another variant: its data or its code changed. The
first variant is the one that the others are compared with.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from tutelage.base.config.bases import INCIDENTAL
from tutelage.base.config.mapping import flat
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.report.diagnoses import column, smooth
from tutelage.report.folders import RunContent, kind_of, read, settings_of
from tutelage.report.json_files import Object, interval, number, section, settings_in, string
from tutelage.report.metrics import HELD_OUT
from tutelage.report.panels import Panel, further
from tutelage.report.stage_figures import AVERAGED, panels_of
from tutelage.stats.intervals import Mean, mean_interval

VARIANTS = 12
"""Maximum number of variants, which is that of lines that a chart can tell apart."""
AFTER = "_after"
"""End of the names of scores in `answers.jsonl`."""
OWN = {*INCIDENTAL, "names"}
"""Settings of a run that do not affect its result."""
ROWS = "rows"
"""Name of the fingerprint of the data among the settings."""


@dataclass(frozen=True)
class Variant:
    """Runs that differ only in their seed. `unfinished` counts those without a summary."""

    name: str
    folders: tuple[str, ...]
    seeds: tuple[object, ...]
    unfinished: int = 0


@dataclass(frozen=True)
class DifferentSetting:
    """A setting that differs between variants, with its value in each; None where it is absent."""

    name: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class FinalFigure:
    """A figure of the finished runs, for each variant: over its seeds, or over the prompts of an evaluation."""

    name: str
    over: str
    values: tuple[Mean, ...]


@dataclass(frozen=True)
class PairedTest:
    """A variant minus the first one in a figure, on the same prompts or the same seeds, with the paired t-test."""

    figure: str
    variant: str
    against: str
    over: str
    difference: Mean


@dataclass(frozen=True)
class VariantCurve:
    """A metric of a variant over the steps that all its runs logged: mean, lowest and highest of the seeds."""

    variant: str
    steps: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class OverlaidCurves:
    """A metric of all variants. `main` means that the kind of run is judged by it."""

    metric: str
    title: str
    unit: str
    curves: tuple[VariantCurve, ...]
    main: bool


@dataclass(frozen=True)
class Comparison:
    """Comparison of runs of one kind."""

    kind: str
    variants: tuple[Variant, ...]
    settings: tuple[DifferentSetting, ...]
    figures: tuple[FinalFigure, ...]
    tests: tuple[PairedTest, ...]
    curves: tuple[OverlaidCurves, ...]

    def json(self) -> str:
        """The comparison as JSON; a value that is not finite is null."""
        return json.dumps(_finite(asdict(self)), indent=2, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class _Run:
    """A run with its folder."""

    folder: Path
    content: RunContent

    @cached_property
    def settings(self) -> Mapping[str, object]:
        """Settings that affect the result, and the fingerprint of the rows that were read."""
        settings = {
            name: value for name, value in settings_of(self.content).items() if not {name, name.split(".")[0]} & OWN
        }
        rows = self.content.config.get("data") if "settings" in self.content.config else None
        return settings | ({} if rows is None else {ROWS: rows})

    @property
    def identity(self) -> str:
        """What the runs of a variant share; their rows may be split by the seed."""
        return json.dumps(
            {name: value for name, value in self.settings.items() if name not in ("seed", ROWS)}, sort_keys=True
        )

    @cached_property
    def prompts(self) -> tuple[tuple[tuple[str, str], tuple[Object, ...]], ...]:
        """Prompts of an evaluation, each by its last message and the id of a conversation, with the rows of their
        completions."""
        groups = groupby(self.content.answers, lambda row: (string(row, "prompt"), string(row, "prompt_id")))
        return tuple((prompt, tuple(rows)) for prompt, rows in groups)

    @property
    def rewards(self) -> list[str]:
        """Rewards of an evaluation."""
        names = dict.fromkeys(name for row in self.content.answers for name in row if number(row, name) is not None)
        return [name.removesuffix(AFTER) for name in names if name.endswith(AFTER)]

    def by_prompt(self, reward: str) -> dict[int, float]:
        """Mean score of the completions of each prompt, by its number, where the reward applies."""
        scores = {}
        for index, (_, rows) in enumerate(self.prompts):
            own = [value for row in rows if (value := number(row, reward + AFTER)) is not None]
            if own:
                scores[index] = math.fsum(own) / len(own)
        return scores

    @property
    def figures(self) -> Mapping[str, float]:
        """Numbers of the summary; those of an evaluation without the mean scores, which follow from the prompts."""
        summary = section(self.content.summary, "model") if self.content.answers else self.content.summary
        numbers = {name: value for name in flat(summary) if (value := number(flat(summary), name)) is not None}
        scored = {f"{reward}_{end}" for reward in self.rewards for end in ("mean", "n")}
        return {name: value for name, value in numbers.items() if name not in {"step", *scored}}


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Compare the runs in these folders.

    Raises TutelageError for fewer than two folders, one that holds no run, one given twice, runs of different kinds,
    evaluations of different prompts, and more than `VARIANTS` variants.
    """
    runs = _read(folders)
    kind = _kind(runs)
    _check_prompts(runs)
    groups: dict[tuple[str, int], list[_Run]] = {}
    repetitions: Counter[tuple[str, object]] = Counter()
    for run in runs:
        same = run.identity, run.settings.get("seed")
        groups.setdefault((run.identity, repetitions[same]), []).append(run)
        repetitions[same] += 1
    if len(groups) > VARIANTS:
        raise TutelageError(
            f"{counted(len(groups), 'variant')} cannot be told apart in one chart: compare at most {VARIANTS}."
        )
    members = [tuple(group) for group in groups.values()]
    names = _names(members)
    variants = tuple(
        Variant(
            name,
            tuple(str(run.folder) for run in group),
            tuple(run.settings.get("seed") for run in group),
            sum(not run.content.finished for run in group),
        )
        for name, group in zip(names, members, strict=True)
    )
    panels = panels_of(kind)
    named = dict(zip(names, members, strict=True))
    return Comparison(
        kind=kind,
        variants=variants,
        settings=_settings(members),
        figures=_figures(members, panels),
        tests=tuple(_tests(named, panels)),
        curves=tuple(_curves(named, panels)),
    )


def _read(folders: Sequence[Path]) -> list[_Run]:
    if len(folders) < 2:
        raise TutelageError("A comparison takes the folders of two or more runs.")
    paths: dict[Path, Path] = {}
    runs = []
    for folder in folders:
        if folder.resolve() in paths:
            raise TutelageError(f"The run {folder} is given twice, first as {paths[folder.resolve()]}: leave one out.")
        paths[folder.resolve()] = folder
        round_ = read(folder)
        if not round_.alone:
            stages = ", ".join(stage.name for stage in round_.stages)
            raise TutelageError(f"{folder} is a round of several runs: give the folder of one of them ({stages}).")
        runs.append(_Run(folder, round_.stages[0].run))
    return runs


def _kind(runs: Sequence[_Run]) -> str:
    """Kind of all runs. Raises TutelageError if their commands have different settings, or they no common metric."""
    first, kinds = runs[0], [kind_of(run.content, run.folder.resolve().name) for run in runs]
    own = set(settings_in(first.content.config))
    for run, kind in zip(runs, kinds, strict=True):
        keys = set(settings_in(run.content.config))
        if bool(run.content.answers) != bool(first.content.answers) or (keys and own and keys != own):
            only = ", ".join(sorted(keys ^ own)[:3])
            raise TutelageError(
                f"{first.folder} ({kinds[0]}) and {run.folder} ({kind}) are runs of different commands"
                f"{f' (settings of one alone: {only})' if only else ''}: compare runs of one command, or evaluate both "
                "models on the same prompts and compare the evaluations."
            )
    return kinds[0]


def _check_prompts(runs: Sequence[_Run]) -> None:
    """Raise TutelageError for evaluations of different prompts."""
    own = [prompt for prompt, _ in runs[0].prompts]
    for run in runs[1:]:
        theirs = [prompt for prompt, _ in run.prompts]
        if theirs != own:
            place = next((i for i, pair in enumerate(zip(own, theirs, strict=False)) if len(set(pair)) > 1), None)
            what = (
                f"{counted(len(own), 'prompt')} and {len(theirs):,}"
                if place is None
                else f"prompt {place + 1:,} is {own[place][0][:60]!r} and {theirs[place][0][:60]!r}"
                if own[place][0] != theirs[place][0]
                else f"prompt {place + 1:,}, {own[place][0][:60]!r}, ends different conversations"
            )
            raise TutelageError(
                f"{runs[0].folder} and {run.folder} evaluated different prompts ({what}), so they cannot be compared "
                "prompt by prompt: evaluate both with the same --prompts and --limit."
            )


def _names(members: Sequence[Sequence[_Run]]) -> list[str]:
    """Names of the variants: what their folders do not have in common, without the number of the seed."""
    paths = [[run.folder.resolve() for run in group] for group in members]
    root = Path(os.path.commonpath([path.parent for group in paths for path in group]))
    names = []
    for group in paths:
        own = [str(path.relative_to(root)) for path in group]
        stems = {re.sub(r"[-_./]*(seed)?[-_./]*\d*$", "", name) for name in own}
        common = stems.pop() if len(own) > 1 and len(stems) == 1 else own[0]
        names.append(common or (own[0] if len(paths) > 1 else root.name))
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, 1)]


def _settings(members: Sequence[Sequence[_Run]]) -> tuple[DifferentSetting, ...]:
    names = dict.fromkeys(name for group in members for name in group[0].settings if name != "seed")
    rows = [DifferentSetting(name, tuple(group[0].settings.get(name) for group in members)) for name in names]
    return tuple(row for row in rows if any(value != row.values[0] for value in row.values))


def _figures(members: Sequence[Sequence[_Run]], panels: Sequence[Panel]) -> tuple[FinalFigure, ...]:
    """Scores by prompt first, then the metrics of the panels, then the other figures; those that some variant has."""
    rows = []
    for reward in _rewards(run for group in members for run in group):
        values = tuple(mean_interval(list(_prompt_means(group, reward).values())) for group in members)
        rows.append(FinalFigure(reward, "prompts", values))
    for name in _figure_names([run for group in members for run in group], panels):
        rows.append(FinalFigure(name, "seeds", tuple(_final(group, name) for group in members)))
    return tuple(rows)


def _final(group: Sequence[_Run], name: str) -> Mean:
    """Mean of a figure over the seeds; the value of a single run has the interval that its summary gives."""
    mean = mean_interval([run.figures[name] for run in group if name in run.figures])
    ends = interval(group[0].content.summary, f"{name}_interval") if mean.n == len(group) == 1 else None
    return mean if ends is None else replace(mean, low=ends[0], high=ends[1])


def _rewards(runs: Iterable[_Run]) -> list[str]:
    return list(dict.fromkeys(reward for run in runs for reward in run.rewards))


def _prompt_means(group: Sequence[_Run], reward: str) -> dict[int, float]:
    """Mean score of each prompt over the runs of a variant."""
    scores = [run.by_prompt(reward) for run in group]
    prompts = [index for index in scores[0] if all(index in own for own in scores)]
    return {index: math.fsum(own[index] for own in scores) / len(scores) for index in prompts}


def _figure_names(runs: Sequence[_Run], panels: Sequence[Panel]) -> list[str]:
    names = dict.fromkeys(name for run in runs for name in run.figures)
    leading = [curve.metric for panel in panels for curve in panel.curves if curve.metric in names]
    return list(dict.fromkeys((*(name for name in names if name.startswith(HELD_OUT)), *leading, *names)))


def _tests(named: Mapping[str, Sequence[_Run]], panels: Sequence[Panel]) -> Iterable[PairedTest]:
    (first, base), *others = named.items()
    for name, group in others:
        for reward in _rewards(base):
            own, theirs = _prompt_means(group, reward), _prompt_means(base, reward)
            differences = [own[index] - theirs[index] for index in own if index in theirs]
            if differences:
                yield PairedTest(reward, name, first, "prompts", mean_interval(differences))
        if base[0].content.answers:
            continue
        seeds = {run.settings.get("seed"): run.figures for run in base}
        pairs = [(run.figures, seeds[seed]) for run in group if (seed := run.settings.get("seed")) in seeds]
        panelled = {curve.metric for panel in panels for curve in panel.curves}
        for metric in _figure_names([*base, *group], panels):
            differences = [own[metric] - theirs[metric] for own, theirs in pairs if metric in own and metric in theirs]
            if len(differences) > 1 and (metric in panelled or metric.startswith(HELD_OUT)):
                yield PairedTest(metric, name, first, "seeds", mean_interval(differences))


def _curves(named: Mapping[str, Sequence[_Run]], panels: Sequence[Panel]) -> Iterable[OverlaidCurves]:
    """Curves of the metrics of the panels, and then of all others, where some variant has two points."""
    others: dict[str, Panel] = {}
    for group in named.values():
        for run in group:
            others |= {panel.title: panel for panel in further(run.content, panels)}
    for panel, main in (*((panel, True) for panel in panels), *((panel, False) for panel in others.values())):
        for curve in panel.curves:
            curves = tuple(_curve(name, group, curve.metric, noisy=curve.noisy) for name, group in named.items())
            if any(len(own.steps) > 1 for own in curves):
                title = panel.title if len(panel.curves) == 1 else f"{panel.title}: {curve.label}"
                yield OverlaidCurves(curve.metric, title, panel.unit, curves, main)


def _curve(name: str, group: Sequence[_Run], metric: str, *, noisy: bool) -> VariantCurve:
    columns = []
    for run in group:
        steps, values = column(run.content, metric)
        smoothed = smooth(values) if noisy and len(steps) >= AVERAGED else values
        columns.append(dict(zip(steps, smoothed, strict=True)))
    steps = tuple(step for step in columns[0] if all(step in own for own in columns))
    seeds = [sorted(own[step] for own in columns) for step in steps]
    mean = tuple(math.fsum(own) / len(own) for own in seeds)
    return VariantCurve(name, steps, mean, tuple(min(own) for own in seeds), tuple(max(own) for own in seeds))


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
