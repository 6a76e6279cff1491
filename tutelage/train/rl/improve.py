"""On-policy training loop: generate, score, prepare, update. All recipes share it."""

import time
from collections.abc import Callable, Iterator, Sequence

from tutelage.algorithms.recipe import GradientSteps, Observation, Recipe, critic_only, kl_reference, prepare
from tutelage.algorithms.recipe_state import RecipeState, after_update, initial_state, state_metrics
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Rollout
from tutelage.data.transcripts import transcript_text
from tutelage.rewards.reward import Reward
from tutelage.rollout.generator import EncodedPrompt, Generator, RolloutError
from tutelage.train.learner import Learner, Step, seed_step
from tutelage.train.rl.natural_gradient import natural_update
from tutelage.train.rl.rollouts import ScoredCompletions, collect, greedy_completions, score_rollout, without_lost
from tutelage.train.rl.setup import CriticModel, PolicyModel, RolloutSettings, Setup
from tutelage.train.rl.update import first_minibatch, gradient_update


def improve(
    policy: PolicyModel,
    generator: Generator,
    prompts: Callable[[int], Sequence[EncodedPrompt]],
    reward: Reward,
    recipe: Recipe,
    learner: Learner,
    settings: RolloutSettings,
    *,
    critic: CriticModel | None = None,
    state: RecipeState | None = None,
) -> Iterator[Step]:
    """Maximise the expected score of the policy's own completions, with one rollout per step.

    `prompts(step)` returns the prompts of a step (counted from 0); `generator` writes `recipe.samples` completions of
    each with the policy's weights. The reference is the policy inside `policy.reference()`. Recipes with a critic
    require one. `state` resumes from the state of an earlier step (`Step.recipe`); None starts from scratch.

    Metrics, in addition to those of sampling, reward parts, scoring, preparation, update and policy:
    tokens_per_second (sampled tokens over the time of the whole step), and tokens_at_once, the budget of one pass
    with gradients.
    """
    setup = Setup(recipe, policy, critic, learner, settings)
    state = initial_state(recipe) if state is None else state
    update = gradient_update if isinstance(recipe.update, GradientSteps) else natural_update
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
            scored, scoring = score_rollout(setup, answers)
        greedy = greedy_completions(generator, answers, recipe, settings, reward)
        answers, scored, greedy = without_lost(answers, scored, greedy)
        batch, state, prepared = prepare(recipe, scored, state, greedy=greedy, max_length=settings.longest)
        with phase("update"):
            result = update(setup, batch, state)
        learner.step += 1
        kl = float(kl_reference(scored))
        observation = Observation(kl_reference=kl, kl_old=result.kl_old, rows=len(batch))
        state = after_update(recipe, state, observation)
        metrics = scoring | {name: float(value) for name, value in prepared.items()} | collection.metrics
        metrics |= answers.part_metrics() | result.metrics | state_metrics(recipe, state)
        metrics |= settings.budget.ranks.totals(policy.metrics())
        metrics["tokens_at_once"] = float(settings.budget.tokens)
        metrics["tokens_per_second"] = collection.tokens / (time.perf_counter() - started)
        yield Step(learner.step, metrics, scored, _questions_and_answers(answers), state)


def refuse_stale(rollout: Rollout, version: int, staleness: int = 0) -> None:
    """Raise RolloutError if a token was written by weights older than `version` − `staleness`."""
    if rollout.version is None:
        return
    versions = rollout.version[rollout.mask]
    admitted = (versions <= version) & (versions >= version - staleness)
    if not bool(admitted.all()):
        other = int(versions[~admitted][0])
        raise RolloutError(
            f"The generator wrote a response with version {other} of the weights in step {version + 1}, where version "
            f"{version} was requested. Its weights were not updated: check that it can load them."
        )


def _scored_first(setup: Setup, state: RecipeState, prompts: Sequence[EncodedPrompt]) -> frozenset[str]:
    """Ids of the prompts whose completions form the first minibatch; they are scored by the weights that wrote them.

    Empty if first scores come from another pass than those with gradients, if completions may be replaced, and in
    updates of several epochs, which would gain little. With several ranks, the first minibatch must hold all rows,
    because its share of a rank's rows would differ.
    """
    recipe, update = setup.recipe, setup.recipe.update
    if not isinstance(update, GradientSteps) or critic_only(recipe, state):
        return frozenset()
    is_dealt = update.minibatches > 1 and setup.settings.budget.ranks.size > 1
    if update.epochs > 1 or not setup.is_exact or recipe.dynamic_sampling or is_dealt:
        return frozenset()
    ids = [encoded.prompt.id for encoded in prompts for _ in range(recipe.samples)]
    return first_minibatch(ids, update.minibatches)


def _questions_and_answers(answers: ScoredCompletions) -> tuple[tuple[str, str], ...]:
    """Last message of the prompt, and text of the completion or of the whole episode, per row."""
    questions = [prompt.messages for prompt in answers.row_prompts]
    episodes = answers.rollout.transcripts
    texts = map(transcript_text, episodes, questions) if episodes else answers.texts
    return tuple(zip((messages[-1].content if messages else "" for messages in questions), texts, strict=True))
