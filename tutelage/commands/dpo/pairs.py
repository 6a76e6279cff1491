"""Jobs that train on preferences from a file: pairs, or single answers labelled good or bad."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tutelage.base.errors import TutelageError
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.layout import lay_out_beside
from tutelage.commands.runs import check_weights, evaluation_rows, remark, remark_batch
from tutelage.core.preferences import Kto, PreferenceLoss
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Preference, Prompt, UnpairedAnswer
from tutelage.data.tokenizer import same_vocabulary
from tutelage.models.backbone import load_backbone
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.supervised.batches import Order, encode_preferences
from tutelage.train.supervised.job import Job
from tutelage.train.supervised.preference_job import DRIFT, paired_job, refer
from tutelage.train.supervised.unpaired_job import encode_unpaired, label, labels_of, unpaired_job


@dataclass(frozen=True)
class PreferenceJob:
    """Job on preferences, with the counts of its data for summary.json."""

    job: Job
    counts: Mapping[str, int]


def reference_of(settings: DpoSettings, policy: Policy) -> Policy:
    """Return the reference model of the settings, by default the policy, which is still untrained."""
    if not settings.reference:
        return policy
    reference_settings = replace(settings.model, path=settings.reference)
    reference = lay_out_beside(policy, reference_settings, lambda model: Policy(load_backbone(model)))
    if not same_vocabulary(policy.tokenizer, reference.tokenizer):
        raise TutelageError(
            f"The vocabulary of the reference {settings.reference!r} differs from that of {settings.model.path!r}: "
            "their log-probabilities would be of different tokens."
        )
    return reference


def pairs_job(
    settings: DpoSettings,
    policy: Policy,
    loss: PreferenceLoss,
    pairs: tuple[Sequence[Preference], Sequence[Preference]],
    budget: Budget,
) -> PreferenceJob:
    """Return the job that trains on pairs; `pairs` are the training and the held-out pairs."""
    training, aside = pairs
    check_weights([*training, *aside], settings.data)
    max_length = min(settings.max_length, policy.context or settings.max_length)
    train, cuts = encode_preferences(training, policy.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_preferences(aside, policy.tokenizer, max_length)[0] if aside else []
    reference, drift = reference_of(settings, policy), DRIFT in getattr(loss, "needs", ())
    evaluation = evaluation_rows(held_out, settings.evaluate_rows)
    train_pairs, held_out_pairs = (
        refer(reference, part, budget, drift=drift, max_length=max_length) for part in (train, evaluation)
    )
    remark_batch(settings.batch_size, len(train_pairs), "pairs")
    order = Order(train_pairs, settings.batch_size, settings.seed)
    steps = max(1, round(settings.epochs * order.steps_per_epoch))
    job = paired_job(policy, loss, order, steps, budget=budget, held_out=held_out_pairs)
    counts = {"pairs": len(train), "held_out_pairs": len(held_out), "dropped": len(cuts.dropped)}
    return PreferenceJob(job, counts)


def single_answers_job(
    settings: DpoSettings, policy: Policy, loss: Kto, records: Sequence[UnpairedAnswer], budget: Budget
) -> PreferenceJob:
    """Return the job that trains on single labelled answers."""
    max_length = min(settings.max_length, policy.context or settings.max_length)
    prompts = [Prompt(str(number), record.messages) for number, record in enumerate(records)]
    training, aside = (
        [records[int(prompt.id)] for prompt in part]
        for part in split_by_prompt(prompts, settings.held_out, settings.seed)
    )
    train, cuts = encode_unpaired(training, policy.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_unpaired(aside, policy.tokenizer, max_length)[0] if aside else []
    good = sum(labels_of(train))
    remark(_balance(good, len(train) - good, loss))
    reference = reference_of(settings, policy)
    evaluation = evaluation_rows(held_out, settings.evaluate_rows)
    train_answers, held_out_answers = (
        label(reference, answers, budget, max_length=max_length) for answers in (train, evaluation)
    )
    remark_batch(settings.batch_size, len(train_answers), "answers")
    order = Order(train_answers, settings.batch_size, settings.seed)
    steps = max(1, round(settings.epochs * order.steps_per_epoch))
    job = unpaired_job(policy, loss, order, steps, budget=budget, held_out=held_out_answers)
    counts = {"good": good, "bad": len(train) - good, "held_out_answers": len(held_out)}
    return PreferenceJob(job, counts | {"dropped": len(cuts.dropped)})


def _balance(good: int, bad: int, loss: Kto) -> str:
    """Return a remark if one label outweighs the other: the paper keeps λ_d n_d / (λ_u n_u) between 1 and 4/3."""
    weight = loss.desirable * good / max(1e-12, loss.undesirable * bad)
    if 1 <= weight <= 4 / 3 or not bad or not good:
        return ""
    return (
        f"The good answers weigh {weight:.2f} times the bad ones; KTO's authors advise 1 to 1.33. "
        f"--set desirable={loss.desirable / weight:.3g} would balance them."
    )
