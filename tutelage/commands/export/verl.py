"""Translation of an `improve` run to verl's PPO trainer (`verl.trainer.main_ppo`, verl 0.9)."""

from tutelage.algorithms.recipe import Recipe
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
from tutelage.core.groups import Greedy, Group
from tutelage.core.reduce import Reduce
from tutelage.core.surrogates import Cispo, Clipped, ScoreFunction, SequenceClipped
from tutelage.data.records import Prompt, texts_only
from tutelage.rewards.single_score import prompt_text

NAME = "verl"
KL = {"k1": "kl", "k2": "mse", "mse": "mse", "k3": "low_var_kl", "abs": "abs"}
"""Names of KL estimators, ours to verl's."""
REDUCE: dict[Reduce, str] = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "sequence_sum": "seq-mean-token-sum",
    "fixed_length": "seq-mean-token-sum-norm",
}
ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


REWARD = '''"""The reward of the run, for verl: custom_reward_function."""

from functools import cache

from tutelage.rewards.single_score import ExportedReward

reward = cache(lambda: ExportedReward({arguments}))


def compute_score(data_source, solution_str, ground_truth, extra_info):
    return reward()(extra_info["prompt"], solution_str)
'''


def verl(recipe: Recipe, export: ExportSettings, prompts: PromptSizes, reward_model: str | None) -> Translation:
    """Return the verl settings for a recipe and a run over prompts of these sizes.

    `reward_model` is the folder of the reward model if it is the whole reward. Raises TutelageError for a choice
    without a counterpart in verl.
    """
    refuse_what_none_has(recipe, NAME)
    update = gradient_steps(recipe, NAME)
    differences = run_differences(recipe, export, NAME)
    settings: dict[str, Value] = {
        "data.train_files": OwnFile("prompts.jsonl"),
        "data.val_files": OwnFile("prompts.jsonl"),
        "data.train_batch_size": export.batch_size,
        "data.max_prompt_length": prompts.longest,
        "data.max_response_length": export.sampling.max_new_tokens,
        "data.seed": export.seed,
        "actor_rollout_ref.model.path": export.model.path,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.n": recipe.samples,
        f"{ROLLOUT}.temperature": export.sampling.temperature,
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_epochs": update.epochs,
        f"{ACTOR}.ppo_mini_batch_size": minibatch(export.batch_size, update.minibatches),
        f"{ACTOR}.loss_agg_mode": REDUCE[recipe.reduce],
        f"{ACTOR}.entropy_coeff": float(recipe.entropy),  # type: ignore[arg-type]
        "trainer.total_training_steps": export.steps,
        "trainer.total_epochs": export.steps,
        "trainer.nnodes": export.nodes,
        "trainer.n_gpus_per_node": min(export.gpus, export.gpus_per_node),
        "trainer.project_name": "tutelage",
        "trainer.experiment_name": recipe.name,
        "trainer.default_local_dir": OwnFile("checkpoints"),
        "trainer.logger": ("console",),
        "trainer.val_before_train": False,
        "trainer.save_freq": export.checkpoints.every or -1,
    }
    if recipe.reduce == "fixed_length":
        settings[f"{ACTOR}.loss_scale_factor"] = export.sampling.max_new_tokens
    settings |= _advantage(recipe) | _surrogate(recipe) | _penalty(recipe)
    settings |= _optimiser(export, ACTOR, export.optimiser.peak, differences)
    settings |= _adapters(export) | _critic(recipe, export, differences)
    settings |= _reward(reward_model)
    if recipe.dynamic_sampling:
        settings["algorithm.filter_groups.enable"] = True
        settings["algorithm.filter_groups.metric"] = "reward"
        settings["algorithm.filter_groups.max_num_gen_batches"] = recipe.dynamic_sampling
    if score_shaping(recipe).overlong is not None:
        differences.append("Completions near the limit are not penalised: shaping.overlong is not exported.")
    return Translation(settings, tuple(differences))


def _advantage(recipe: Recipe) -> Settings:
    match recipe.advantage:
        case Gae(lam=float(lam), gamma=gamma, value_lam=None, whiten=True):
            return {"algorithm.adv_estimator": "gae", "algorithm.lam": lam, "algorithm.gamma": gamma}
        case Group(standardise=True, whiten=False):
            return {"algorithm.adv_estimator": "grpo", "algorithm.norm_adv_by_std_in_grpo": True}
        case Group(leave_one_out=True, whiten=False):
            return {"algorithm.adv_estimator": "rloo"}
        case Group(leave_one_out=False, standardise=False, whiten=True):
            return {"algorithm.adv_estimator": "reinforce_plus_plus_baseline"}
        case Group(leave_one_out=False, standardise=False, whiten=False):
            return {"algorithm.adv_estimator": "grpo", "algorithm.norm_adv_by_std_in_grpo": False}
        case RewardToGo(baseline=NoBaseline(), gamma=gamma, whiten=True):
            return {"algorithm.adv_estimator": "reinforce_plus_plus", "algorithm.gamma": gamma}
        case Greedy():
            return {"algorithm.adv_estimator": "remax"}
    raise no_counterpart(recipe, f"the advantage {recipe.advantage}", NAME)


def _surrogate(recipe: Recipe) -> Settings:
    update = recipe.update
    match recipe.surrogate:
        case Clipped(low=low, high=high, dual=dual):
            return _clip("vanilla", low, high) | {f"{ACTOR}.clip_ratio_c": dual or UNBOUNDED}
        case SequenceClipped(low=low, high=high, length_normalised=True):
            return _clip("gspo", low, high)
        case Cispo(cap=cap):  # the ratio between 0 and the cap
            return _clip("cispo", 1.0, cap - 1.0)
        case ScoreFunction() if update.steps == 1:  # type: ignore[union-attr]  # the ratio is 1, and nothing is clipped
            return _clip("vanilla", 0.2, 0.2)
    raise no_counterpart(recipe, f"the surrogate {recipe.surrogate}", NAME)


def _clip(mode: str, low: float, high: float) -> Settings:
    """Return a policy loss with the bounds of its ratio."""
    return {
        f"{ACTOR}.policy_loss.loss_mode": mode,
        f"{ACTOR}.clip_ratio": low,
        f"{ACTOR}.clip_ratio_low": low,
        f"{ACTOR}.clip_ratio_high": high,
    }


def _penalty(recipe: Recipe) -> Settings:
    penalty = recipe.penalty
    if penalty is None:
        return {"algorithm.use_kl_in_reward": False, f"{ACTOR}.use_kl_loss": False}
    if penalty.where == "reward":
        return {
            "algorithm.use_kl_in_reward": True,
            f"{ACTOR}.use_kl_loss": False,
            "algorithm.kl_penalty": KL[penalty.kind],
            "algorithm.kl_ctrl.type": "fixed",
            "algorithm.kl_ctrl.kl_coef": penalty.coef,
        }
    return {
        "algorithm.use_kl_in_reward": False,
        f"{ACTOR}.use_kl_loss": True,
        f"{ACTOR}.kl_loss_type": KL[penalty.kind],
        f"{ACTOR}.kl_loss_coef": penalty.coef,
    }


def _optimiser(settings: ExportSettings, owner: str, rate: float, differences: list[str]) -> Settings:
    optimiser = settings.optimiser
    schedule = optimiser.schedule
    if schedule == "linear" and owner == ACTOR:
        differences.append("The learning rate stays constant after its warm-up: verl has no linear decay.")
    steps = {"lr_warmup_steps": int(optimiser.warmup)}
    share = {"lr_warmup_steps_ratio": optimiser.warmup}
    values: Settings = {
        "lr": rate,
        "betas": tuple(optimiser.betas),
        "weight_decay": optimiser.weight_decay,
        "lr_scheduler_type": "cosine" if schedule == "cosine" else "constant",
        "clip_grad": min(optimiser.max_norm, UNBOUNDED),
        **(steps if optimiser.warmup >= 1 else share),
    }
    return {f"{owner}.optim.{name}": value for name, value in values.items()} | {
        f"{owner}.grad_clip": min(optimiser.max_norm, UNBOUNDED)
    }


def _adapters(settings: ExportSettings) -> Settings:
    if not settings.lora.rank:
        return {}
    targets = settings.lora.targets
    return {
        "actor_rollout_ref.model.lora_rank": settings.lora.rank,
        "actor_rollout_ref.model.lora_alpha": round(settings.lora.alpha),
        "actor_rollout_ref.model.target_modules": "all-linear" if targets == "auto" else tuple(targets.split(",")),
        f"{ROLLOUT}.load_format": "safetensors",
    }


def _critic(recipe: Recipe, settings: ExportSettings, differences: list[str]) -> Settings:
    critic = recipe.critic
    if critic is None:
        return {}
    begins = settings.model.path if settings.critic == "trunk" else settings.critic_source
    own = _optimiser(settings, "critic", settings.critic_lr or settings.optimiser.peak, differences)
    return dict(own) | {
        "critic.model.path": begins,
        "critic.cliprange_value": critic.clip or UNBOUNDED,
        "trainer.critic_warmup": critic.warmup,
    }


def _reward(reward_model: str | None) -> Settings:
    if reward_model is None:
        return {
            "reward.custom_reward_function.path": OwnFile("reward.py"),
            "reward.custom_reward_function.name": "compute_score",
        }
    return {
        "reward.reward_model.enable": True,
        "reward.reward_model.model_path": reward_model,
        "reward.reward_model.rollout.name": "vllm",
        "reward.reward_model.rollout.tensor_model_parallel_size": 1,
    }


def _row(number: int, prompt: Prompt) -> dict[str, object]:
    return {
        "data_source": "tutelage",
        "prompt": texts_only(prompt.messages, "verl"),
        "ability": "",
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": number, "prompt": prompt_text(prompt)},
    }


def _words(settings: Settings) -> list[str]:
    """Return settings as Hydra overrides."""
    return [f"{name}={shell_word(value)}" for name, value in settings.items()]


VERL = Trainer("verl.trainer.main_ppo", verl, _row, REWARD, _words)
