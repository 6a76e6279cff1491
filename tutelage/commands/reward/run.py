"""Reward modelling: training a scalar model on preferences or on rated steps."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.calls import workflow
from tutelage.commands.layout import lay_out
from tutelage.commands.results import RewardResult
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.reward.steps import StepData, read_steps, step_training
from tutelage.commands.runs import (
    announce,
    check_weights,
    evaluation_rows,
    finish_run,
    open_training,
    remark,
    remark_batch,
    token_budget,
)
from tutelage.commands.study import refuse_inert_study, study_address
from tutelage.commands.study_data import StudySnapshot, read_study, record_study, vote_figures
from tutelage.core.rows import EncodedRow
from tutelage.core.scoring_losses import SCORING_LOSSES, LearnedDavidson
from tutelage.data.formats import load_demonstrations, load_preferences
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Preference
from tutelage.engines.ranks.processes import join
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel, centre, new_reward_model
from tutelage.people import Selection
from tutelage.stats.reward_quality import length_baseline, reward_quality
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Training
from tutelage.train.supervised.batches import EncodedPair, encode_demonstrations, encode_preferences, sources
from tutelage.train.supervised.job import job_loop, restore_best
from tutelage.train.supervised.reward_model import pair_scores, reward_job, row_states

MARGIN_LOSSES = ("margin", "scaled")
"""Losses that use the strength of a preference."""

CENTRED = 2048
"""Completions whose mean score becomes 0."""


@workflow(RewardSettings)
def reward(settings: RewardSettings) -> RewardResult:
    """Train a reward model on preferences from a file or a study, or with `steps=True` on rated steps from a file.

    Writes a run directory at `settings.out`, with the final model in `model/`: the weights with the lowest held-out
    loss; on preferences, centred to a mean score of 0. With `resume=True` an unfinished run continues from its latest
    checkpoint, and a finished one returns its result.

    Raises:
        TutelageError: the settings, the preferences or the model cannot be used.
    """
    with prepare_reward(settings) as training:
        return training.finish()


@workflow(RewardSettings)
def prepare_reward(settings: RewardSettings) -> AbstractContextManager[Training[RewardResult]]:
    """Open a reward-model run for iteration step by step; `reward` runs it to its end."""
    read = read_steps if settings.steps else read_data
    data = join().shared(lambda: read(settings))  # read once: a study may change meanwhile
    for line in data.remarks:
        remark(line)
    if isinstance(data, RewardData):
        for line in inert_columns(settings, data):
            remark(line)
    return open_training(settings, RewardResult, partial(_training, settings, data), data.train, data.held_out)


@dataclass(frozen=True)
class RewardData:
    """Training and held-out pairs, with their study, if any."""

    train: Sequence[Preference]
    held_out: Sequence[Preference]
    remarks: tuple[str, ...]
    study: StudySnapshot | None = None


def _training(settings: RewardSettings, data: RewardData | StepData, run: Run) -> Training[RewardResult]:
    recomputes = settings.activation_checkpointing

    def load(start: config.Model) -> ScalarModel:
        return new_reward_model(start, settings.lora, seed=settings.seed, checkpointing=recomputes)

    model = lay_out(settings.shard, run, settings.model, load)
    max_length = min(settings.max_length, model.context or settings.max_length)
    if isinstance(data, StepData):
        return step_training(settings, data, run, model, max_length)
    return _pair_training(settings, data, run, model, max_length)


def _pair_training(
    settings: RewardSettings, data: RewardData, run: Run, model: ScalarModel, max_length: int
) -> Training[RewardResult]:
    if data.study is not None and run.ranks.is_first:
        record_study(data.study, run.path)
    train, cuts = encode_preferences(data.train, model.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_preferences(data.held_out, model.tokenizer, max_length)[0] if data.held_out else []
    loss = LearnedDavidson() if settings.loss == "davidson" else SCORING_LOSSES[settings.loss]
    budget = token_budget(settings, run, model)
    remark_batch(settings.batch_size, len(train), "pairs")
    job = reward_job(
        model,
        train,
        evaluation_rows(held_out, settings.evaluate_rows),
        settings,
        patience=settings.patience,
        budget=budget,
        loss=loss,
    )
    loop = job_loop(run, model, job, settings, budget)

    def conclude() -> RewardResult:
        restore_best(loop)
        figures: dict[str, object] = {"pairs": len(train), "held_out_pairs": len(held_out)}
        figures["dropped"] = len(cuts.dropped)
        if isinstance(loss, LearnedDavidson):  # ν = 2 P(tie) / (1 − P(tie)) between answers of equal score
            figures["davidson/nu"] = float(loss.log_ties.detach().exp())
        with model.gathered():
            figures |= _centre(model, train, settings, max_length, budget)
            figures |= _quality(model, train, held_out, settings, max_length, budget, data.study)
            return finish_run(run, model, figures, RewardResult)

    return Training(loop, conclude)


def read_data(settings: RewardSettings) -> RewardData:
    """Read the pairs of a file, or of a study at the moment when this run began."""
    address = study_address(settings.data)
    if address is None:
        refuse_inert_study(settings, settings.data)
        loaded = load_preferences(settings.data)
        training, held_out = split_by_prompt(loaded.records, settings.held_out, settings.seed)
        return RewardData(training, held_out, (loaded.describe(),))
    selection = Selection(
        kinds=settings.kinds,
        ties="keep" if settings.loss == "davidson" else "drop",
        margins=settings.loss in MARGIN_LOSSES,
    )
    share = settings.held_out
    study = read_study(
        address,
        settings.study,
        selection,
        rows=settings.study_rows,
        held_out=share,
        seed=settings.seed,
        run=settings.out,
    )
    return RewardData(study.train, study.held_out, study.remarks, study)


def inert_columns(settings: RewardSettings, data: RewardData) -> tuple[str, ...]:
    """Return remarks on columns that the loss does not use. Raises TutelageError if the loss has no signal."""
    check_weights(data.train, settings.data)
    strong = sum(pair.margin > 0 for pair in data.train)
    if settings.loss in MARGIN_LOSSES and not strong:
        raise TutelageError(
            f"The loss {settings.loss} uses the strength of each preference, but every margin in {settings.data} is 0: "
            "use --loss soft."
        )
    if settings.loss == "scaled" and strong < len(data.train):
        return (f"{counted(len(data.train) - strong, 'pair', 'has')} no strength and zero weight.",)
    if settings.loss not in MARGIN_LOSSES and strong:
        return (f"{counted(strong, 'pair', 'has')} a margin, which the loss {settings.loss} does not use.",)
    if settings.loss == "davidson" and not any(pair.p_chosen == 0.5 for pair in data.train):
        return ("No pair is a tie, so the loss davidson equals the loss soft.",)
    return ()


def _centre(
    model: ScalarModel, train: Sequence[EncodedPair], settings: RewardSettings, max_length: int, budget: Budget
) -> dict[str, float]:
    """Shift the mean score to 0 on the demonstrations of `centre`, by default on the chosen answers."""
    rows: Sequence[EncodedRow] = [pair.chosen for pair in train[:CENTRED]]
    if settings.centre:
        records = announce(load_demonstrations(settings.centre)).records
        rows = encode_demonstrations(records, model.tokenizer, max_length)[0]
    before, disturbance = centre(model, row_states(model, rows[:CENTRED], budget))
    return {"centre/mean_before": before, "centre/disturbance": disturbance}


def _quality(
    model: ScalarModel,
    train: Sequence[EncodedPair],
    held_out: Sequence[EncodedPair],
    settings: RewardSettings,
    max_length: int,
    budget: Budget,
    study: StudySnapshot | None,
) -> dict[str, object]:
    """Return the accuracy with its interval, the length baseline, and the calibration on the test or held-out pairs;
    for a study also by strength and against single votes."""
    if settings.test:
        study = None
        pairs = announce(load_preferences(settings.test)).records
        held_out = encode_preferences(pairs, model.tokenizer, max_length)[0]
    if not held_out:
        return {}
    chosen, rejected = pair_scores(model, held_out, budget)
    prompts = [str(pair.chosen.prompt) for pair in held_out]
    p_chosen = _labels(held_out)
    differences = (chosen - rejected).tolist()
    figures: dict[str, object] = dict(reward_quality(differences, p_chosen, prompts))
    figures["length"] = length_baseline(
        _lengths(held_out), p_chosen, prompts, trained=_lengths(train), p_trained=_labels(train)
    )
    if study is not None:
        figures |= vote_figures(study, differences, sources(held_out))
    return figures


def _labels(pairs: Sequence[EncodedPair]) -> list[float]:
    return [source.p_chosen for source in sources(pairs)]


def _lengths(pairs: Sequence[EncodedPair]) -> list[float]:
    """Return the difference in tokens between each chosen answer and the rejected one."""
    return [len(pair.chosen.response) - len(pair.rejected.response) for pair in pairs]
