"""Translation of a run to another trainer, and the differences of that trainer."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.slots import EXACT, GradientSteps
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.export.settings import ExportSettings
from tutelage.core.kl import K3_RATIO, Fixed
from tutelage.core.shaping import ScoreShaping
from tutelage.data.records import Prompt

UNBOUNDED = 1e9
"""Value of a bound that a recipe does not have but a trainer requires."""


@dataclass(frozen=True)
class OwnFile:
    """File in the exported folder, by name."""

    name: str


Value: TypeAlias = str | int | float | bool | OwnFile | tuple[str | float, ...] | None
Settings: TypeAlias = dict[str, Value]


@dataclass(frozen=True)
class Translation:
    """Settings of a trainer by name, and differences from a run of `improve`, in sentences."""

    settings: Settings
    differences: tuple[str, ...]


@dataclass(frozen=True)
class PromptSizes:
    """Number of prompts of a run, and tokens of the longest."""

    count: int
    longest: int


@dataclass(frozen=True)
class Trainer:
    """Components of an export for a trainer.

    `translate` returns the settings for a recipe, a run over prompts of these sizes, and the folder of the reward model
    if it is the whole reward (else None). `row` formats a prompt, given its number. `reward` is the template of the
    reward file, with the placeholders {arguments} and {model}. `program` is the module to start, and `words` formats
    the settings as arguments of a shell script.
    """

    program: str
    translate: Callable[[Recipe, ExportSettings, PromptSizes, str | None], Translation]
    row: Callable[[int, Prompt], dict[str, object]]
    reward: str
    words: Callable[[Settings], list[str]]


def gradient_steps(recipe: Recipe, trainer: str) -> GradientSteps:
    """Return the update of a recipe. Raises TutelageError for an update that another trainer does not support."""
    if not isinstance(recipe.update, GradientSteps):
        raise no_counterpart(recipe, f"its update, {type(recipe.update).__name__}", trainer)
    if recipe.update.max_kl is not None:
        raise no_counterpart(recipe, "update.max_kl, which ends the passes early", trainer)
    return recipe.update


def refuse_what_none_has(recipe: Recipe, trainer: str) -> None:
    """Raise TutelageError for choices of a recipe that no trainer supports."""
    if recipe.ptx:
        raise no_counterpart(recipe, "ptx, the loss on pretraining text", trainer)
    if not isinstance(recipe.entropy, float | int):
        raise no_counterpart(recipe, "a schedule of the entropy coefficient", trainer)
    if not isinstance(recipe.shaping, ScoreShaping) or recipe.shaping.normalise != "none":
        raise no_counterpart(recipe, "a shaping that depends on the scores of the run", trainer)
    if recipe.critic is not None and recipe.critic.bootstrap:
        raise no_counterpart(recipe, "critic.bootstrap", trainer)
    penalty = recipe.penalty
    if penalty is not None and not isinstance(penalty.controller, Fixed):
        what = f"penalty.controller={type(penalty.controller).__name__}, which counts the KL per response"
        raise no_counterpart(recipe, what, trainer)
    if penalty is not None and penalty.kind in (EXACT, K3_RATIO):
        raise no_counterpart(recipe, f"penalty.kind={penalty.kind}", trainer)


def score_shaping(recipe: Recipe) -> ScoreShaping:
    """Return the shaping of a recipe that passed `refuse_what_none_has`."""
    assert isinstance(recipe.shaping, ScoreShaping)
    return recipe.shaping


def run_differences(recipe: Recipe, settings: ExportSettings, trainer: str) -> list[str]:
    """Return the differences of every trainer for settings of the run without a counterpart."""
    differences, shaping = list[str](), score_shaping(recipe)
    if shaping.missing_end is not None or shaping.missing_end_penalty:  # scale and clip belong to the exported reward
        differences.append(
            "Completions that are cut at the limit keep the reward's score: shaping.missing_end is not exported."
        )
    alpha = settings.lora.alpha
    if settings.lora.rank and alpha != int(alpha):
        differences.append(f"{trainer} takes whole numbers for lora.alpha: {alpha:g} became {round(alpha)}.")
    if recipe.critic is not None and settings.critic == "trunk":
        differences.append(
            f"The values come from a separate network: {trainer} has no value head on the policy's trunk."
        )
    return differences


def minibatch(batch_size: int, minibatches: int) -> int:
    """Return the prompts per optimiser step. Raises TutelageError if a batch cannot be divided evenly."""
    if batch_size % minibatches:
        raise TutelageError(
            f"--batch-size {batch_size} cannot be divided into {counted(minibatches, 'minibatch')} of equal size, "
            f"which other trainers need: give a multiple of {minibatches}."
        )
    return batch_size // minibatches


def no_counterpart(recipe: Recipe, what: str, trainer: str) -> TutelageError:
    """Return the error for a recipe with a choice that `trainer` does not support."""
    return TutelageError(
        f"{trainer} has no counterpart of {what}, a choice of the recipe {recipe.name}. Change it with --set, use "
        "another recipe (every trainer supports grpo and ppo), or train with improve itself."
    )


def shell_word(value: Value) -> str:
    """Format a value as a word of a shell script in which $HERE is the exported folder."""
    match value:
        case OwnFile(name):
            return f'"$HERE"/{name}'
        case None:
            return "null"
        case tuple():
            return shlex.quote("[" + ",".join(map(str, value)) + "]")
        case bool():
            return str(value)
        case float():
            return f"{value:.12g}"
    return shlex.quote(str(value))
