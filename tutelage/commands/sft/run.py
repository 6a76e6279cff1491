"""Supervised fine-tuning on demonstrations."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.calls import workflow
from tutelage.commands.layout import trained_policy
from tutelage.commands.results import SftResult
from tutelage.commands.runs import (
    announce,
    check_weights,
    conclusion,
    evaluation_rows,
    open_training,
    remark,
    remark_batch,
    token_budget,
)
from tutelage.commands.sft.settings import SftSettings
from tutelage.commands.study import refuse_inert_study, study_address
from tutelage.core.rows import EncodedRow
from tutelage.data.chat_tokens import encode
from tutelage.data.formats import LoadedRecords, load_demonstrations
from tutelage.data.records import Demonstration, Prompt, turn_text
from tutelage.engines.ranks.processes import join
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.policy import Policy
from tutelage.rollout.distributed import dealt_generator
from tutelage.rollout.inference.completion_records import sample_completions
from tutelage.rollout.local import LocalGenerator
from tutelage.stats.text import rouge
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Training
from tutelage.train.supervised.batches import encode_demonstrations
from tutelage.train.supervised.job import job_loop
from tutelage.train.supervised.language import divide, language_job

if TYPE_CHECKING:
    from tutelage.commands.study_data import StudyDemonstrations

Parts: TypeAlias = tuple[Sequence[Demonstration], Sequence[Demonstration]]


@workflow(SftSettings)
def sft(settings: SftSettings) -> SftResult:
    """Fine-tune a language model on demonstrations; the loss is on the responses only.

    Writes a run directory at `settings.out`, with the final model in `model/`. With `resume=True` an unfinished run
    continues from its latest checkpoint, and a finished one returns its result.

    Raises:
        TutelageError: the settings, the data or the model cannot be used.
    """
    with prepare_sft(settings) as training:
        return training.finish()


@workflow(SftSettings)
def prepare_sft(settings: SftSettings) -> AbstractContextManager[Training[SftResult]]:
    """Open a fine-tuning run for iteration step by step; `sft` runs it to its end."""
    address = study_address(settings.data)
    if address is not None:
        if settings.answers != "last":
            raise TutelageError("--answers has no effect: every turn of a study is a separate row.")
        study = join().shared(lambda: _study(settings, address))  # read once: it may change meanwhile
        for line in study.remarks:
            remark(line)
        divided = (study.train, study.held_out)
        return open_training(settings, SftResult, partial(_training, settings, divided, study), *divided)
    refuse_inert_study(settings, settings.data)
    loaded = announce(load_demonstrations(settings.data, answers=settings.answers))
    if settings.answers == "every":
        conversations = len(set(loaded.places))
        remark(
            f"--answers every: {counted(len(loaded.records), 'answer')} of {counted(conversations, 'conversation')}. "
            f"--batch-size {settings.batch_size} counts answers, not conversations."
        )
    start = partial(_training, settings, _parts(settings, loaded), None)
    return open_training(settings, SftResult, start, loaded.records)


def _study(settings: SftSettings, address: str) -> "StudyDemonstrations":
    from tutelage.commands.study_data import read_demonstrations
    from tutelage.people import Selection  # imported here: other runs need no database

    return read_demonstrations(
        address,
        settings.study,
        Selection(kinds=settings.kinds),
        rows=settings.study_rows,
        held_out=settings.held_out,
        seed=settings.seed,
        run=settings.out,
    )


def _parts(settings: SftSettings, loaded: LoadedRecords[Demonstration]) -> Parts:
    """Split the demonstrations of a file into training and held-out ones; answers of one conversation stay together."""
    rows: dict[str, list[Demonstration]] = defaultdict(list)
    for place, record in zip(loaded.places, loaded.records, strict=True):
        rows[place].append(record)
    conversations = list(rows.values())
    training, aside = divide(len(conversations), settings.held_out, settings.seed)
    return [one for i in training for one in conversations[i]], [one for i in aside for one in conversations[i]]


def _training(
    settings: SftSettings, parts: Parts, study: "StudyDemonstrations | None", run: Run
) -> Training[SftResult]:
    if study is not None and run.ranks.is_first:
        from tutelage.commands.study_data import record_study

        record_study(study, run.path)
    check_weights(parts[0], settings.data)
    policy = trained_policy(settings, run)
    data = _encoded(settings, policy, parts)
    inspected = data.answerable[: settings.samples]
    budget = token_budget(settings, run, policy)
    remark_batch(settings.batch_size, len(data.train))
    if run.start == 0 and data.held_out:
        _write_samples(run, policy, 0, inspected, settings)

    def at_end(step: int) -> None:
        _write_samples(run, policy, step, inspected, settings)

    job = language_job(
        policy,
        data.train,
        evaluation_rows(data.held_out, settings.evaluate_rows),
        settings,
        label="sft",
        budget=budget,
        looks_first=True,
        at_end=at_end,
    )
    loop = job_loop(run, policy, job, settings, budget)

    def figures() -> dict[str, float]:
        counts = {"rows": len(data.train), "dropped": data.dropped}
        return counts | _rouge(policy, data.answerable[: settings.rouge], settings, run.ranks)

    return Training(loop, conclusion(run, policy, SftResult, figures))


@dataclass(frozen=True)
class SftData:
    """Training and held-out demonstrations as token ids, and the first held-out ones that leave room for a
    completion, as many as the settings need."""

    train: Sequence[EncodedRow]
    held_out: Sequence[EncodedRow]
    answerable: Sequence[Demonstration]
    dropped: int


def _encoded(settings: SftSettings, policy: Policy, parts: Parts) -> SftData:
    max_length = min(settings.max_length, policy.context or settings.max_length)
    records, held_records = parts
    train, cuts = encode_demonstrations(records, policy.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_demonstrations(held_records, policy.tokenizer, max_length)[0] if held_records else []
    room = (policy.context or 1 << 30) - settings.sampling.max_new_tokens
    fitting = (one for one in held_records if len(encode(one.messages, None, policy.tokenizer)[0]) <= room)
    answerable = list(islice(fitting, max(settings.samples, settings.rouge)))
    return SftData(train, held_out, answerable, len(cuts.dropped))


def _answers(policy: Policy, records: Sequence[Demonstration], settings: SftSettings, ranks: Ranks) -> list[str]:
    """Generate completions of the prompts of the records."""
    prompts = [Prompt(str(number), record.messages) for number, record in enumerate(records)]
    generator = dealt_generator(LocalGenerator(policy), ranks, policy.device, policy.gathered)
    return list(
        sample_completions(policy, prompts, 1, settings.sampling, seed=settings.seed, generator=generator).texts
    )


def _write_samples(
    run: Run, policy: Policy, step: int, records: Sequence[Demonstration], settings: SftSettings
) -> None:
    if not records:
        return
    rows = zip(records, _answers(policy, records, settings, run.ranks), strict=True)
    run.samples(
        step,
        [
            {
                "prompt": record.messages[-1].content if record.messages else "",
                "completion": text,
                "reference": turn_text(record.response),
            }
            for record, text in rows
        ],
    )


def _rouge(policy: Policy, records: Sequence[Demonstration], settings: SftSettings, ranks: Ranks) -> dict[str, float]:
    """Return ROUGE of the policy's completions against the held-out responses."""
    if not records:
        return {}
    scores = rouge(_answers(policy, records, settings, ranks), [turn_text(record.response) for record in records])
    return {f"held_out/{name}": value for name, value in scores.items()}
