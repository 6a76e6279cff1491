"""`tutelage dpo`: a policy from preferences directly, without a reward model and without sampling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tutelage import config
from tutelage.config.limits import a_share, above_zero, at_least
from tutelage.config.run import BatchSettings, RunSettings
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.core.preferences import PreferenceLoss
    from tutelage.models.policy import Policy
    from tutelage.train.preference_training import PreferenceJob


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings, BatchSettings):
    """Train a policy on preferences directly: DPO, cDPO, robust DPO, IPO, hinge, SLiC, KTO, ORPO or SimPO."""

    model: config.Model
    data: str
    """Preferences: a file or hub data set with chosen and rejected answers; the format is recognised. Soft labels,
    weights and margins in it count."""
    loss: str = "dpo"
    """What is minimised: dpo, cdpo, robust, ipo, hinge, slic, kto, orpo, simpo, or module:NAME of your own."""
    set: tuple[str, ...] = ()
    """Changes to the loss, such as beta=0.05 or smoothing=0.1."""
    unpaired: bool = False
    """The data are single answers labelled good or bad (prompt, completion, label); only kto learns from these."""
    reference: str = ""
    """Model that the policy is measured against; the model as it starts when empty."""
    lora: config.Lora = field(default_factory=config.Lora)
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(lr=1e-6, warmup=0.1))
    epochs: float = 1.0
    """Passes over the preferences."""
    held_out: float = 0.05
    """Share of the prompts kept aside to measure loss and accuracy."""
    evaluate_every: int = 50
    """Steps between looks at what is held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "epochs")
        at_least(self, evaluate_every=1)
        a_share(self, "held_out")


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.train.preference_training import train_preferences
    from tutelage.verbs.runs import begin, finish, say

    loss = _loss(settings)
    with begin(settings) as run:
        if run is None:
            return 0
        policy = Policy(load_backbone(settings.model, settings.lora, seed=settings.seed))
        job, figures = (_single if settings.unpaired else _pairs)(settings, policy, loss)
        if run.start == 0 and job.look is not None:
            run.log(0, {f"held_out/{name}": value for name, value in job.look().items()})
        train_preferences(
            run,
            policy,
            job,
            settings,
            settings,
            settings.optimiser,
            epochs=settings.epochs,
            look_every=settings.evaluate_every,
        )
        told = finish(run, policy.save_whole, figures)
        if "held_out/accuracy" in told:
            say(
                settings,
                f"held-out accuracy {told['held_out/accuracy']:.3f}, margin {told['held_out/margin']:.3f}",
            )
    return 0


def _loss(settings: Settings) -> "PreferenceLoss":
    from tutelage.core.preferences import Kto
    from tutelage.train.preference_losses import preference_loss

    loss = preference_loss(settings.loss, settings.set)
    if settings.unpaired and not isinstance(loss, Kto):
        raise TutelageError(
            f"--loss {settings.loss} compares two answers to one prompt; of single labelled answers only kto learns."
        )
    return loss


def _reference(settings: Settings, policy: "Policy") -> "Policy":
    """The policy itself, which has learnt nothing yet, or the model that is named."""
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.models.rewards import same_vocabulary

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


def _pairs(
    settings: Settings, policy: "Policy", loss: "PreferenceLoss"
) -> tuple["PreferenceJob", Mapping[str, Any]]:
    """The job of learning from pairs, and how many there are."""
    from tutelage.data.formats import load_preferences
    from tutelage.data.pairing import split_by_prompt
    from tutelage.train.batches import encode_preferences
    from tutelage.train.preference_training import DRIFT, paired_job, refer
    from tutelage.verbs.runs import say

    loaded = load_preferences(settings.data)
    say(settings, loaded.describe())
    max_length = min(settings.max_length, policy.context or settings.max_length)
    kept, aside = split_by_prompt(loaded.records, settings.held_out, settings.seed)
    train, cuts = encode_preferences(kept, policy.tokenizer, max_length)
    say(settings, cuts.describe(max_length))
    held_out = encode_preferences(aside, policy.tokenizer, max_length)[0] if aside else []
    reference, drift = _reference(settings, policy), DRIFT in getattr(loss, "needs", ())
    known, known_aside = (
        refer(reference, pairs, settings.tokens_at_once, drift=drift, max_length=max_length)
        for pairs in (train, held_out)
    )
    job = paired_job(policy, loss, known, known_aside, settings, settings.seed)
    return job, {"pairs": len(train), "held_out_pairs": len(held_out)}


def _single(
    settings: Settings, policy: "Policy", loss: "PreferenceLoss"
) -> tuple["PreferenceJob", Mapping[str, Any]]:
    """The job of learning from single labelled answers, and how many there are."""
    from tutelage.core.preferences import Kto
    from tutelage.data.formats import load_unpaired
    from tutelage.data.pairing import split_by_prompt
    from tutelage.data.records import Prompt
    from tutelage.train.desirability import encode_unpaired, label, unpaired_job
    from tutelage.verbs.runs import say

    assert isinstance(loss, Kto)
    loaded = load_unpaired(settings.data)
    say(settings, loaded.describe())
    max_length = min(settings.max_length, policy.context or settings.max_length)
    prompts = [Prompt(str(number), record.messages) for number, record in enumerate(loaded.records)]
    kept, aside = (
        [loaded.records[int(prompt.id)] for prompt in part]
        for part in split_by_prompt(prompts, settings.held_out, settings.seed)
    )
    train, cuts = encode_unpaired(kept, policy.tokenizer, max_length)
    say(settings, cuts.describe(max_length))
    held_out = encode_unpaired(aside, policy.tokenizer, max_length)[0] if aside else []
    good = sum(liked for _, liked in train)
    say(settings, _balance(good, len(train) - good, loss))
    reference = _reference(settings, policy)
    known, known_aside = (
        label(reference, answers, settings.tokens_at_once, max_length=max_length)
        for answers in (train, held_out)
    )
    job = unpaired_job(policy, loss, known, known_aside, settings, settings.seed)
    return job, {"good": good, "bad": len(train) - good, "held_out_answers": len(held_out)}


def _balance(good: int, bad: int, loss: Any) -> str:
    """A word where one label outweighs the other: the paper keeps λ_d n_d / (λ_u n_u) between 1 and 4/3."""
    weight = loss.desirable * good / max(1e-12, loss.undesirable * bad)
    if 1 <= weight <= 4 / 3 or not bad or not good:
        return ""
    return (
        f"The good answers weigh {weight:.2f} times the bad ones; KTO's authors advise 1 to 1.33. "
        f"--set desirable={loss.desirable / weight:.3g} would balance them."
    )
