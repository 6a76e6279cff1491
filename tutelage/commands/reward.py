"""`tutelage reward`: a reward model from preferences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tutelage import config
from tutelage.config.limits import a_share, above_zero, at_least
from tutelage.config.run import BatchSettings, RunSettings
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.commands.collecting.training import Drawn
    from tutelage.core.scoring_losses import ScoringLoss
    from tutelage.data.records import Preference
    from tutelage.models.budget import Budget
    from tutelage.models.heads import ScalarModel
    from tutelage.train.supervised.batches import EncodedPair

LossName: TypeAlias = Literal["soft", "bt", "margin", "scaled", "davidson"]
Kind: TypeAlias = Literal["human", "llm", "simulated"]
ASKED_MARGINS = ("margin", "scaled")


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings, BatchSettings):
    """Train a reward model: a language model with one linear output at the last token, fitted to preferences by
    −log σ(score of the chosen − score of the rejected)."""

    model: config.Model
    data: str
    """Preferences: a file or hub data set with chosen and rejected answers, whose format is recognised; or a study: its
    folder, its database file, or a postgresql:// URL."""
    study: str = ""
    """The study's name, where the database of --data holds several."""
    kinds: tuple[Kind, ...] = ("human", "simulated")
    """Kinds of rater that count, where --data is a study."""
    loss: LossName = "soft"
    """soft: labels as likely as they are; bt: as if certain; margin: asks for a lead by strength; scaled: weighs by
    strength; davidson: pairs found equal are kept, and how readily raters call it a tie is learnt."""
    test: str = ""
    """Preferences to measure accuracy on at the end, such as single votes; the held-out pairs when empty."""
    centre: str = ""
    """Demonstrations on which the mean score becomes 0; the chosen answers when empty."""
    lora: config.Lora = field(default_factory=config.Lora)
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(lr=1e-5, warmup=0.05))
    epochs: float = 1.0
    """Passes over the preferences; more than one or two over-fits."""
    held_out: float = 0.1
    """Share of the prompts kept aside to measure loss and accuracy."""
    evaluate_every: int = 20
    """Steps between looks at the held-out pairs; the best of them is the model that is kept."""
    patience: int = 5
    """Stop after this many looks without a better held-out loss; 0 never stops early."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "epochs")
        at_least(self, evaluate_every=1, patience=0)
        a_share(self, "held_out")


@dataclass(frozen=True)
class Given:
    """The pairs to learn and those held out; with the study they come from, if they do."""

    train: Sequence["Preference"]
    held_out: Sequence["Preference"]
    told: tuple[str, ...]
    study: "Drawn | None" = None


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.commands.collecting.training import remember
    from tutelage.commands.runs import begin, budget_of, finish, say
    from tutelage.models.heads import new_reward_model
    from tutelage.train.supervised.batches import encode_preferences
    from tutelage.train.supervised.reward_model import RewardJob, train_reward_model

    given = _read(settings)
    for line in (*given.told, *_remarks(settings, given)):
        say(settings, line)
    with begin(settings) as run:
        if run is None:
            return 0
        if given.study is not None:
            remember(given.study, run.path)
        model = new_reward_model(settings.model, settings.lora, seed=settings.seed)
        max_length = min(settings.max_length, model.context or settings.max_length)
        train, cuts = encode_preferences(given.train, model.tokenizer, max_length)
        say(settings, cuts.describe(max_length))
        held_out = (
            encode_preferences(given.held_out, model.tokenizer, max_length)[0] if given.held_out else []
        )
        loss = _loss(settings)
        job = RewardJob(train, held_out, settings.epochs, settings.evaluate_every, settings.patience, loss)
        budget = budget_of(settings, run, model)
        train_reward_model(run, model, job, settings, settings, settings.optimiser, budget)
        figures: dict[str, Any] = {"pairs": len(train), "held_out_pairs": len(held_out)}
        figures |= _ties(loss) | _centre(model, train, settings, max_length)
        figures |= _quality(model, held_out, settings, max_length, budget, given.study)
        finish(run, model.save_whole, figures)
        for line in _outcome(figures):
            say(settings, line)
    return 0


def _read(settings: Settings) -> Given:
    """The pairs of a file, or of a study at the moment when this run began."""
    from tutelage.commands.collecting.training import draw, study_address
    from tutelage.data.formats import load_preferences
    from tutelage.data.pairing import split_by_prompt

    address = study_address(settings.data)
    if address is None:
        loaded = load_preferences(settings.data)
        kept, aside = split_by_prompt(loaded.records, settings.held_out, settings.seed)
        return Given(kept, aside, (loaded.describe(),))
    from tutelage.people import Selection

    selection = Selection(
        kinds=settings.kinds,
        ties="keep" if settings.loss == "davidson" else "drop",
        margins=settings.loss in ASKED_MARGINS,
    )
    share = settings.held_out
    drawn = draw(address, settings.study, selection, held_out=share, seed=settings.seed, run=settings.out)
    return Given(drawn.train, drawn.held_out, drawn.told, drawn)


def _remarks(settings: Settings, given: Given) -> tuple[str, ...]:
    """What the loss makes of these pairs that may surprise. Raises TutelageError where it could learn nothing."""
    strong = sum(pair.margin > 0 for pair in given.train)
    if settings.loss in ASKED_MARGINS and not strong:
        raise TutelageError(
            f"The loss {settings.loss} reads how strong each preference is, but {settings.data} does not say: every "
            "margin is 0. Use --loss soft."
        )
    if settings.loss == "scaled" and strong < len(given.train):
        return (f"{len(given.train) - strong:,} pairs without a strength weigh nothing.",)
    if settings.loss not in ASKED_MARGINS and strong:
        return (f"{strong:,} pairs have a margin, which the loss {settings.loss} does not read.",)
    if settings.loss == "davidson" and not any(pair.p_chosen == 0.5 for pair in given.train):
        return ("No pair is a tie, so the loss davidson is the loss soft.",)
    return ()


def _loss(settings: Settings) -> "ScoringLoss":
    from tutelage.core.scoring_losses import SCORING_LOSSES, LearnedDavidson

    return LearnedDavidson() if settings.loss == "davidson" else SCORING_LOSSES[settings.loss]


def _ties(loss: "ScoringLoss") -> dict[str, float]:
    """ν where it was learnt: 2 P(tie)/(1 − P(tie)) between answers of equal score."""
    from tutelage.core.scoring_losses import LearnedDavidson

    return {"davidson/nu": float(loss.log_ties.detach().exp())} if isinstance(loss, LearnedDavidson) else {}


def _outcome(figures: dict[str, Any]) -> list[str]:
    """The figures that matter, a line each."""
    if "accuracy" not in figures:
        return []
    low, high = figures["accuracy_interval"]
    told = [f"accuracy {figures['accuracy']:.3f}{_between(low, high)} on {figures['n']} pairs"]
    told += [
        f"  {each['strength']:<12} {each['accuracy']:.3f}{_between(*each['interval'])} on {each['n']} pairs"
        for each in figures.get("by_strength", ())
    ]
    votes, ceiling = figures.get("votes"), figures.get("ceiling")
    if votes and votes["accuracy"] is not None:
        told.append(
            f"single votes {votes['accuracy']:.3f}{_between(*votes['interval'])} on {votes['n']} votes"
        )
    if ceiling:
        told.append(
            f"their noise allows {ceiling['value']:.3f}{_between(*ceiling['interval'])}: two raters agree in "
            f"{ceiling['agreement']:.1%}"
        )
    return told


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def _centre(
    model: "ScalarModel", train: Sequence["EncodedPair"], settings: Settings, max_length: int
) -> dict[str, Any]:
    """Make the mean score 0 on the demonstrations."""
    from tutelage.core.rows import collate
    from tutelage.data.chat import pad_token_id
    from tutelage.data.formats import load_demonstrations
    from tutelage.models.heads import centre
    from tutelage.train.supervised.batches import encode_demonstrations

    rows = [pair.chosen for pair in train]
    if settings.centre:
        records = load_demonstrations(settings.centre).records
        rows = encode_demonstrations(records, model.tokenizer, max_length)[0]
    rows = rows[:2048]
    pad = pad_token_id(model.tokenizer)
    batches = [collate(rows[i : i + 32], pad, model.device) for i in range(0, len(rows), 32)]
    before, disturbance = centre(model, batches)
    return {"centre/mean_before": before, "centre/disturbance": disturbance}


def _quality(
    model: "ScalarModel",
    held_out: Sequence["EncodedPair"],
    settings: Settings,
    max_length: int,
    budget: "Budget",
    study: "Drawn | None",
) -> dict[str, Any]:
    """Accuracy with its interval, and calibration, on the test or held-out pairs; on those of a study also by strength
    and against single votes."""
    from tutelage.commands.collecting.training import figures
    from tutelage.data.formats import load_preferences
    from tutelage.evaluate.reward_quality import reward_quality
    from tutelage.train.supervised.batches import encode_preferences
    from tutelage.train.supervised.reward_model import pair_scores

    if settings.test:
        study = None
        held_out = encode_preferences(load_preferences(settings.test).records, model.tokenizer, max_length)[0]
    if not held_out:
        return {}
    chosen, rejected = pair_scores(model, held_out, budget)
    prompts = [str(pair.chosen.prompt) for pair in held_out]
    p_chosen = [pair.source.p_chosen for pair in held_out]
    differences = (chosen - rejected).tolist()
    found = reward_quality(differences, p_chosen, prompts)
    if study is not None:
        found |= figures(study, differences, [pair.source for pair in held_out])
    return found
