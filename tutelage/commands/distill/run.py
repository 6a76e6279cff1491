"""Distillation: a student is trained towards a teacher's distribution, on the student's own completions."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import GradientSteps, Recipe, needs_divergence, remarks
from tutelage.algorithms.recipe_state import restored_state
from tutelage.algorithms.registry import recipe_named
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.calls import workflow
from tutelage.commands.distill.settings import DistillSettings
from tutelage.commands.generators import training_generator
from tutelage.commands.layout import policy_beside, trained_policy
from tutelage.commands.results import DistillResult
from tutelage.commands.runs import (
    announce,
    conclusion,
    fitting_prompts,
    open_training,
    remark,
    remark_batch,
    token_budget,
    write_samples,
)
from tutelage.core.batch import Rows
from tutelage.core.kl import Fixed
from tutelage.core.shaping import ScoreShaping
from tutelage.data.chat_endpoint import KEY
from tutelage.data.chat_tokens import encode
from tutelage.data.formats import load_demonstrations, load_prompts
from tutelage.data.records import Demonstration, Prompt, prompt_id, text_only
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Completion
from tutelage.rollout.generator import EncodedPrompt, encode_prompts
from tutelage.rollout.server.teacher_server import connect_teacher
from tutelage.train.learner import Learner, Step
from tutelage.train.rl import improve as rl
from tutelage.train.rl.offline import OfflineCompletion, OfflineMixture
from tutelage.train.rl.setup import RolloutSettings
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Loop, Monitor, Training, load_state, recipe_state
from tutelage.train.supervised.batches import Order

Teacher = Callable[[Rows], Tensor]
"""Function from rows to the log-probabilities of their response tokens, Float[B, R]."""


def refer_to_teacher(settings: DistillSettings, policy: Policy, *, whole: bool) -> None:
    """Use a teacher from a folder as the policy's reference, laid out over the ranks as the policy is.

    `whole`: whole distributions are compared.

    Raises TutelageError if its vocabulary differs.
    """
    demonstrations = (
        ", or train on the completions of another one as demonstrations: tutelage sample, then tutelage sft"
    )
    teacher = policy_beside(policy, replace(settings.model, path=settings.teacher), "teacher", demonstrations)
    if whole and teacher.vocabulary != policy.vocabulary:
        raise TutelageError(
            f"The teacher {settings.teacher!r} has an output layer of {counted(teacher.vocabulary, 'token')} and "
            f"{settings.model.path!r} one of {policy.vocabulary:,}, so that whole distributions cannot be compared, "
            "although the tokenizers agree. --recipe reverse_kl compares only the tokens of the completions."
        )
    policy.refer_to(teacher)


def served_teacher(settings: DistillSettings, policy: Policy, ranks: Ranks) -> Teacher:
    """Return the teacher at an address, queried by rank 0. Raises TutelageError if it cannot be used."""
    key = os.environ.get(KEY, "")

    def connect() -> Teacher | None:
        return connect_teacher(settings.teacher, policy.tokenizer, key=key) if ranks.is_first else None

    server = ranks.together(connect)

    def ask(rows: Rows) -> Tensor:
        def own() -> Tensor:
            assert server is not None
            return server(rows).cpu()

        return ranks.shared(own).to(rows.mask.device)

    return ask


Given = dict[str, OfflineCompletion]
"""Offline completions by prompt id."""


def no_score(completions: Sequence[Completion]) -> Tensor:
    """Return the score 0 for every completion: the training signal comes from the teacher. Float[B]"""
    return torch.zeros(len(completions))


@workflow(DistillSettings)
def distill(settings: DistillSettings) -> DistillResult:
    """Distil a teacher into a model, on its own completions, on offline ones, or on both.

    Writes a run directory at `settings.out`, with the final model in `model/`. With `resume=True` an unfinished run
    continues from its latest checkpoint, and a finished one returns its result.

    Raises:
        TutelageError: the settings, the prompts, the model or the teacher cannot be used.
    """
    with prepare_distill(settings) as training:
        return training.finish()


@workflow(DistillSettings)
def prepare_distill(settings: DistillSettings) -> AbstractContextManager[Training[DistillResult]]:
    """Open a distillation run for iteration step by step; `distill` runs it to its end."""
    recipe = distillation_recipe(settings)
    for line in remarks(recipe):
        remark(line)
    loaded = announce(load_demonstrations(settings.data) if settings.data else load_prompts(settings.prompts))
    start = partial(_training, settings, recipe, loaded.records)
    return open_training(settings, DistillResult, start, loaded.records)


def distillation_recipe(settings: DistillSettings) -> Recipe:
    """Return the recipe of the settings.

    Raises TutelageError for a recipe without a training signal from a teacher, or one that needs more than the teacher
    or the offline completions provide.
    """
    recipe = override(recipe_named(settings.recipe), settings.set)
    name, shaping = recipe.name, recipe.shaping
    if recipe.penalty is None:
        raise TutelageError(
            f"The recipe {name!r} has no penalty, which is the training signal from a teacher: use gkd or "
            "reverse_kl, or --set penalty=Penalty."
        )
    for slot, is_set in {
        "critic": recipe.critic is not None,
        "ptx": bool(recipe.ptx),
        "dynamic_sampling": bool(recipe.dynamic_sampling),
        "shaping": isinstance(shaping, ScoreShaping) and shaping != ScoreShaping(missing_end=None),
    }.items():
        if is_set:
            what = "shaping.missing_end" if slot == "shaping" else slot
            raise TutelageError(
                f"Distillation has no score, but the recipe {name!r} uses one ({slot}). Set "
                f"{what}=none{' or 0' if slot in ('ptx', 'dynamic_sampling') else ''}, or use gkd or reverse_kl."
            )
    whole = needs_divergence(recipe) is not None
    if settings.is_served and whole:
        raise TutelageError(
            f"The recipe {name!r} compares whole distributions, but a server returns probabilities of single tokens: "
            "use --recipe reverse_kl, or give the teacher's folder."
        )
    if settings.on_policy < 1 and not (whole and recipe.samples == 1 and isinstance(recipe.update, GradientSteps)):
        raise TutelageError(
            f"With --on-policy {settings.on_policy:g} some completions are not sampled from the student. They need a "
            "divergence of whole distributions, gradient steps, and one completion per prompt: use --recipe gkd."
        )
    return recipe


def _training(
    settings: DistillSettings, recipe: Recipe, records: Sequence[Prompt] | Sequence[Demonstration], run: Run
) -> Training[DistillResult]:
    policy = trained_policy(settings, run)
    if not settings.is_served:
        refer_to_teacher(settings, policy, whole=needs_divergence(recipe) is not None)
    encoded, offline = _encoded(settings, policy, records)
    fitting = fitting_prompts(policy, encoded, settings.sampling.max_new_tokens)
    remark_batch(settings.batch_size, len(fitting), "prompts")
    loop = _loop(settings, run, recipe, policy, fitting, offline)

    figures = {"recipe": str(recipe), "dropped": len(encoded) - len(fitting)}
    return Training(loop, conclusion(run, policy, DistillResult, lambda: figures))


def _loop(
    settings: DistillSettings,
    run: Run,
    recipe: Recipe,
    policy: Policy,
    prompts: Sequence[EncodedPrompt],
    offline: Given,
) -> Loop:
    """Return the loop of the recipe, from the latest checkpoint of the run."""
    learner = Learner(
        {"policy": policy.parameters()}, settings.optimiser, settings.steps, policy.total_norm, ranks=run.ranks
    )
    extra = load_state(run, learner)
    budget = token_budget(settings, run, policy)
    loop_settings = RolloutSettings(
        settings.sampling,
        budget,
        settings.seed,
        mismatch="recompute" if settings.model.dtype != "float32" and settings.rollouts else None,
        reference=_measures_kl(recipe),
        teacher=served_teacher(settings, policy, run.ranks) if settings.is_served else None,
    )
    generator = training_generator(settings, policy, settings.sampling, run)
    steps = rl.improve(
        policy,
        OfflineMixture(generator, offline, settings.on_policy, policy, budget) if offline else generator,
        Order(prompts, settings.batch_size, settings.seed),
        no_score,
        recipe,
        learner,
        loop_settings,
        state=restored_state(recipe, extra["recipe"]) if extra else None,
    )

    def look(step: Step) -> dict[str, float]:
        write_samples(run, step, settings.sample_every, scores=False)
        return {}

    return Loop(
        run=run,
        learner=learner,
        steps=map(partial(_without_score, recipe), steps),
        label=recipe.name,
        save=policy.save,
        gathered=policy.gathered_to_save,
        extra_state=recipe_state,
        checkpoints=settings.checkpoints,
        show=("divergence", "kl/reference", "length/mean", "ended"),
        monitor=Monitor(look),
    )


def _measures_kl(recipe: Recipe) -> bool:
    """Whether the teacher's token log-probabilities are needed in addition to the divergence: for a penalty by an
    estimator, or for a controller. Otherwise they would cost another forward pass of the teacher."""
    assert recipe.penalty is not None
    exact = needs_divergence(recipe) is not None and isinstance(recipe.update, GradientSteps)
    return not exact or not isinstance(recipe.penalty.controller, Fixed)


def _without_score(recipe: Recipe, step: Step) -> Step:
    """Remove the metrics of scores, which do not exist here, and of the KL if it was not measured."""
    absent = ("score/", "groups/") if _measures_kl(recipe) else ("score/", "groups/", "kl/reference")
    metrics = {name: value for name, value in step.metrics.items() if not name.startswith(absent)}
    return replace(step, metrics=metrics)


def _encoded(
    settings: DistillSettings, policy: Policy, records: Sequence[Prompt] | Sequence[Demonstration]
) -> tuple[list[EncodedPrompt], Given]:
    """Tokenise the prompts and, of demonstrations, their responses up to the limit; a remark counts the truncated
    ones."""
    if not settings.data:
        return encode_prompts([each for each in records if isinstance(each, Prompt)], policy.tokenizer), {}
    prompts, offline, counts = [], {}, Counter[str]()
    limit = settings.sampling.max_new_tokens
    for record in records:
        assert isinstance(record, Demonstration)
        if record.weight != 1:
            raise TutelageError(
                f"{settings.data} has a weight of {record.weight:g}, but distill weights all completions equally: "
                "remove the column weight, or use tutelage sft."
            )
        name = prompt_id(record.messages)
        counts[name] += 1
        prompt = Prompt(f"{name}-{counts[name]}", record.messages)  # a prompt with two responses occurs twice
        prompt_ids, completion_ids = encode(record.messages, record.response, policy.tokenizer)
        prompts.append(EncodedPrompt(prompt, tuple(prompt_ids)))
        offline[prompt.id] = OfflineCompletion(
            tuple(completion_ids[:limit]), text_only(record.response, "distill"), len(completion_ids) <= limit
        )
    if cut := sum(not one.terminated for one in offline.values()):
        remark(f"{counted(cut, 'offline completion')} cut at {counted(limit, 'token')} (--sampling.max-new-tokens).")
    return prompts, offline
