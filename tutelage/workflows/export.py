"""A run of `improve` written down for a trainer of clusters: prompts, reward and launch script."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.registry import recipe_named
from tutelage.config.files import write_atomically
from tutelage.core.shaping import ScoreShaping
from tutelage.data.chat import has_template
from tutelage.data.formats import load_prompts
from tutelage.data.records import Prompt
from tutelage.errors import TutelageError
from tutelage.models.backbone import is_adapter, load_tokenizer
from tutelage.models.gguf import model_folder
from tutelage.rewards.columns import require_columns
from tutelage.rewards.exported import prompt_text, refuse_groups
from tutelage.rewards.names import names_model, split_weight
from tutelage.rollout.prompts import encode_prompts
from tutelage.workflows.calling import workflow
from tutelage.workflows.settings.export import ExportSettings
from tutelage.workflows.trainers.openrlhf import openrlhf
from tutelage.workflows.trainers.translation import (
    Settings,
    Translation,
    score_shaping,
    shell_word,
)
from tutelage.workflows.trainers.verl import verl

PROMPTS, REWARD, LAUNCH, DIFFERENCES = "prompts.jsonl", "reward.py", "launch.sh", "differences.txt"
"""The files of an exported folder."""

VERL_REWARD = '''"""The reward of the run, for verl: custom_reward_function."""

from functools import cache

from tutelage.rewards.exported import ExportedReward

reward = cache(lambda: ExportedReward({arguments}))


def compute_score(data_source, solution_str, ground_truth, extra_info):
    return reward()(extra_info["prompt"], solution_str)
'''

OPENRLHF_REWARD = '''"""The reward of the run, for OpenRLHF: --reward.remote_url."""

from functools import cache

from tutelage.models.backbone import load_tokenizer
from tutelage.rewards.exported import ExportedReward

reward = cache(lambda: ExportedReward({arguments}))
tokenizer = cache(lambda: load_tokenizer({model}))


def answer(query, prompt):
    """What follows the prompt in the text of prompt and answer, without special tokens."""
    _, found, rest = query.rpartition(prompt)
    if not found:
        raise ValueError(f"the text {{query[:80]!r}} does not hold its prompt {{prompt[:80]!r}}")
    for token in tokenizer().all_special_tokens:
        rest = rest.replace(token, "")
    return rest


def reward_func(queries, prompts, labels):  # OpenRLHF asks for one answer at a time
    (query,), (prompt,), (label,) = queries, prompts, labels
    score = reward()(label, answer(query, prompt))
    return {{"rewards": score, "scores": score}}
'''


@dataclass(frozen=True)
class ExportResult:
    """The folder that was written, its launch script, and in sentences what the trainer computes otherwise."""

    folder: Path
    launch: Path
    differences: tuple[str, ...]


@workflow(ExportSettings)
def export(settings: ExportSettings) -> ExportResult:
    """Write a run of `improve` for verl or OpenRLHF into `settings.out`.

    prompts.jsonl      the prompts in the trainer's format, with their own columns
    reward.py          the reward, where it is more than one reward model
    launch.sh          the trainer with all settings; words behind it are further settings
    differences.txt    what the trainer computes otherwise

    Nothing is trained and no weights are read. Raises TutelageError for a recipe with a choice that the trainer does
    not have, and for a model that the trainer cannot load.
    """
    recipe = override(recipe_named(settings.recipe), settings.set)
    model = _model(settings)
    loaded = load_prompts(settings.prompts)
    prompts = loaded.records
    require_columns(settings.reward, loaded)
    refuse_groups(settings.reward)
    tokenizer = load_tokenizer(model)
    if not has_template(tokenizer):
        raise TutelageError(
            f"The tokenizer of {settings.model.path} has no chat template, by which {settings.to} writes prompts."
        )
    longest = max(len(prompt.tokens) for prompt in encode_prompts(prompts, tokenizer))
    given = _with_whole_paths(settings, model)
    reward_model = _sole_reward_model(recipe, given)
    if settings.to == "verl":
        translation = verl(recipe, given, longest, reward_model)
    else:
        translation = openrlhf(recipe, given, len(prompts), longest, reward_model)
    return _write(recipe, given, prompts, translation, reward_model)


def _model(settings: ExportSettings) -> str:
    """The folder or hub name of the model. Raises TutelageError for an adapter, which the trainers do not continue."""
    folder = model_folder(settings.model.path)
    if is_adapter(folder):
        raise TutelageError(
            f"{settings.model.path!r} is an adapter, which {settings.to} cannot go on with: save the whole model "
            "(train it with --lora.rank 0, or merge it with peft's merge_and_unload), and export that."
        )
    return _whole_path(folder)


def _whole_path(name: str) -> str:
    """The absolute path of a folder that is there; other names, such as those of a hub, as they are."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _with_whole_paths(settings: ExportSettings, model: str) -> ExportSettings:
    return replace(
        settings,
        model=replace(settings.model, path=model),
        critic_from=_whole_path(settings.critic_from) if settings.critic_from else "",
        reward=tuple(_reward_with_whole_path(name) for name in settings.reward),
    )


def _reward_with_whole_path(given: str) -> str:
    """The name of a reward, where the folder of a reward model or the file of a judge has its whole path."""
    name, _ = split_weight(given)
    kind, _, file = name.partition(":")
    whole = name
    if names_model(name):
        whole = _whole_path(name)
    elif kind == "judge":
        whole = f"judge:{_whole_path(file)}"
    return whole + given.removeprefix(name)


def _sole_reward_model(recipe: Recipe, settings: ExportSettings) -> str | None:
    """The folder of the reward model where its score, as it is, is the whole reward; else None."""
    shaping = score_shaping(recipe) if isinstance(recipe.shaping, ScoreShaping) else None
    as_it_is = shaping is not None and shaping.scale == 1.0 and shaping.clip is None
    if len(settings.reward) == 1 and as_it_is:
        name, weight = split_weight(settings.reward[0])
        if weight is None and names_model(name):
            return name
    return None


def _write(
    recipe: Recipe,
    settings: ExportSettings,
    prompts: Sequence[Prompt],
    translation: Translation,
    reward_model: str | None,
) -> ExportResult:
    folder = settings.out
    folder.mkdir(parents=True, exist_ok=True)
    row = _verl_row if settings.to == "verl" else _openrlhf_row
    lines = (json.dumps(row(number, prompt), ensure_ascii=False) for number, prompt in enumerate(prompts))
    write_atomically(folder / PROMPTS, "".join(f"{line}\n" for line in lines))
    if reward_model is None:
        write_atomically(folder / REWARD, _reward_file(recipe, settings))
    write_atomically(folder / LAUNCH, _launch(settings.to, translation.settings))
    (folder / LAUNCH).chmod(0o755)
    write_atomically(folder / DIFFERENCES, "".join(f"{line}\n" for line in translation.differences))
    return ExportResult(folder, folder / LAUNCH, translation.differences)


def _verl_row(number: int, prompt: Prompt) -> dict[str, object]:
    return {
        "data_source": "tutelage",
        "prompt": [asdict(message) for message in prompt.messages],
        "ability": "",
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": number, "prompt": prompt_text(prompt)},
    }


def _openrlhf_row(number: int, prompt: Prompt) -> dict[str, object]:
    return {"input": [asdict(message) for message in prompt.messages], "label": prompt_text(prompt)}


def _reward_file(recipe: Recipe, settings: ExportSettings) -> str:
    shaping = score_shaping(recipe)
    model = repr(settings.model.path)
    arguments = f"{list(settings.reward)!r}, {model}, scale={shaping.scale!r}, clip={shaping.clip!r}"
    text = VERL_REWARD if settings.to == "verl" else OPENRLHF_REWARD
    return text.format(arguments=arguments, model=model)


def _launch(trainer: str, settings: Settings) -> str:
    if trainer == "verl":
        program, words = "verl.trainer.main_ppo", [f"{name}={shell_word(v)}" for name, v in settings.items()]
    else:
        program, words = "openrlhf.cli.train_ppo_ray", openrlhf_words(settings)
    lines = " \\\n    ".join([f"python3 -m {program}", *words, '"$@"'])
    return (
        "#!/usr/bin/env bash\n"
        "# Several machines: start Ray on each (ray start --head, ray start --address HEAD:6379), then this on one.\n"
        f'set -euo pipefail\nHERE=$(cd "$(dirname "$0")" && pwd)\n{lines}\n'
    )


def openrlhf_words(settings: Settings) -> list[str]:
    """Settings as flags: switches by their name alone, several values one after another, None left out."""
    words = []
    for name, value in settings.items():
        match value:
            case None | False:
                continue
            case True:
                words.append(f"--{name}")
            case tuple():
                words.append(" ".join([f"--{name}", *map(shell_word, value)]))
            case _:
                words.append(f"--{name} {shell_word(value)}")
    return words
