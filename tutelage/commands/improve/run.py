"""Reinforcement learning: maximise the expected score of a policy's own completions."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import NaturalStep, Recipe, remarks
from tutelage.algorithms.recipe_state import restored_state
from tutelage.algorithms.registry import recipe_named
from tutelage.base.errors import TutelageError
from tutelage.commands.calls import workflow
from tutelage.commands.generators import environment_of, episode_prompts, playing, training_generator
from tutelage.commands.improve.first_steps import FirstSteps
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.layout import lay_out_beside, reward_beside, trained_policy
from tutelage.commands.results import ImproveResult
from tutelage.commands.runs import (
    announce,
    announce_judging,
    conclusion,
    fitting_prompts,
    open_training,
    remark,
    remark_batch,
    token_budget,
    write_samples,
)
from tutelage.commands.trust import Record, measure_first, trusted
from tutelage.data.formats import load_demonstrations
from tutelage.data.records import Demonstration, Prompt
from tutelage.engines.plans.token_budget import group_tokens
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.backbone import is_adapter
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.composite import no_reward
from tutelage.rewards.factory import make_reward, require_columns
from tutelage.rewards.reward import Reward
from tutelage.rewards.rubric import without_dropout
from tutelage.rewards.scores import reward_metrics
from tutelage.rollout.distributed import dealt_reward
from tutelage.rollout.generator import EncodedPrompt, encode_prompts, prompt_tokens
from tutelage.rollout.prefetch import Ahead, RolloutRequest
from tutelage.train.learner import Learner, Step
from tutelage.train.rl import improve as rl
from tutelage.train.rl.critic import (
    NetworkCritic,
    TrunkCritic,
    critic_network,
    gathered_to_save,
    make_critic,
    save_policy,
)
from tutelage.train.rl.rollouts import ENVIRONMENT, rollout_seed
from tutelage.train.rl.setup import RolloutSettings
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Loop, Monitor, Training, load_state, recipe_state
from tutelage.train.supervised.batches import Order, encode_demonstrations
from tutelage.train.supervised.language import PretrainingMix

if TYPE_CHECKING:
    from tutelage.rollout.environment import Environment


@workflow(ImproveSettings)
def improve(settings: ImproveSettings) -> ImproveResult:
    """Improve a policy against a reward by reinforcement learning: sample completions, score them, update, repeat.

    Writes a run directory at `settings.out`, with the final model in `model/`. With `resume=True` an unfinished run
    continues from its latest checkpoint, and a finished one returns its result.

    Raises:
        TutelageError: the settings, the prompts, the reward or the model cannot be used.
    """
    with prepare_improve(settings) as training:
        return training.finish()


@workflow(ImproveSettings)
def prepare_improve(settings: ImproveSettings) -> AbstractContextManager[Training[ImproveResult]]:
    """Open a reinforcement-learning run for iteration step by step; `improve` runs it to its end."""
    recipe = _recipe(settings)
    for line in remarks(recipe):
        remark(line)
    environment = environment_of(settings)
    loaded = announce(episode_prompts(settings.prompts, environment))
    rewards = (*settings.reward, *_watched(settings).values())
    require_columns(rewards, loaded)
    announce_judging(rewards, loaded.records, recipe.samples)
    prompts = loaded.records if environment is None else environment.offer(loaded.records)
    texts = announce(load_demonstrations(settings.ptx)).records if settings.ptx else ()
    trust = measure_first(settings, settings.out, lambda: make_reward(settings.reward, None, settings.model))
    start = partial(_training, settings, recipe, prompts, texts, trust, environment)
    return open_training(settings, ImproveResult, start, prompts, texts)


def _training(
    settings: ImproveSettings,
    recipe: Recipe,
    prompts: Sequence[Prompt],
    texts: Sequence[Demonstration],
    trust: Record,
    environment: "Environment | None",
    run: Run,
) -> Training[ImproveResult]:
    policy = trained_policy(settings, run, with_reference=True)
    encoded = encode_prompts(prompts, policy.tokenizer)
    fitting = fitting_prompts(policy, encoded, settings.sampling.max_new_tokens)
    remark_batch(settings.batch_size, len(fitting), "prompts")
    loop = _loop(settings, run, recipe, policy, fitting, _mix(settings, recipe, policy, texts), trust, environment)

    figures = {"recipe": str(recipe), "dropped": len(prompts) - len(fitting)}
    return Training(loop, conclusion(run, policy, ImproveResult, lambda: figures))


def _loop(
    settings: ImproveSettings,
    run: Run,
    recipe: Recipe,
    policy: Policy,
    prompts: Sequence[EncodedPrompt],
    mix: PretrainingMix | None,
    trust: Record,
    environment: "Environment | None",
) -> Loop:
    """Return the loop of the recipe, from the latest checkpoint of the run."""
    critic = _critic(settings, recipe, policy)
    learner = _learner(settings, policy, critic, run.ranks)
    extra = load_state(run, learner)
    watched = {
        name: dealt_reward(without_dropout(reward_beside(policy, [reward], settings.model)), run.ranks, policy.passes)
        for name, reward in _watched(settings).items()
    }
    networks = (policy, critic.model) if isinstance(critic, NetworkCritic) else (policy,)
    budget = token_budget(settings, run, *networks, group=_group(settings, policy, recipe, prompts))
    reward: Reward = no_reward
    if settings.reward:
        reward = trusted(reward_beside(policy, settings.reward, settings.model), trust, run)
    order = Order(prompts, settings.batch_size, settings.seed)
    steps = rl.improve(
        policy,
        training_generator(
            settings,
            policy,
            settings.sampling,
            run,
            _ahead(settings, recipe, order),
            partial(playing, environment, policy, [encoded.prompt for encoded in prompts]),
        ),
        order,
        dealt_reward(reward, run.ranks, policy.passes),
        recipe,
        learner,
        _rollout_settings(settings, budget, watched, mix),
        critic=critic,
        state=restored_state(recipe, extra["recipe"]) if extra else None,
    )
    return Loop(
        run=run,
        learner=learner,
        steps=steps,
        label=recipe.name,
        save=partial(save_policy, policy, critic),
        gathered=partial(gathered_to_save, policy, critic),
        extra_state=recipe_state,
        checkpoints=settings.checkpoints,
        show=("score/mean", "score/shaped", "kl/reference", "length/mean", "ended", "groups/dead", *watched),
        monitor=Monitor(_look(settings, run, recipe, reward, environment)),
    )


def _rollout_settings(
    settings: ImproveSettings, budget: Budget, watched: Mapping[str, Reward], mix: PretrainingMix | None
) -> RolloutSettings:
    return RolloutSettings(
        settings.sampling,
        budget,
        settings.seed,
        turns=settings.turns if settings.has_episodes else 1,
        continuous=settings.has_episodes and not (settings.deterministic or settings.rollouts),
        mismatch=settings.mismatched_by,
        mismatch_cap=settings.mismatch_cap,
        staleness=settings.staleness,
        logged_rewards=watched,
        mix=mix,
    )


def _group(settings: ImproveSettings, policy: Policy, recipe: Recipe, prompts: Sequence[EncodedPrompt]) -> int:
    """Tokens of a forward pass through the longest prompt and its responses at their limit; 0 for the plain engine,
    whose rows do not share their prompt on a CPU."""
    if policy.engine.name == "plain":
        return 0
    longest = max(len(prompt.tokens) for prompt in prompts)
    turns = settings.turns if settings.has_episodes else 1
    return group_tokens(longest, recipe.samples, turns * settings.sampling.max_new_tokens)


def _watched(settings: ImproveSettings) -> dict[str, str]:
    """Return the rewards that are logged but not trained on, by name."""
    parts = [name.partition("=") for name in settings.watch]
    return {name: reward for name, _, reward in parts}


def _look(
    settings: ImproveSettings, run: Run, recipe: Recipe, reward: Reward, environment: "Environment | None"
) -> Callable[[Step], dict[str, float]]:
    """Return the callback of a step: writes samples, remarks on the first steps, and returns the metrics of the reward
    and of the tools."""
    silent = () if environment is None or environment.pays else (ENVIRONMENT,)
    first = FirstSteps(recipe, settings.sampling, settings.steps, settings.optimiser.peak, silent)

    def look(step: Step) -> dict[str, float]:
        first.look(step)
        write_samples(run, step, settings.sample_every)
        metrics = reward_metrics(reward) | ({} if environment is None else environment.metrics())
        together = metrics or environment is not None  # on all ranks, also those that played no episode of the step
        return run.ranks.totals(metrics) if together else {}

    return look


def _ahead(settings: ImproveSettings, recipe: Recipe, order: Order[EncodedPrompt]) -> Ahead:
    """Return the generation schedule of rollouts ahead of training, matching the requests of `collect`."""

    def plan(step: int) -> RolloutRequest:
        seed = rollout_seed(settings.seed, step)
        return RolloutRequest(prompt_tokens(order(step)), recipe.samples, settings.sampling, seed)

    return Ahead(settings.staleness, settings.steps, plan)


def _recipe(settings: ImproveSettings) -> Recipe:
    recipe = override(recipe_named(settings.recipe), settings.set)
    if bool(recipe.ptx) != bool(settings.ptx):
        raise TutelageError(
            "--ptx names the text and --set ptx=... its weight; neither has an effect without the other."
        )
    if recipe.critic is None and (settings.critic_lr or settings.critic_from or settings.critic != "trunk"):
        raise TutelageError(
            f"The recipe {recipe.name!r} has no critic, so --critic, --critic-lr and --critic-from have no effect."
        )
    if settings.mismatched_by == "truncated" and getattr(recipe.surrogate, "per_response", False):
        raise TutelageError(
            f"{type(recipe.surrogate).__name__} weights a whole response by one ratio, but --mismatch truncated "
            "weights every token. Use --mismatch recompute, or a recipe with a ratio per token."
        )
    if settings.shard != "none" and isinstance(recipe.update, NaturalStep):
        raise TutelageError(
            f"The recipe {recipe.name!r} takes a natural step: it needs second derivatives, but sharded gradients "
            "(FSDP2) cannot be differentiated again. Omit --shard, or use a recipe with gradient steps, such as ppo."
        )
    return recipe


def _critic(settings: ImproveSettings, recipe: Recipe, policy: Policy) -> TrunkCritic | NetworkCritic | None:
    if recipe.critic is None:
        return None
    if settings.critic == "trunk":
        return make_critic(policy, "trunk", None, seed=settings.seed)
    path = settings.critic_source
    if is_adapter(path):
        raise TutelageError(f"{path!r} is an adapter; a critic network needs a whole model.")
    recomputes = settings.activation_checkpointing
    load = partial(critic_network, policy=policy, seed=settings.seed, checkpointing=recomputes)
    return NetworkCritic(lay_out_beside(policy, replace(settings.model, path=path), load))


def _learner(
    settings: ImproveSettings, policy: Policy, critic: TrunkCritic | NetworkCritic | None, ranks: Ranks
) -> Learner:
    groups = {"policy": policy.parameters()}
    if critic is not None:
        groups["critic"] = critic.parameters()
    rates = {"critic": settings.critic_lr} if settings.critic_lr else {}
    return Learner(groups, settings.optimiser, settings.steps, policy.total_norm, ranks=ranks, **rates)


def _mix(
    settings: ImproveSettings, recipe: Recipe, policy: Policy, texts: Sequence[Demonstration]
) -> PretrainingMix | None:
    if not texts:
        return None
    rows, _ = encode_demonstrations(texts, policy.tokenizer, policy.context or 1024)
    return PretrainingMix(policy, rows, settings.batch_size, recipe.ptx, settings.seed)
