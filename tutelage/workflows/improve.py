"""Reinforcement learning: raise the expected score of a policy's own answers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Recipe, remarks, restored_state
from tutelage.algorithms.registry import recipe_named
from tutelage.data.formats import load_demonstrations, load_prompts
from tutelage.data.records import Prompt
from tutelage.errors import TutelageError
from tutelage.models.backbone import is_adapter, load_backbone
from tutelage.models.policy import Policy
from tutelage.rewards.named import make_reward
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.prompts import EncodedPrompt, encode_prompts
from tutelage.train.learner import Learner, Step
from tutelage.train.rl import improve as rl
from tutelage.train.rl.critic import NetworkCritic, TrunkCritic, make_critic, save_policy
from tutelage.train.rl.mismatch import Mismatch
from tutelage.train.rl.mixing import PretrainingMix
from tutelage.train.rl.settings import RolloutSettings
from tutelage.train.run.drive import Loop, Training, Watch, load_state, recipe_state
from tutelage.train.run.folder import Run
from tutelage.train.supervised.batches import Order, encode_demonstrations
from tutelage.workflows.calling import workflow
from tutelage.workflows.results import ImproveResult
from tutelage.workflows.runs import finish_run, finished, open_run, remark, token_budget
from tutelage.workflows.settings.improve import ImproveSettings


@workflow(ImproveSettings)
def improve(settings: ImproveSettings) -> ImproveResult:
    """Improve a policy against a reward by reinforcement learning: sample answers, score them, update, repeat.

    Writes a run directory at `settings.out`, with the final model in `model/`. With `resume=True` an unfinished run
    goes on from its latest checkpoint, and a finished one returns its result at once.

    Raises:
        TutelageError: the settings, the prompts, the reward or the model cannot be used.
    """
    with prepare_improve(settings) as training:
        return training.finish()


@workflow(ImproveSettings)
@contextmanager
def prepare_improve(settings: ImproveSettings) -> Iterator[Training[ImproveResult]]:
    """A reinforcement-learning run, open and ready to be iterated over step by step; `improve` runs it to its end."""
    recipe = _recipe(settings)
    for line in remarks(recipe):
        remark(line)
    loaded = load_prompts(settings.prompts)
    remark(loaded.describe())
    with open_run(settings) as run:
        yield (
            finished(run, ImproveResult) if run.finished else _training(settings, run, recipe, loaded.records)
        )


def _training(
    settings: ImproveSettings, run: Run, recipe: Recipe, prompts: Sequence[Prompt]
) -> Training[ImproveResult]:
    policy = Policy(load_backbone(settings.model, settings.lora, seed=settings.seed))
    policy.freeze_reference()
    fitting = _fitting(settings, policy, prompts)
    loop = _loop(settings, run, recipe, policy, fitting)

    def conclude() -> ImproveResult:
        figures = {"recipe": str(recipe), "dropped": len(prompts) - len(fitting)}
        return ImproveResult(run.path, finish_run(run, policy.save_whole, figures))

    return Training(loop, conclude)


def _loop(
    settings: ImproveSettings, run: Run, recipe: Recipe, policy: Policy, prompts: Sequence[EncodedPrompt]
) -> Loop:
    """The loop of the recipe, from wherever the run was left."""
    critic = _critic(settings, recipe, policy)
    learner = _learner(settings, policy, critic)
    extra = load_state(run, learner)
    names = [name.partition("=") for name in settings.watch]
    watched = {name: make_reward([value], policy, settings.model) for name, _, value in names}
    networks = (policy, critic.model) if isinstance(critic, NetworkCritic) else (policy,)
    loop_settings = RolloutSettings(
        settings.sampling,
        token_budget(settings, run, *networks),
        settings.seed,
        mismatch=_mismatch(settings),
        mismatch_cap=settings.mismatch_cap,
        watch=watched,
        mix=_mix(settings, recipe, policy),
    )
    steps = rl.improve(
        policy,
        LocalGenerator(policy),
        Order(prompts, settings.batch_size, settings.seed),
        make_reward(settings.reward, policy, settings.model),
        recipe,
        learner,
        loop_settings,
        critic=critic,
        state=restored_state(recipe, extra["recipe"]) if extra else None,
    )
    return Loop(
        run=run,
        learner=learner,
        steps=steps,
        label=recipe.name,
        save=partial(save_policy, policy, critic),
        extra_state=recipe_state,
        checkpoints=settings.checkpoints,
        show=("score/mean", "kl/reference", "length/mean", *watched),
        watch=Watch(lambda step: _write_samples(run, step, settings.sample_every)),
    )


def _mismatch(settings: ImproveSettings) -> Mismatch | None:
    """What is done where sampler and trainer differ; None in float32, where they do not."""
    if settings.mismatch != "auto":
        return settings.mismatch
    return None if settings.model.dtype == "float32" else "recompute"


def _write_samples(run: Run, step: Step, every: int) -> dict[str, float]:
    """A few answers of every so many steps, to read; adds no metric."""
    if step.sample is not None and (step.index == 1 or step.index % max(1, every) == 0):
        rows = zip(step.texts[:4], step.sample.score[:4].tolist(), strict=True)
        run.samples(step.index, [{"prompt": p, "completion": c, "score": s} for (p, c), s in rows])
    return {}


def _recipe(settings: ImproveSettings) -> Recipe:
    recipe = override(recipe_named(settings.recipe), settings.set)
    if bool(recipe.ptx) != bool(settings.ptx):
        raise TutelageError(
            "--ptx names the text and --set ptx=... its weight; one without the other does nothing."
        )
    if recipe.critic is None and (settings.critic_lr or settings.critic_from or settings.critic != "trunk"):
        raise TutelageError(
            f"The recipe {recipe.name!r} has no critic, so --critic, --critic-lr and --critic-from do nothing."
        )
    if settings.mismatch == "truncated" and getattr(recipe.surrogate, "per_response", False):
        raise TutelageError(
            f"{type(recipe.surrogate).__name__} weighs a whole response by one ratio, and --mismatch truncated every "
            "token by its own. Use --mismatch recompute, or a recipe with a ratio per token."
        )
    return recipe


def _critic(settings: ImproveSettings, recipe: Recipe, policy: Policy) -> TrunkCritic | NetworkCritic | None:
    if recipe.critic is None:
        return None
    start = None
    if settings.critic == "network":
        folders = [name.partition("=")[0] for name in settings.reward if ":" not in name]
        path = settings.critic_from or (folders[0] if folders else settings.model.path)
        if is_adapter(path):
            raise TutelageError(f"{path!r} is an adapter; a critic network begins as a whole model.")
        start = replace(settings.model, path=path)
    return make_critic(policy, settings.critic, start, seed=settings.seed)


def _learner(
    settings: ImproveSettings, policy: Policy, critic: TrunkCritic | NetworkCritic | None
) -> Learner:
    groups = {"policy": policy.parameters()}
    if critic is not None:
        groups["critic"] = critic.parameters()
    rates = {"critic": settings.critic_lr} if settings.critic_lr else {}
    return Learner(groups, settings.optimiser, settings.steps, policy.total_norm, **rates)


def _fitting(settings: ImproveSettings, policy: Policy, prompts: Sequence[Prompt]) -> list[EncodedPrompt]:
    """The prompts that leave room for an answer, as tokens; a remark counts the others."""
    room = (policy.context or 1 << 30) - settings.sampling.max_new_tokens
    fitting = [each for each in encode_prompts(prompts, policy.tokenizer) if len(each.tokens) <= room]
    if not fitting:
        raise TutelageError(
            f"No prompt fits: the model has {policy.context} positions, and {settings.sampling.max_new_tokens} are "
            "kept for the answer. Set a smaller --sampling.max-new-tokens."
        )
    if len(fitting) < len(prompts):
        remark(f"{len(prompts) - len(fitting)} prompts are longer than {room} tokens and were left out.")
    return fitting


def _mix(settings: ImproveSettings, recipe: Recipe, policy: Policy) -> PretrainingMix | None:
    if not settings.ptx:
        return None
    records = load_demonstrations(settings.ptx).records
    rows, _ = encode_demonstrations(records, policy.tokenizer, policy.context or 1024)
    return PretrainingMix(policy, rows, settings.batch_size, recipe.ptx, settings.seed)
