"""Overrides of recipe slots by name, as in `surrogate.low=0.1`, `surrogate=ScoreFunction`, `critic=none`.

All assignments are applied before the recipe is built and validated, so their order does not matter.
"""

import math
import types
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tutelage.algorithms.recipe import Recipe
from tutelage.base.errors import TutelageError, did_you_mean
from tutelage.base.modules import value_named
from tutelage.core import advantages, baselines, groups, kl, shaping, surrogates, turns

PIECES: dict[Any, tuple[type, ...]] = {
    advantages.Advantage: (
        advantages.TotalReturn,
        advantages.RewardToGo,
        advantages.ValueBaseline,
        advantages.Gae,
        advantages.TemporalDifference,
        advantages.NStep,
        advantages.ActionValue,
        groups.Group,
        groups.BestOfGroup,
        groups.Greedy,
        turns.TurnGroup,
        turns.TurnRewardGroup,
        turns.TurnSamples,
    ),
    baselines.Baseline: (
        baselines.NoBaseline,
        baselines.BatchMean,
        baselines.MovingAverage,
        baselines.MinimumVariance,
        baselines.TimeDependent,
        baselines.LeaveOneOut,
    ),
    surrogates.Surrogate: (
        surrogates.ScoreFunction,
        surrogates.ImportanceWeighted,
        surrogates.TrajectoryWeighted,
        surrogates.Clipped,
        surrogates.KlPenalised,
        surrogates.SequenceClipped,
        surrogates.Cispo,
    ),
    kl.Controller: (kl.Fixed, kl.Adaptive, kl.Doubling),
    shaping.Shaping: (shaping.ScoreShaping,),
}
"""Classes accepted by each open slot, by name; any other callable can be given as `module:NAME`."""


@dataclass
class _Draft:
    """Mutable class and settings of a piece during overrides."""

    cls: type
    values: dict[str, Any]

    @classmethod
    def of(cls, piece: Any) -> "_Draft":
        return cls(type(piece), {f.name: drafted(getattr(piece, f.name)) for f in fields(piece)})

    def built(self) -> Any:
        values = self.values.items()
        return self.cls(**{name: value.built() if isinstance(value, _Draft) else value for name, value in values})


def override(recipe: Recipe, assignments: Sequence[str]) -> Recipe:
    """The recipe with `path=value` assignments applied; later ones take precedence.

    A value is a number, true or false, none, a literal of the slot, the class name of a piece (with its defaults), or
    `module:NAME` for a custom piece. Raises TutelageError for an invalid path or value, listing valid ones, and for an
    inconsistent recipe.
    """
    draft = _Draft.of(recipe)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip() or not text.strip():
            raise TutelageError(f"{assignment!r} is not an assignment; write it as surrogate.low=0.1.")
        _assign(draft, path.strip(), text.strip())
    try:
        result = draft.built()
    except ValueError as error:
        raise TutelageError(f"{recipe.name}: {error}") from error
    assert isinstance(result, Recipe)
    return result


def drafted(value: Any) -> Any:
    """A draft of a piece; other values unchanged."""
    return _Draft.of(value) if is_dataclass(value) and not isinstance(value, type) else value


def _assign(draft: _Draft, path: str, text: str) -> None:
    *parents, last = path.split(".")
    done: list[str] = []
    for name in parents:
        _check_name(draft, name, done)
        done.append(name)
        inner = draft.values[name]
        if not isinstance(inner, _Draft):
            place, choices = ".".join(done), _choices(get_type_hints(draft.cls)[name])
            hint = f"; choose one first: {place}={'|'.join(choices)}" if choices else ""
            raise TutelageError(f"{path}: {place} is {'none' if inner is None else inner} and has no settings{hint}.")
        draft = inner
    _check_name(draft, last, done)
    draft.values[last] = _read(text, get_type_hints(draft.cls)[last], path)


def _check_name(draft: _Draft, name: str, done: list[str]) -> None:
    if name in draft.values:
        return
    place = ".".join([*done, name])
    names, guess = ", ".join(draft.values) or "nothing to set", did_you_mean(name, draft.values)
    raise TutelageError(f"there is no {place}{guess} {draft.cls.__name__} has {names}.")


def _read(text: str, hint: Any, path: str) -> Any:
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    choices = _choices(hint)
    if types.NoneType in members and text.lower() in ("none", "null"):
        return None
    if text in choices:
        return _Draft.of(choices[text]())
    if ":" in text and choices:
        piece = value_named(text)
        return drafted(piece() if isinstance(piece, type) else piece)
    for member in members:
        value = _plain(text, member)
        if value is not None:
            return value
    raise TutelageError(f"{path}={text}: expected {' or '.join(_expected(members, choices))}.")


def _plain(text: str, hint: Any) -> bool | int | float | str | None:
    if get_origin(hint) is Literal:
        return text if text in get_args(hint) else None
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower())
    if hint in (int, float):
        try:
            number = int(text) if hint is int else float(text)
        except ValueError:
            return None
        return number if math.isfinite(number) else None
    return text if hint is str else None


def _choices(hint: Any) -> dict[str, type]:
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    choices: list[type] = []
    for member in members:
        if member in PIECES:
            choices += PIECES[member]
        elif isinstance(member, type) and is_dataclass(member):
            choices.append(member)
    return {cls.__name__: cls for cls in choices}


def _expected(members: tuple[Any, ...], choices: dict[str, type]) -> list[str]:
    words = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}
    expected = [words[m] for m in members if m in words]
    expected += [" or ".join(get_args(m)) for m in members if get_origin(m) is Literal]
    expected += ["none"] if types.NoneType in members else []
    return expected + ([f"one of {', '.join(choices)} or module:NAME"] if choices else [])
