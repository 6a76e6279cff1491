"""Preferences from a file, as jobs for training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tutelage import config
from tutelage.commands.dpo import Settings
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.core.preferences import Kto, PreferenceLoss
    from tutelage.data.records import Preference
    from tutelage.data.unpaired import Unpaired
    from tutelage.models.budget import Budget
    from tutelage.models.policy import Policy
    from tutelage.train.supervised.job import Job


def reference_of(settings: Settings, policy: "Policy") -> "Policy":
    """The policy itself, which has learnt nothing yet, or the model that is named."""
    from tutelage.data.tokenizer import same_vocabulary
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    if not settings.reference:
        return policy
    named = config.Model(path=settings.reference, dtype=settings.model.dtype, device=settings.model.device)
    reference = Policy(load_backbone(named))
    if not same_vocabulary(policy.tokenizer, reference.tokenizer):
        raise TutelageError(
            f"The reference {settings.reference!r} has another vocabulary than {settings.model.path!r}: their "
            "log-probabilities would be of different tokens."
        )
    return reference


def from_pairs(
    settings: Settings,
    policy: "Policy",
    loss: "PreferenceLoss",
    records: Sequence["Preference"],
    budget: "Budget",
) -> tuple["Job", Mapping[str, Any]]:
    """The job of learning from pairs, and how many there are."""
    from tutelage.commands.runs import say
    from tutelage.data.pairing import split_by_prompt
    from tutelage.train.supervised.batches import Order, encode_preferences
    from tutelage.train.supervised.preference_training import DRIFT, paired_job, refer

    max_length = min(settings.max_length, policy.context or settings.max_length)
    kept, aside = split_by_prompt(records, settings.held_out, settings.seed)
    train, cuts = encode_preferences(kept, policy.tokenizer, max_length)
    say(settings, cuts.describe(max_length))
    held_out = encode_preferences(aside, policy.tokenizer, max_length)[0] if aside else []
    reference, drift = reference_of(settings, policy), DRIFT in getattr(loss, "needs", ())
    known, known_aside = (
        refer(reference, pairs, budget, drift=drift, max_length=max_length) for pairs in (train, held_out)
    )
    order = Order(known, settings.batch_size, settings.seed)
    steps = max(1, round(settings.epochs * order.steps_per_epoch))
    job = paired_job(policy, loss, order, steps, budget=budget, held_out=known_aside)
    return job, {"pairs": len(train), "held_out_pairs": len(held_out)}


def from_single_answers(
    settings: Settings, policy: "Policy", loss: "Kto", records: Sequence["Unpaired"], budget: "Budget"
) -> tuple["Job", Mapping[str, Any]]:
    """The job of learning from single labelled answers, and how many there are."""
    from tutelage.commands.runs import say
    from tutelage.data.pairing import split_by_prompt
    from tutelage.data.records import Prompt
    from tutelage.train.supervised.batches import Order
    from tutelage.train.supervised.desirability import encode_unpaired, label, unpaired_job

    max_length = min(settings.max_length, policy.context or settings.max_length)
    prompts = [Prompt(str(number), record.messages) for number, record in enumerate(records)]
    kept, aside = (
        [records[int(prompt.id)] for prompt in part]
        for part in split_by_prompt(prompts, settings.held_out, settings.seed)
    )
    train, cuts = encode_unpaired(kept, policy.tokenizer, max_length)
    say(settings, cuts.describe(max_length))
    held_out = encode_unpaired(aside, policy.tokenizer, max_length)[0] if aside else []
    good = sum(liked for _, liked in train)
    say(settings, _balance(good, len(train) - good, loss))
    reference = reference_of(settings, policy)
    known, known_aside = (
        label(reference, answers, budget, max_length=max_length) for answers in (train, held_out)
    )
    order = Order(known, settings.batch_size, settings.seed)
    steps = max(1, round(settings.epochs * order.steps_per_epoch))
    job = unpaired_job(policy, loss, order, steps, budget=budget, held_out=known_aside)
    return job, {"good": good, "bad": len(train) - good, "held_out_answers": len(held_out)}


def _balance(good: int, bad: int, loss: "Kto") -> str:
    """A word where one label outweighs the other: the paper keeps λ_d n_d / (λ_u n_u) between 1 and 4/3."""
    weight = loss.desirable * good / max(1e-12, loss.undesirable * bad)
    if 1 <= weight <= 4 / 3 or not bad or not good:
        return ""
    return (
        f"The good answers weigh {weight:.2f} times the bad ones; KTO's authors advise 1 to 1.33. "
        f"--set desirable={loss.desirable / weight:.3g} would balance them."
    )
