"""Translation of an `improve` run to OpenRLHF's PPO trainer (`openrlhf.cli.train_ppo_ray`, OpenRLHF 0.11)."""

import math

from tutelage.algorithms.recipe import Recipe
from tutelage.base.nouns import counted
from tutelage.commands.export.settings import ExportSettings
from tutelage.commands.export.translation import (
    UNBOUNDED,
    OwnFile,
    PromptSizes,
    Settings,
    Trainer,
    Translation,
    Value,
    gradient_steps,
    minibatch,
    no_counterpart,
    refuse_what_none_has,
    run_differences,
    score_shaping,
    shell_word,
)
from tutelage.core.advantages import Gae, RewardToGo
from tutelage.core.baselines import NoBaseline
from tutelage.core.groups import Group
from tutelage.core.surrogates import Clipped, ScoreFunction, SequenceClipped
from tutelage.data.records import Prompt, texts_only
from tutelage.rewards.single_score import prompt_text

NAME = "OpenRLHF"
KL = {"k1": "k1", "k2": "k2", "mse": "k2", "k3": "k3"}
"""Names of KL estimators, ours to OpenRLHF's."""
REDUCE = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean"}


REWARD = '''"""The reward of the run, for OpenRLHF: --reward.remote_url."""

from functools import cache

from tutelage.models.backbone import load_tokenizer
from tutelage.rewards.single_score import ExportedReward

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


def openrlhf(recipe: Recipe, export: ExportSettings, prompts: PromptSizes, reward_model: str | None) -> Translation:
    """Return the OpenRLHF settings for a recipe and a run over prompts of these sizes.

    `reward_model` is the folder of the reward model if it is the whole reward. Raises TutelageError for a choice
    without a counterpart in OpenRLHF.
    """
    refuse_what_none_has(recipe, NAME)
    if recipe.dynamic_sampling:
        raise no_counterpart(recipe, "dynamic_sampling for scores of any range", NAME)
    if recipe.reduce not in REDUCE:
        raise no_counterpart(recipe, f"reduce={recipe.reduce} (only token_mean and sequence_mean)", NAME)
    update = gradient_steps(recipe, NAME)
    responses = minibatch(export.batch_size, update.minibatches) * recipe.samples
    limit = export.sampling.max_new_tokens
    differences = run_differences(recipe, export, NAME)
    passes = export.steps * export.batch_size / prompts.count
    if passes != int(passes):
        differences.append(
            f"The run goes {math.ceil(passes)} times through the {counted(prompts.count, 'prompt')}, where "
            f"{counted(export.steps, 'step')} of {export.batch_size} are {passes:.2f} times: OpenRLHF counts episodes."
        )
    settings: dict[str, Value] = {
        "actor.model_name_or_path": export.model.path,
        "actor.gradient_checkpointing_enable": True,
        "actor.policy_loss_type": "ppo",
        "actor.loss_agg_mode": REDUCE[recipe.reduce],
        "actor.entropy_coef": recipe.entropy or None,  # type: ignore[dict-item]
        "data.prompt_dataset": OwnFile("prompts.jsonl"),
        "data.input_key": "input",
        "data.label_key": "label",
        "data.apply_chat_template": True,
        "data.max_len": prompts.longest + limit,
        "rollout.max_new_tokens": limit,
        "rollout.temperature": export.sampling.temperature,
        "rollout.batch_size": export.batch_size,
        "rollout.n_samples_per_prompt": recipe.samples,
        "train.batch_size": responses,
        "train.max_epochs": update.epochs,
        "train.num_episodes": math.ceil(passes),
        "train.seed": export.seed,
        "train.colocate_all": True,
        "vllm.num_engines": export.gpus,
        "vllm.tensor_parallel_size": 1,
        "vllm.enable_sleep": True,
        "ds.enable_sleep": True,
        "ds.zero_stage": 3,
        "ckpt.output_dir": OwnFile("model"),
        "ckpt.path": OwnFile("checkpoints"),
        "ckpt.save_steps": export.checkpoints.every or -1,
    }
    settings |= _machines(export) | _advantage(recipe) | _surrogate(recipe) | _penalty(recipe, differences)
    settings |= _optimiser(export, "actor", export.optimiser.peak) | _adapters(export)
    settings |= _critic(recipe, export) | _reward(recipe, export, reward_model)
    return Translation(settings, tuple(differences))


def _machines(export: ExportSettings) -> Settings:
    each = min(export.gpus, export.gpus_per_node)
    settings: Settings = {}
    for model in ("actor", "ref", "critic", "reward"):
        settings |= {f"{model}.num_nodes": export.nodes, f"{model}.num_gpus_per_node": each}
    return settings


def _advantage(recipe: Recipe) -> Settings:
    name = "algo.advantage.estimator"
    match recipe.advantage:
        case Gae(lam=float(lam), gamma=gamma, value_lam=None, whiten=True):
            return {name: "gae", "algo.advantage.lambd": lam, "algo.advantage.gamma": gamma}
        case RewardToGo(baseline=NoBaseline(), gamma=gamma, whiten=True):
            return {name: "reinforce", "algo.advantage.gamma": gamma}
        case Group(leave_one_out=False, standardise=False, whiten=True):
            return {name: "reinforce_baseline"}
        case Group(leave_one_out=True, whiten=False):
            return {name: "rloo"}
        case Group(standardise=True, whiten=False):
            return {name: "group_norm"}
        case Group(leave_one_out=False, standardise=False, whiten=False):
            return {name: "dr_grpo"}
    raise no_counterpart(recipe, f"the advantage {recipe.advantage}", NAME)


def _surrogate(recipe: Recipe) -> Settings:
    match recipe.surrogate:
        case Clipped(low=low, high=high, dual=dual):
            return {"actor.eps_clip_low_high": (low, high), "actor.dual_clip": dual}
        case SequenceClipped(low=low, high=high, length_normalised=True):
            return {"actor.eps_clip_low_high": (low, high), "actor.policy_loss_type": "gspo"}
        case ScoreFunction() if recipe.update.steps == 1:  # type: ignore[union-attr]  # the ratio is 1: no clip
            return {"actor.eps_clip_low_high": (0.2, 0.2)}
    raise no_counterpart(recipe, f"the surrogate {recipe.surrogate}", NAME)


def _penalty(recipe: Recipe, differences: list[str]) -> Settings:
    penalty = recipe.penalty
    if penalty is None:
        return {"algo.kl.init_coef": 0.0}
    if penalty.kind not in KL:
        raise no_counterpart(recipe, f"penalty.kind={penalty.kind}", NAME)
    if penalty.where == "reward" and isinstance(recipe.advantage, Group):
        differences.append(
            "The KL is taken off after the responses of a prompt were compared: OpenRLHF compares their scores alone."
        )
    return {
        "algo.kl.init_coef": penalty.coef,
        "algo.kl.estimator": KL[penalty.kind],
        "algo.kl.use_loss": penalty.where == "loss",
    }


def _optimiser(settings: ExportSettings, owner: str, rate: float) -> Settings:
    optimiser = settings.optimiser
    schedules = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}
    warmup = optimiser.warmup
    return {
        f"{owner}.adam.lr": rate,
        f"{owner}.adam.betas": tuple(optimiser.betas),
        f"{owner}.adam.eps": optimiser.eps,
        f"{owner}.adam.weight_decay": optimiser.weight_decay,
        f"{owner}.lr_scheduler": schedules[optimiser.schedule],
        f"{owner}.lr_warmup_ratio": warmup if warmup < 1 else warmup / settings.steps,
        f"{owner}.max_norm": min(optimiser.max_norm, UNBOUNDED),
    }


def _adapters(settings: ExportSettings) -> Settings:
    if not settings.lora.rank:
        return {}
    targets = settings.lora.targets
    return {
        "ds.lora.rank": settings.lora.rank,
        "ds.lora.alpha": round(settings.lora.alpha),
        "ds.lora.target_modules": ("all-linear",) if targets == "auto" else tuple(targets.split(",")),
    }


def _critic(recipe: Recipe, settings: ExportSettings) -> Settings:
    critic = recipe.critic
    if critic is None:
        return {}
    return dict(_optimiser(settings, "critic", settings.critic_lr or settings.optimiser.peak)) | {
        "critic.model_name_or_path": settings.model.path if settings.critic == "trunk" else settings.critic_source,
        "critic.value_clip": critic.clip or UNBOUNDED,
        "critic.freezing_steps": critic.warmup if critic.warmup else None,
    }


def _reward(recipe: Recipe, export: ExportSettings, reward_model: str | None) -> Settings:
    settings: dict[str, Value] = {"reward.clip_range": (-UNBOUNDED, UNBOUNDED)}
    overlong = score_shaping(recipe).overlong
    if overlong is not None:
        settings["reward.overlong_buffer_len"] = overlong.buffer * export.sampling.max_new_tokens
        settings["reward.overlong_penalty_factor"] = overlong.penalty
    if reward_model is None:
        return settings | {"reward.remote_url": OwnFile("reward.py")}
    return settings | {"reward.model_name_or_path": reward_model}


def _row(number: int, prompt: Prompt) -> dict[str, object]:
    return {"input": texts_only(prompt.messages, "OpenRLHF"), "label": prompt_text(prompt)}


def _words(settings: Settings) -> list[str]:
    """Return settings as flags: switches by name only, several values in sequence, None omitted."""
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


OPENRLHF = Trainer("openrlhf.cli.train_ppo_ray", openrlhf, _row, REWARD, _words)
