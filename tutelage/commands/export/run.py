"""Export of an `improve` run for a cluster trainer (prompts, reward and launch script), and of a policy for llama.cpp
(one GGUF file with weights, tokenizer and chat template)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.registry import recipe_named
from tutelage.base import config
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.commands.calls import workflow
from tutelage.commands.export.openrlhf import OPENRLHF
from tutelage.commands.export.settings import ExportGgufSettings, ExportSettings
from tutelage.commands.export.translation import PromptSizes, Settings, Trainer, Translation, score_shaping
from tutelage.commands.export.verl import VERL
from tutelage.commands.runs import announce
from tutelage.core.shaping import ScoreShaping
from tutelage.data.chat_template import has_template
from tutelage.data.formats import load_prompts
from tutelage.data.records import Prompt
from tutelage.engines.network import inner
from tutelage.models.backbone import is_adapter, load_backbone, load_tokenizer
from tutelage.models.gguf_reader import model_folder
from tutelage.models.gguf_writer import write_gguf
from tutelage.models.heads import STEPS
from tutelage.rewards.factory import require_columns
from tutelage.rewards.names import names_model, split_fold, split_weight
from tutelage.rewards.single_score import refuse_groups
from tutelage.rollout.generator import encode_prompts

TRAINERS: Mapping[str, Trainer] = {"verl": VERL, "openrlhf": OPENRLHF}
"""Trainers by the value of `ExportSettings.to`."""
PROMPTS, REWARD, LAUNCH, DIFFERENCES = "prompts.jsonl", "reward.py", "launch.sh", "differences.txt"
"""Files of an exported folder."""


@dataclass(frozen=True)
class TrainerExport:
    """The exported folder, its launch script, and the differences of the trainer, in sentences."""

    folder: Path
    launch: Path
    differences: tuple[str, ...]


@workflow(ExportSettings)
def export(settings: ExportSettings) -> TrainerExport:
    """Export a run of `improve` for verl or OpenRLHF to `settings.out`.

        prompts.jsonl      the prompts in the trainer's format, with their own columns
        reward.py          the reward, unless it is a single reward model
        launch.sh          the trainer with all settings; arguments are further settings
        differences.txt    differences between the trainer and `improve`

    Nothing is trained and no weights are read. Raises TutelageError for a recipe with a choice that the trainer does
    not support, and for a model that the trainer cannot load.
    """
    recipe = override(recipe_named(settings.recipe), settings.set)
    model = _model(settings)
    loaded = announce(load_prompts(settings.prompts))
    prompts = loaded.records
    require_columns(settings.reward, loaded)
    refuse_groups(settings.reward)
    tokenizer = load_tokenizer(model)
    if not has_template(tokenizer):
        raise TutelageError(
            f"The tokenizer of {settings.model.path} has no chat template, which {settings.to} needs for prompts."
        )
    longest = max(len(prompt.tokens) for prompt in encode_prompts(prompts, tokenizer))
    absolute = _with_whole_paths(settings, model)
    reward_model = _sole_reward_model(recipe, absolute)
    trainer = TRAINERS[settings.to]
    translation = trainer.translate(recipe, absolute, PromptSizes(len(prompts), longest), reward_model)
    return _write(recipe, absolute, prompts, trainer, translation, reward_model)


@dataclass(frozen=True)
class ExportGgufResult:
    """The exported file."""

    file: Path
    size: int
    """Size in bytes."""
    parameters: int
    """Number of weights."""


@workflow(ExportGgufSettings)
def export_gguf(settings: ExportGgufSettings) -> ExportGgufResult:
    """Export a policy as the GGUF file `settings.out`; an adapter is merged into its base.

        tt.export_gguf(model="runs/ppo/model", out="policy.gguf", weights="q8_0")

    Raises:
        TutelageError: llama.cpp does not support this architecture, or would tokenise differently.
    """
    path = Path(settings.model).resolve() if Path(settings.model).exists() else Path(settings.model)
    name = path.parent.name if path.name == "model" else path.stem  # the `model` of a run is called after the run
    backbone = load_backbone(config.Model(settings.model, device="cpu"))
    model = inner(backbone.model)
    with phase("save"):
        write_gguf(model, backbone.tokenizer, settings.out, settings.weights, name=name)
    return ExportGgufResult(
        settings.out, settings.out.stat().st_size, sum(weight.numel() for weight in model.parameters())
    )


def _model(settings: ExportSettings) -> str:
    """Return the folder or hub name of the model. Raises TutelageError for an adapter, which the trainers cannot
    continue."""
    folder = model_folder(settings.model.path)
    if is_adapter(folder):
        raise TutelageError(
            f"{settings.model.path!r} is an adapter, which {settings.to} cannot continue: give a whole model, such as "
            "the model/ of a finished run, in which the adapter is merged."
        )
    return _whole_path(folder)


def _whole_path(name: str) -> str:
    """Return the absolute path of an existing folder; other names, such as hub names, unchanged."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _with_whole_paths(settings: ExportSettings, model: str) -> ExportSettings:
    return replace(
        settings,
        model=replace(settings.model, path=model),
        critic_from=_whole_path(settings.critic_from) if settings.critic_from else "",
        reward=tuple(_reward_with_whole_path(name) for name in settings.reward),
    )


def _reward_with_whole_path(reward: str) -> str:
    """Make the path in the name of a reward absolute, whether the folder of a reward model or the file of a judge."""
    name, _ = split_weight(reward)
    kind, _, file = name.partition(":")
    whole = name
    if names_model(name):
        folder, fold = split_fold(name)
        whole = f"{fold}:{_whole_path(folder)}" if fold else _whole_path(folder)
    elif kind == "judge":
        whole = f"judge:{_whole_path(file)}"
    return whole + reward.removeprefix(name)


def _sole_reward_model(recipe: Recipe, settings: ExportSettings) -> str | None:
    """Return the folder of the reward model if its unchanged score at the last token is the whole reward, else
    None."""
    shaping = score_shaping(recipe) if isinstance(recipe.shaping, ScoreShaping) else None
    as_it_is = shaping is not None and shaping.scale == 1.0 and shaping.clip is None
    if len(settings.reward) == 1 and as_it_is:
        name, weight = split_weight(settings.reward[0])
        if weight is None and names_model(name) and not (Path(split_fold(name)[0]) / STEPS).is_file():
            return name
    return None


def _write(
    recipe: Recipe,
    settings: ExportSettings,
    prompts: Sequence[Prompt],
    trainer: Trainer,
    translation: Translation,
    reward_model: str | None,
) -> TrainerExport:
    folder = settings.out
    folder.mkdir(parents=True, exist_ok=True)
    rows = (trainer.row(number, prompt) for number, prompt in enumerate(prompts))
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    write_atomically(folder / PROMPTS, "".join(f"{line}\n" for line in lines))
    if reward_model is None:
        shaping, model = score_shaping(recipe), repr(settings.model.path)
        arguments = f"{list(settings.reward)!r}, {model}, scale={shaping.scale!r}, clip={shaping.clip!r}"
        write_atomically(folder / REWARD, trainer.reward.format(arguments=arguments, model=model))
    write_atomically(folder / LAUNCH, _launch(trainer, translation.settings))
    (folder / LAUNCH).chmod(0o755)
    write_atomically(folder / DIFFERENCES, "".join(f"{line}\n" for line in translation.differences))
    return TrainerExport(folder, folder / LAUNCH, translation.differences)


def _launch(trainer: Trainer, settings: Settings) -> str:
    lines = " \\\n    ".join([f"python3 -m {trainer.program}", *trainer.words(settings), '"$@"'])
    return (
        "#!/usr/bin/env bash\n"
        "# Several machines: start Ray on each (ray start --head, ray start --address HEAD:6379), then this on one.\n"
        f'set -euo pipefail\nHERE=$(cd "$(dirname "$0")" && pwd)\n{lines}\n'
    )
