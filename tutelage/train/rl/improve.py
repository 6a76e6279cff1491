"""The on-policy loop: generate, score, prepare, update. One loop for every recipe."""

import time
from collections.abc import Callable, Iterator, Sequence

from tutelage.algorithms.recipe import (
    GradientSteps,
    Observation,
    Recipe,
    RecipeState,
    after_update,
    critic_only,
    initial_state,
    kl_reference,
    prepare,
)
from tutelage.base.lazy import LazyTable
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Batch, Rollout
from tutelage.rewards.reward import Reward
from tutelage.rollout.generator import Generator, RolloutError
from tutelage.rollout.prompts import EncodedPrompt
from tutelage.train.learner import Learner, Step, seed_step
from tutelage.train.rl.critic import Critic
from tutelage.train.rl.parts import UpdateResult
from tutelage.train.rl.policy import Policy
from tutelage.train.rl.rollouts import ScoredAnswers, collect, greedy_answers, judge
from tutelage.train.rl.settings import RolloutSettings, Setup
from tutelage.train.rl.update import first_minibatch

UPDATES: LazyTable[Callable[[Setup, Batch, RecipeState], UpdateResult]] = LazyTable(
    {
        "GradientSteps": ("tutelage.train.rl.update", "gradient_update"),
        "NaturalStep": ("tutelage.train.rl.natural", "natural_update"),
    }
)
"""The updates of recipes, by the classes of `Recipe.update`."""


def improve(
    policy: Policy,
    generator: Generator,
    prompts: Callable[[int], Sequence[EncodedPrompt]],
    reward: Reward,
    recipe: Recipe,
    learner: Learner,
    settings: RolloutSettings,
    *,
    critic: Critic | None = None,
    state: RecipeState | None = None,
) -> Iterator[Step]:
    """Raise the expected score of the policy's own responses, one rollout per step.

    `prompts(step)` gives the prompts of a step (counted from 0); `generator` writes `recipe.samples` responses to each
    with the policy's weights. The reference is the policy inside `policy.reference()`. A recipe with a critic needs
    one. `state` is that of the step a run was left at (`Step.recipe`); None begins anew.

    Metrics, beside those of sampling, the parts of the reward, judging, preparing, updating and of the policy:
    tokens_per_second (sampled tokens over the time of the whole step), and tokens_at_once, the budget of one pass with
    gradients.
    """
    setup = Setup(recipe, policy, critic, learner, settings)
    state = initial_state(recipe) if state is None else state
    limit = settings.sampling.max_new_tokens
    update = UPDATES[type(recipe.update).__name__]
    while learner.step < learner.total:
        started = time.perf_counter()
        seed_step(settings.seed, learner.step)
        generator.sync(learner.step)
        with phase("generate"):
            collection = collect(
                generator,
                prompts,
                reward,
                recipe,
                state,
                settings,
                step=learner.step,
                total=learner.total,
                scored_first=_scored_first(setup, state, prompts(learner.step)),
            )
        answers = collection.answers
        refuse_stale(answers.rollout, learner.step, settings.staleness)
        with phase("score"):
            scored, judged = judge(setup, answers)
        greedy = greedy_answers(generator, answers, recipe, settings, reward)
        batch, state, prepared = prepare(recipe, scored, state, greedy=greedy, max_length=limit)
        with phase("update"):
            result = update(setup, batch, state)
        learner.step += 1
        kl = float(kl_reference(scored))
        observation = Observation(kl_reference=kl, kl_old=result.kl_old, rows=len(batch))
        state = after_update(recipe, state, observation)
        metrics = judged | {name: float(value) for name, value in prepared.items()} | collection.metrics
        metrics |= answers.part_metrics() | result.metrics
        metrics |= settings.budget.ranks.totals(policy.metrics())
        metrics["tokens_at_once"] = float(settings.budget.tokens)
        metrics["tokens_per_second"] = collection.tokens / (time.perf_counter() - started)
        yield Step(learner.step, metrics, scored, _questions_and_answers(answers), state)


def refuse_stale(rollout: Rollout, version: int, staleness: int = 0) -> None:
    """Raise RolloutError where a token was written by other weights than those of this version and the `staleness`
    versions before it."""
    if rollout.version is None:
        return
    versions = rollout.version[rollout.mask]
    admitted = (versions <= version) & (versions >= version - staleness)
    if not bool(admitted.all()):
        other = int(versions[~admitted][0])
        raise RolloutError(
            f"The generator wrote a response with version {other} of the weights in step {version + 1}, where version "
            f"{version} was asked for. Its weights were not updated: check that it can load them."
        )


def _scored_first(setup: Setup, state: RecipeState, prompts: Sequence[EncodedPrompt]) -> frozenset[str]:
    """The ids of the prompts whose responses are the first minibatch: they are scored by the weights that wrote them.

    None where the first scores are not those with gradients, where other answers may take the place of these, and in
    updates of several epochs, which would gain little. Of several ranks each would have another share of a minibatch
    than of all rows, so that there all rows have to be in it.
    """
    recipe, update = setup.recipe, setup.recipe.update
    if not isinstance(update, GradientSteps) or critic_only(recipe, state):
        return frozenset()
    is_dealt = update.minibatches > 1 and setup.settings.budget.ranks.size > 1
    if update.epochs > 1 or not setup.is_exact or recipe.dynamic_sampling or is_dealt:
        return frozenset()
    ids = [encoded.prompt.id for encoded in prompts for _ in range(recipe.samples)]
    return first_minibatch(ids, update.minibatches)


def _questions_and_answers(answers: ScoredAnswers) -> tuple[tuple[str, str], ...]:
    """The last message of the prompt, and the text of the response, row by row."""
    questions = (p.messages[-1].content if p.messages else "" for p in answers.row_prompts)
    return tuple(zip(questions, answers.texts, strict=True))
