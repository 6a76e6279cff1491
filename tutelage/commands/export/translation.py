"""A run in the settings of another trainer, and what that trainer computes otherwise."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.slots import EXACT, GradientSteps
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.export.settings import ExportSettings
from tutelage.core.shaping import ScoreShaping
from tutelage.data.records import Prompt

UNBOUNDED = 1e9
"""What a bound that a recipe has not is set to, where a trainer always has one."""


@dataclass(frozen=True)
class OwnFile:
    """A file of the exported folder, by its name in it."""

    name: str


Value: TypeAlias = str | int | float | bool | OwnFile | tuple[str | float, ...] | None
Settings: TypeAlias = dict[str, Value]


@dataclass(frozen=True)
class Translation:
    """The settings of a trainer by name, and in sentences where its run differs from that of `improve`."""

    settings: Settings
    differences: tuple[str, ...]


@dataclass(frozen=True)
class PromptSizes:
    """How many prompts a run has, and the tokens of the longest."""

    count: int
    longest: int


@dataclass(frozen=True)
class Trainer:
    """What an export for a trainer consists of.

    `translate` gives the settings for a recipe, a run over prompts of such sizes, and the folder of the reward model
    where it is the whole reward (else None). `row` is the line of a prompt, by its number. `reward` is the text of the
    file of a reward, with the places {arguments} and {model}. `program` is the module that is started, and `words` are
    its settings as words of a shell script.
    """

    program: str
    translate: Callable[[Recipe, ExportSettings, PromptSizes, str | None], Translation]
    row: Callable[[int, Prompt], dict[str, object]]
    reward: str
    words: Callable[[Settings], list[str]]


def gradient_steps(recipe: Recipe, trainer: str) -> GradientSteps:
    """The update of a recipe. Raises TutelageError for one that another trainer does not have."""
    if not isinstance(recipe.update, GradientSteps):
        raise no_counterpart(recipe, f"its update, {type(recipe.update).__name__}", trainer)
    if recipe.update.max_kl is not None:
        raise no_counterpart(recipe, "update.max_kl, which ends the passes early", trainer)
    return recipe.update


def refuse_what_none_has(recipe: Recipe, trainer: str) -> None:
    """Raise TutelageError for choices of a recipe that exist in none of the trainers."""
    if recipe.ptx:
        raise no_counterpart(recipe, "ptx, the loss on pretraining text", trainer)
    if not isinstance(recipe.entropy, float | int):
        raise no_counterpart(recipe, "a schedule of the entropy coefficient", trainer)
    if not isinstance(recipe.shaping, ScoreShaping) or recipe.shaping.normalise != "none":
        raise no_counterpart(recipe, "a shaping that follows the scores of the run", trainer)
    if recipe.penalty is not None and recipe.penalty.kind == EXACT:
        raise no_counterpart(recipe, "the exact KL over the vocabulary", trainer)


def score_shaping(recipe: Recipe) -> ScoreShaping:
    """The shaping of a recipe that `refuse_what_none_has` let through."""
    assert isinstance(recipe.shaping, ScoreShaping)
    return recipe.shaping


def _shaping_differences(recipe: Recipe) -> list[str]:
    """What becomes of the part of a recipe's shaping that looks at the end of an answer. Its scale and its clip belong
    to the exported reward."""
    shaping = score_shaping(recipe)
    if shaping.missing_end is None and not shaping.missing_end_penalty:
        return []
    return [
        "An answer that is cut at the limit keeps the reward's score: shaping.missing_end is not exported."
    ]


def run_differences(recipe: Recipe, given: ExportSettings, trainer: str) -> list[str]:
    """What every trainer does otherwise for lack of a counterpart in the run's own settings."""
    told = _shaping_differences(recipe)
    alpha = given.lora.alpha
    if given.lora.rank and alpha != int(alpha):
        told.append(f"{trainer} takes whole numbers for lora.alpha: {alpha:g} became {round(alpha)}.")
    if recipe.critic is not None and given.critic == "trunk":
        told.append(
            f"The values come from a network of their own: {trainer} has no value head on the policy's trunk."
        )
    return told


def minibatch(batch_size: int, minibatches: int) -> int:
    """Prompts of one optimiser step. Raises TutelageError where a batch cannot be divided evenly."""
    if batch_size % minibatches:
        raise TutelageError(
            f"--batch-size {batch_size} cannot be divided into {counted(minibatches, 'minibatch')} of equal size, "
            f"which other trainers want: give a multiple of {minibatches}."
        )
    return batch_size // minibatches


def no_counterpart(recipe: Recipe, what: str, trainer: str) -> TutelageError:
    """The error of a recipe with a choice that `trainer` does not have."""
    return TutelageError(
        f"{trainer} has no counterpart of {what}, a choice of the recipe {recipe.name}. Change it with --set, take "
        "another recipe (grpo and ppo have one in every trainer), or train with improve itself."
    )


def shell_word(value: Value) -> str:
    """A value as a word of a shell script in which $HERE is the exported folder."""
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
