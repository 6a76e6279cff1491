"""`tutelage dpo`: a policy from preferences directly, without a reward model and without sampling."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tutelage import config
from tutelage.config.limits import a_share, above_zero, at_least
from tutelage.config.rounds import RoundSettings
from tutelage.config.run import BatchSettings, RunSettings
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.core.preferences import PreferenceLoss
    from tutelage.models.budget import Budget
    from tutelage.models.policy import Policy
    from tutelage.train.run.folder import Run
    from tutelage.train.supervised.job import Job


@dataclass(frozen=True, kw_only=True)
class Settings(RoundSettings, RunSettings, BatchSettings):
    """Train a policy on preferences directly: DPO, cDPO, robust DPO, IPO, hinge, SLiC, KTO, ORPO or SimPO. The
    preferences come from a file (--data), or are made as the policy learns (--prompts): in each of --rounds it answers,
    a reward or a judge compares, and it learns from its best answer against its worst (online, or iterative, DPO)."""

    model: config.Model
    data: str = ""
    """Preferences: a file or hub data set with chosen and rejected answers; the format is recognised. Soft labels,
    weights and margins in it count."""
    loss: str = "dpo"
    """What is minimised: dpo, cdpo, robust, ipo, hinge, slic, kto, orpo, simpo, or module:NAME of your own."""
    set: tuple[str, ...] = ()
    """Changes to the loss, such as beta=0.05 or smoothing=0.1."""
    unpaired: bool = False
    """The data are single answers labelled good or bad (prompt, completion, label); only kto learns from these."""
    judge: str = ""
    """Instead of --reward, a model that compares two answers: the address of an OpenAI-compatible endpoint, such as
    http://localhost:8000/v1. Its key, if it wants one, is read from TUTELAGE_ENDPOINT_KEY."""
    judge_model: str = ""
    """Name of the judge at that endpoint."""
    judge_question: str = "Which response is better?"
    """What the judge is asked about two responses."""
    reference: str = ""
    """Model that the policy is measured against; the model as it starts when empty."""
    lora: config.Lora = field(default_factory=config.Lora)
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(lr=1e-6, warmup=0.1))
    epochs: float = 1.0
    """Passes over the preferences; with --prompts over those of a round."""
    held_out: float = 0.05
    """Share of the prompts kept aside: to measure loss and accuracy, with --prompts the score of a fresh answer. With a
    judge, none."""
    evaluate_every: int = 50
    """Steps between looks at what is held out."""

    def __post_init__(self) -> None:
        BatchSettings.__post_init__(self)
        RoundSettings.__post_init__(self)
        above_zero(self, "epochs")
        at_least(self, evaluate_every=1)
        a_share(self, "held_out")
        if bool(self.data) == bool(self.prompts):
            raise TutelageError(
                "Give either --data, preferences that there are, or --prompts, to which the policy's own answers are "
                "compared by --reward or --judge."
            )
        if self.data:
            _refuse_inert_rounds(self)
            return
        if bool(self.reward) == bool(self.judge):
            raise TutelageError(
                "--prompts needs somebody who compares the answers: either --reward or --judge."
            )
        if bool(self.judge) != bool(self.judge_model):
            raise TutelageError(
                "--judge is an address and --judge-model the name of the model there: give both."
            )
        if self.judge and self.samples != 2:
            raise TutelageError(f"A judge compares two answers; set --samples 2 instead of {self.samples}.")
        usual = (Settings.held_out, Settings.evaluate_every)
        if self.judge and (self.held_out, self.evaluate_every) != usual:
            raise TutelageError(
                "A judge gives no score that could be measured on held-out prompts, so with --judge --held-out and "
                "--evaluate-every would do nothing."
            )
        if self.unpaired:
            raise TutelageError(
                "--unpaired is a form of --data; the policy's own answers always come in pairs."
            )


def _refuse_inert_rounds(settings: Settings) -> None:
    """With preferences from a file, what belongs to rounds would do nothing."""
    names = [*(f.name for f in fields(RoundSettings)), "judge", "judge_model", "judge_question"]
    usual = {f.name: f.default if f.default is not MISSING else None for f in fields(Settings)}
    usual["sampling"] = config.Sampling()
    given = [name for name in names if getattr(settings, name) != usual[name]]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise TutelageError(
            f"With --data nothing is sampled, so {flags} would do nothing; --prompts is their place."
        )


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.commands.runs import begin, budget_of, finish, say
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.train.supervised.job import held_out, train

    loss = _loss(settings)
    records = _records(settings)
    with begin(settings) as run:
        if run is None:
            return 0
        policy = Policy(load_backbone(settings.model, settings.lora, seed=settings.seed))
        budget = budget_of(settings, run, policy)
        job, figures = _job(settings, run, policy, loss, records, budget)
        if run.start == 0 and job.look is not None:
            run.log(0, held_out(job))
        train(
            run,
            policy,
            job,
            settings,
            settings.optimiser,
            budget=budget,
            look_every=settings.evaluate_every,
        )
        told = finish(run, policy.save_whole, figures)
        if "held_out/accuracy" in told:
            accuracy, margin = told["held_out/accuracy"], told["held_out/margin"]
            say(settings, f"held-out accuracy {accuracy:.3f}, margin {margin:.3f}")
        if "held_out/score" in told:
            say(settings, f"held-out score {told['held_out/score']:.3f}")
    return 0


def _records(settings: Settings) -> Sequence[Any]:
    """What is read, before anything is begun."""
    from tutelage.commands.runs import say
    from tutelage.data.formats import load_preferences, load_prompts, load_unpaired

    read = load_prompts if settings.prompts else load_unpaired if settings.unpaired else load_preferences
    loaded = read(settings.prompts or settings.data)
    say(settings, loaded.describe())
    return loaded.records


def _job(
    settings: Settings,
    run: "Run",
    policy: "Policy",
    loss: "PreferenceLoss",
    records: Sequence[Any],
    budget: "Budget",
) -> tuple["Job", Mapping[str, Any]]:
    """What is learnt, and how much there is to learn from."""
    from tutelage.commands.preferring.given import from_pairs, from_single_answers
    from tutelage.core.preferences import Kto

    if settings.prompts:
        from tutelage.commands.preferring.own import from_own_answers

        return from_own_answers(settings, run, policy, loss, records, budget)
    if settings.unpaired:
        assert isinstance(loss, Kto)
        return from_single_answers(settings, policy, loss, records, budget)
    return from_pairs(settings, policy, loss, records, budget)


def _loss(settings: Settings) -> "PreferenceLoss":
    from tutelage.core.preferences import Kto
    from tutelage.train.supervised.preference_losses import preference_loss

    loss = preference_loss(settings.loss, settings.set)
    if settings.unpaired and not isinstance(loss, Kto):
        raise TutelageError(
            f"--loss {settings.loss} compares two answers to one prompt; of single labelled answers only kto learns."
        )
    return loss
