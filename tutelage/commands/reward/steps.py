"""Process reward models: training on rated steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.results import RewardResult
from tutelage.commands.reward.settings import NEWLINE, RewardSettings
from tutelage.commands.runs import announce, evaluation_rows, finish_run, remark, remark_batch, token_budget
from tutelage.commands.study import study_address
from tutelage.data.formats import load_steps
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import RatedSteps
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel
from tutelage.stats.reward_quality import step_quality
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Training
from tutelage.train.supervised.job import job_loop, restore_best
from tutelage.train.supervised.step_reward import LabelledSteps, encode_rated, rated_scores, rated_sources, step_job


@dataclass(frozen=True)
class StepData:
    """Training and held-out completions in rated steps. `separator` follows each step; it is empty for messages."""

    train: Sequence[RatedSteps]
    held_out: Sequence[RatedSteps]
    separator: str
    remarks: tuple[str, ...]


def read_steps(settings: RewardSettings) -> StepData:
    """Read the rated steps of a file. Raises TutelageError for a study, and for steps of both kinds in one file."""
    if study_address(settings.data) is not None:
        raise TutelageError(f"--steps reads a file of rated steps, and {settings.data} is a study.")
    loaded = load_steps(settings.data)
    separator, crossed = separator_of(loaded.records, settings)
    training, held_out = split_by_prompt(loaded.records, settings.held_out, settings.seed)
    return StepData(training, held_out, separator, (loaded.describe(), crossed))


def separator_of(records: Sequence[RatedSteps], settings: RewardSettings) -> tuple[str, str]:
    """Return the separator of the steps of all records, "" for messages, and a remark on texts that contain it. Raises
    TutelageError for steps of both kinds."""
    texts = [record for record in records if isinstance(record.steps[0], str)]
    if texts and len(texts) < len(records):
        raise TutelageError(
            f"{settings.data} has steps of text in {counted(len(texts), 'completion')} and steps of messages in "
            f"{len(records) - len(texts):,}: train a model on each kind."
        )
    if not texts and settings.separator != NEWLINE:
        raise TutelageError(f"--separator is about steps of text, and those of {settings.data} are messages: omit it.")
    separator = settings.separator_text if texts else ""
    crossed = sum(separator in step.strip() for record in texts for step in record.steps if isinstance(step, str))
    if not crossed:
        return separator, ""
    return separator, (
        f"{counted(crossed, 'step', 'contains')} the separator {separator!r}, at which completions will be split into "
        "steps when they are scored: another --separator may fit better."
    )


def step_training(
    settings: RewardSettings, data: StepData, run: Run, model: ScalarModel, max_length: int
) -> Training[RewardResult]:
    """Return the training of a new reward model on rated steps."""
    model.separator = data.separator
    train, cuts = encode_rated(data.train, data.separator, model.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out: Sequence[LabelledSteps] = ()
    if data.held_out:
        held_out = encode_rated(data.held_out, data.separator, model.tokenizer, max_length)[0]
    budget = token_budget(settings, run, model)
    remark_batch(settings.batch_size, len(train), "completions")
    evaluation = evaluation_rows(held_out, settings.evaluate_rows)
    job = step_job(model, train, evaluation, settings, patience=settings.patience, budget=budget)
    loop = job_loop(run, model, job, settings, budget)

    def conclude() -> RewardResult:
        restore_best(loop)
        figures: dict[str, object] = {"completions": len(train), "held_out_completions": len(held_out)}
        figures |= {"rated_steps": sum(len(one.labels) for one in train), "dropped": len(cuts.dropped)}
        with model.gathered():
            figures |= _quality(model, held_out, settings, max_length, budget)
            return finish_run(run, model, figures, RewardResult)

    return Training(loop, conclude)


def _quality(
    model: ScalarModel, held_out: Sequence[LabelledSteps], settings: RewardSettings, max_length: int, budget: Budget
) -> dict[str, object]:
    """Return the quality of the scores on the test or held-out steps."""
    if settings.test:
        loaded = announce(load_steps(settings.test)).records
        separator, _ = separator_of(loaded, settings)
        if separator != model.separator:
            raise TutelageError(f"The steps of --test {settings.test} are not of the kind of those of {settings.data}.")
        held_out = encode_rated(loaded, separator, model.tokenizer, max_length)[0]
    if not held_out:
        return {}
    records = rated_sources(held_out)
    scores = rated_scores(model, held_out, budget)
    labels = [_read_labels(one) for one in held_out]
    return step_quality(scores, labels, [str(record.messages) for record in records])


def _read_labels(one: LabelledSteps) -> list[float | None]:
    """Return the labels of a completion, without those of rated steps that were cut off."""
    left, labels = len(one.labels), list[float | None]()
    for label in one.source.labels:
        if label is not None:
            left -= 1
        if left < 0:
            break
        labels.append(label)
    return labels
