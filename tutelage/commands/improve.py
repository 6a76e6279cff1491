"""`tutelage improve`: raise the expected score of a policy's own answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tutelage import config
from tutelage.config.limits import at_least
from tutelage.config.run import RunSettings
from tutelage.data.records import Prompt
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.algorithms.recipe import Recipe
    from tutelage.models.policy import Policy
    from tutelage.train.learner import Learner, Step
    from tutelage.train.rl.actor import Actor
    from tutelage.train.rl.improve import Question
    from tutelage.train.rl.mismatch import Mismatch
    from tutelage.train.rl.mixing import PretrainingMix
    from tutelage.train.run.folder import Run


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings):
    """Improve a policy against a reward by reinforcement learning: sample answers, score them, update, repeat."""

    model: config.Model
    prompts: str
    """Prompts to answer: a file or hub data set; any format of demonstrations or preferences serves too."""
    reward: tuple[str, ...]
    """What scores the answers: reward-model folders or module:function(completions) -> scores, each with an optional
    =weight; several add up."""
    recipe: str = "ppo"
    """The algorithm, as `tutelage recipes` lists them, or module:NAME of your own."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, such as penalty.coef=0.1 or surrogate.low=0.1."""
    steps: int = 100
    """Rollouts, each followed by the recipe's update."""
    batch_size: int = 64
    """Prompts of one rollout; the recipe says how many answers each gets."""
    sampling: config.Sampling = field(
        default_factory=lambda: config.Sampling(temperature=0.7, max_new_tokens=64)
    )
    lora: config.Lora = field(default_factory=config.Lora)
    optimiser: config.Optimiser = field(
        default_factory=lambda: config.Optimiser(lr=3e-6, eps=config.POLICY_EPS)
    )
    critic: Literal["trunk", "network"] = "trunk"
    """Where the values come from, if the recipe wants any: a head on the policy's own trunk (one forward pass for
    both), or a network of its own."""
    critic_from: str = ""
    """What a critic network begins as: a reward model or language model; empty takes the first reward model."""
    critic_lr: float = 0.0
    """Learning rate of the critic; 0 takes the policy's."""
    ptx: str = ""
    """Demonstrations or text whose likelihood is kept up beside the objective (PPO-ptx); needs --set ptx=WEIGHT."""
    tokens_at_once: int | None = None
    """Padded tokens of one forward pass; as many as there is memory for when left out. Smaller needs less memory and
    gives the same result. Halved where memory runs out all the same."""
    mismatch: Literal["auto", "recompute", "truncated", "none"] = "auto"
    """Where bf16 makes the sampler's probabilities differ from those of the training pass. recompute, which auto takes
    there: the old ones are the training pass's; truncated: these, and every token is weighed by training / sampling, at
    most --mismatch-cap; none: the sampler's, and the difference is only measured."""
    mismatch_cap: float = 2.0
    """Largest weight of a token under --mismatch truncated."""
    watch: tuple[str, ...] = ()
    """Further scores to log and not to train on, as name=module:function or name=folder."""
    sample_every: int = 10
    """Steps between the answers that are written to samples.jsonl."""

    def __post_init__(self) -> None:
        at_least(self, steps=1, batch_size=1, critic_lr=0, sample_every=1, mismatch_cap=1.0)
        if self.tokens_at_once is not None:
            at_least(self, tokens_at_once=1)
        _refuse_inert_mismatch(self)
        sampling = self.sampling
        if sampling.top_k or sampling.top_p < 1 or sampling.min_p:
            raise TutelageError(
                "improve learns from the distribution it samples from; top_k, top_p or min_p would make the two "
                "differ. Use the temperature."
            )
        if sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 every sample is the same and nothing can be learnt; use 0.7 or 1."
            )
        if self.lora.dropout:
            raise TutelageError(
                "--lora.dropout would make the policy that learns another than the one that sampled; leave it out."
            )
        if self.critic == "trunk" and self.critic_from:
            raise TutelageError(
                "--critic-from names what a critic network begins as, but --critic is trunk. Use --critic network."
            )


def _refuse_inert_mismatch(settings: Settings) -> None:
    """Refuse a correction of what does not differ, and a cap that nothing is held at."""
    if settings.model.dtype == "float32" and settings.mismatch in ("recompute", "truncated"):
        raise TutelageError(
            f"In float32 the sampler's probabilities are those of training, so --mismatch {settings.mismatch} would "
            "correct nothing. Leave it out."
        )
    if settings.mismatch != "truncated" and settings.mismatch_cap != Settings.mismatch_cap:
        raise TutelageError(
            "--mismatch-cap bounds the weights of --mismatch truncated; it does nothing else."
        )


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.algorithms.recipe import remarks
    from tutelage.commands.runs import begin, finish, say
    from tutelage.data.formats import load_prompts
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    recipe = _recipe(settings)
    for remark in remarks(recipe):
        say(settings, remark)
    loaded = load_prompts(settings.prompts)
    say(settings, loaded.describe())
    with begin(settings) as run:
        if run is None:
            return 0
        policy = Policy(load_backbone(settings.model, settings.lora, seed=settings.seed))
        policy.freeze_reference()
        _train(run, settings, recipe, policy, _questions(loaded.records, policy, settings))
        finish(run, policy.save_whole, {"recipe": str(recipe)})
    return 0


def _train(
    run: "Run", settings: Settings, recipe: "Recipe", policy: "Policy", questions: "Sequence[Question]"
) -> None:
    """Drive the loop to its end, from wherever the run was left."""
    from tutelage.algorithms.recipe import RecipeState, initial_state
    from tutelage.commands.runs import budget_of
    from tutelage.rewards.named import make_reward
    from tutelage.train.rl.improve import Progress, Rules, improve
    from tutelage.train.run.drive import Watch, drive, load_state
    from tutelage.train.supervised.batches import Order

    actor = _actor(settings, recipe, policy)
    learner = _learner(settings, actor)
    extra = load_state(run, learner)
    progress = Progress(RecipeState.from_dict(extra["recipe"]) if extra else initial_state(recipe))
    names = [name.partition("=") for name in settings.watch]
    watched = {name: make_reward([value], policy, settings.model) for name, _, value in names}
    reward = make_reward(settings.reward, policy, settings.model)
    steps = improve(
        actor,
        learner,
        Order(questions, settings.batch_size, settings.seed),
        reward,
        recipe,
        Rules(
            settings.sampling,
            budget_of(settings, run, policy, *actor.critic_network()),
            settings.seed,
            mismatch=_mismatch(settings),
            mismatch_cap=settings.mismatch_cap,
            watch=watched,
        ),
        progress,
        _mix(settings, recipe, policy),
    )
    drive(
        run,
        learner,
        steps,
        label=recipe.name,
        save=actor.save,
        extra_state=lambda: {"recipe": progress.state.to_dict()},
        checkpoints=settings.checkpoints,
        show=("score/mean", "kl/reference", "length/mean", *watched),
        quiet=settings.quiet,
        watch=Watch(lambda step: _write_samples(run, step, settings.sample_every)),
    )


def _mismatch(settings: Settings) -> "Mismatch | None":
    """What is done where sampler and trainer differ; None in float32, where they do not."""
    if settings.mismatch != "auto":
        return settings.mismatch
    return None if settings.model.dtype == "float32" else "recompute"


def _write_samples(run: "Run", step: "Step", every: int) -> dict[str, float]:
    """A few answers of every so many steps, to read; adds no metric."""
    if step.sample is not None and (step.index == 1 or step.index % max(1, every) == 0):
        rows = zip(step.texts[:4], step.sample.score[:4].tolist(), strict=True)
        run.samples(step.index, [{"prompt": p, "completion": c, "score": s} for (p, c), s in rows])
    return {}


def _recipe(settings: Settings) -> "Recipe":
    from tutelage.algorithms.override import override
    from tutelage.algorithms.registry import recipe_named

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


def _actor(settings: Settings, recipe: "Recipe", policy: "Policy") -> "Actor":
    from tutelage.models.backbone import is_adapter
    from tutelage.train.rl.actor import Actor

    if recipe.critic is None:
        return Actor(policy)
    start = None
    if settings.critic == "network":
        folders = [name.partition("=")[0] for name in settings.reward if ":" not in name]
        path = settings.critic_from or (folders[0] if folders else settings.model.path)
        if is_adapter(path):
            raise TutelageError(f"{path!r} is an adapter; a critic network begins as a whole model.")
        start = config.Model(path=path, dtype=settings.model.dtype, device=settings.model.device)
    return Actor.with_critic(policy, settings.critic, start, seed=settings.seed)


def _learner(settings: Settings, actor: "Actor") -> "Learner":
    from tutelage.train.learner import Learner

    groups = {"policy": actor.policy.parameters()}
    if actor.critic is not None:
        groups["critic"] = actor.critic_parameters()
    rates = {"critic": settings.critic_lr} if settings.critic_lr else {}
    return Learner(groups, settings.optimiser, settings.steps, **rates)


def _questions(prompts: Sequence[Prompt], policy: "Policy", settings: Settings) -> list["Question"]:
    """The prompts that leave room for an answer, as tokens."""
    from tutelage.commands.runs import say
    from tutelage.data.chat import encode
    from tutelage.train.rl.improve import Question

    room = (policy.context or 1 << 30) - settings.sampling.max_new_tokens
    questions = [Question(p, tuple(encode(p.messages, None, policy.tokenizer)[0])) for p in prompts]
    fitting = [question for question in questions if len(question.tokens) <= room]
    if not fitting:
        raise TutelageError(
            f"No prompt fits: the model has {policy.context} positions, and {settings.sampling.max_new_tokens} are "
            "kept for the answer. Set a smaller --sampling.max-new-tokens."
        )
    if len(fitting) < len(questions):
        say(
            settings,
            f"{len(questions) - len(fitting)} prompts are longer than {room} tokens and were left out.",
        )
    return fitting


def _mix(settings: Settings, recipe: "Recipe", policy: "Policy") -> "PretrainingMix | None":
    if not settings.ptx:
        return None
    from tutelage.data.formats import load_demonstrations
    from tutelage.train.rl.mixing import PretrainingMix
    from tutelage.train.supervised.batches import encode_demonstrations

    records = load_demonstrations(settings.ptx).records
    rows, _ = encode_demonstrations(records, policy.tokenizer, policy.context or 1024)
    return PretrainingMix(policy, rows, settings.batch_size, recipe.ptx, settings.seed)
