"""Jobs that learn from the preferences of a file: pairs, or single answers labelled good or bad."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tutelage.base.errors import TutelageError
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.layout import lay_out_beside
from tutelage.commands.runs import check_weights, remark, remark_batch
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
from tutelage.train.supervised.unpaired_job import encode_unpaired, label, unpaired_job


@dataclass(frozen=True)
class PreferenceJob:
    """A job over preferences, with the counts of what it learns from, for summary.json."""

    job: Job
    counts: Mapping[str, int]


def reference_of(settings: DpoSettings, policy: Policy) -> Policy:
    """The model that the settings name as the reference, or the policy itself, which has learnt nothing yet."""
    if not settings.reference:
        return policy
    named = replace(settings.model, path=settings.reference)
    reference = lay_out_beside(policy, named, lambda model: Policy(load_backbone(model)))
    if not same_vocabulary(policy.tokenizer, reference.tokenizer):
        raise TutelageError(
            f"The reference {settings.reference!r} has another vocabulary than {settings.model.path!r}: their "
            "log-probabilities would be of different tokens."
        )
    return reference


def pairs_job(
    settings: DpoSettings,
    policy: Policy,
    loss: PreferenceLoss,
    pairs: tuple[Sequence[Preference], Sequence[Preference]],
    budget: Budget,
) -> PreferenceJob:
    """The job of learning from pairs: those to train on, and those held out."""
    kept, aside = pairs
    check_weights([*kept, *aside], settings.data)
    max_length = min(settings.max_length, policy.context or settings.max_length)
    train, cuts = encode_preferences(kept, policy.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_preferences(aside, policy.tokenizer, max_length)[0] if aside else []
    reference, drift = reference_of(settings, policy), DRIFT in getattr(loss, "needs", ())
    known, known_aside = (
        refer(reference, part, budget, drift=drift, max_length=max_length) for part in (train, held_out)
    )
    remark_batch(settings.batch_size, len(known), "pairs")
    order = Order(known, settings.batch_size, settings.seed)
    steps = max(1, round(settings.epochs * order.steps_per_epoch))
    job = paired_job(policy, loss, order, steps, budget=budget, held_out=known_aside)
    counts = {"pairs": len(train), "held_out_pairs": len(held_out), "dropped": len(cuts.dropped)}
    return PreferenceJob(job, counts)


def single_answers_job(
    settings: DpoSettings, policy: Policy, loss: Kto, records: Sequence[UnpairedAnswer], budget: Budget
) -> PreferenceJob:
    """The job of learning from single labelled answers."""
    max_length = min(settings.max_length, policy.context or settings.max_length)
    prompts = [Prompt(str(number), record.messages) for number, record in enumerate(records)]
    kept, aside = (
        [records[int(prompt.id)] for prompt in part]
        for part in split_by_prompt(prompts, settings.held_out, settings.seed)
    )
    train, cuts = encode_unpaired(kept, policy.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_unpaired(aside, policy.tokenizer, max_length)[0] if aside else []
    good = sum(liked for _, liked in train)
    remark(_balance(good, len(train) - good, loss))
    reference = reference_of(settings, policy)
    known, known_aside = (
        label(reference, answers, budget, max_length=max_length) for answers in (train, held_out)
    )
    remark_batch(settings.batch_size, len(known), "answers")
    order = Order(known, settings.batch_size, settings.seed)
    steps = max(1, round(settings.epochs * order.steps_per_epoch))
    job = unpaired_job(policy, loss, order, steps, budget=budget, held_out=known_aside)
    counts = {"good": good, "bad": len(train) - good, "held_out_answers": len(held_out)}
    return PreferenceJob(job, counts | {"dropped": len(cuts.dropped)})


def _balance(good: int, bad: int, loss: Kto) -> str:
    """A remark where one label outweighs the other: the paper keeps λ_d n_d / (λ_u n_u) between 1 and 4/3."""
    weight = loss.desirable * good / max(1e-12, loss.undesirable * bad)
    if 1 <= weight <= 4 / 3 or not bad or not good:
        return ""
    return (
        f"The good answers weigh {weight:.2f} times the bad ones; KTO's authors advise 1 to 1.33. "
        f"--set desirable={loss.desirable / weight:.3g} would balance them."
    )
