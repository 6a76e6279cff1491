"""Pretraining of a language model on plain text."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.calls import workflow
from tutelage.commands.layout import lay_out
from tutelage.commands.pretrain.settings import PretrainSettings
from tutelage.commands.results import PretrainResult
from tutelage.commands.runs import (
    announce,
    conclusion,
    evaluation_rows,
    open_training,
    remark,
    remark_batch,
    token_budget,
)
from tutelage.core.rows import EncodedRow
from tutelage.data.formats import load_texts
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.backbone import load_backbone
from tutelage.models.fresh import save_fresh
from tutelage.models.policy import Policy
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Training
from tutelage.train.supervised.batches import windows
from tutelage.train.supervised.job import job_loop
from tutelage.train.supervised.language import divide, language_job


@workflow(PretrainSettings)
def pretrain(settings: PretrainSettings) -> PretrainResult:
    """Train a language model on plain text: a new small Llama with its own tokenizer, or an existing model.

    Writes a run directory at `settings.out`, with the final model in `model/`. With `resume=True` an unfinished run
    continues from its latest checkpoint, and a finished one returns its result.

    Raises:
        TutelageError: the settings, the text or the model cannot be used.
    """
    with prepare_pretrain(settings) as training:
        return training.finish()


@workflow(PretrainSettings)
def prepare_pretrain(settings: PretrainSettings) -> AbstractContextManager[Training[PretrainResult]]:
    """Open a pretraining run for iteration step by step; `pretrain` runs it to its end."""
    loaded = announce(load_texts(settings.data))
    start = partial(_training, settings, loaded.records)
    return open_training(settings, PretrainResult, start, loaded.records)


def _training(settings: PretrainSettings, texts: Sequence[str], run: Run) -> Training[PretrainResult]:
    recomputes = settings.activation_checkpointing

    def load(start: config.Model) -> Policy:
        return Policy(load_backbone(start, config.Lora(), checkpointing=recomputes))

    policy = lay_out(settings.shard, run, _start(settings, list(texts), run.ranks), load)
    train, held_out = _rows(settings, policy, texts)
    remark(
        f"{counted(sum(map(len, train)), 'token')} to train on, "
        f"{counted(sum(p.numel() for p in policy.parameters()), 'weight')}."
    )
    budget = token_budget(settings, run, policy)
    remark_batch(settings.batch_size, len(train))
    job = language_job(
        policy,
        train,
        evaluation_rows(held_out, settings.evaluate_rows),
        settings,
        label="pretrain",
        budget=budget,
        looks_first=False,
    )
    loop = job_loop(run, policy, job, settings, budget)

    return Training(loop, conclusion(run, policy, PretrainResult, lambda: {"rows": len(train)}))


def _start(settings: PretrainSettings, texts: list[str], ranks: Ranks) -> config.Model:
    """Return the initial model of the run, created if none is named."""
    path = settings.model
    if not path:
        start = settings.out / "start"
        if not ranks.shared(lambda: (start / "tokenizer.json").is_file()):
            ranks.shared(lambda: save_fresh(texts, settings.shape, start, settings.seed))
        path = str(start)
    return config.Model(path=path, dtype=settings.dtype, device=settings.device, engine=settings.engine)


def _rows(
    settings: PretrainSettings, policy: Policy, texts: Sequence[str]
) -> tuple[list[EncodedRow], list[EncodedRow]]:
    """Return windows of the text for training, and held-out ones."""
    end = policy.end_ids[0]
    tokens = policy.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    context = min(settings.max_length, policy.context or settings.max_length)
    sides = []
    for side in divide(len(tokens), settings.held_out, settings.seed):
        stream = [end] + [token for i in side for token in (*tokens[i], end)]
        sides.append(windows(stream, context))
    if not sides[0]:
        raise TutelageError(f"{settings.data} has no text to train on.")
    return sides[0], sides[1]
