"""`tutelage reward`: a reward model from preferences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tutelage import config
from tutelage.config.limits import a_share, above_zero, at_least
from tutelage.config.run import BatchSettings, RunSettings

if TYPE_CHECKING:
    from tutelage.models.heads import ScalarModel
    from tutelage.train.batches import EncodedPair


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings, BatchSettings):
    """Train a reward model: a language model with one linear output at the last token, fitted to preferences by
    −log σ(score of the chosen − score of the rejected)."""

    model: config.Model
    data: str
    """Preferences: a file or hub data set with chosen and rejected answers; the format is recognised."""
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


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.data.formats import load_preferences
    from tutelage.data.pairing import split_by_prompt
    from tutelage.models.heads import new_reward_model
    from tutelage.train.batches import encode_preferences
    from tutelage.train.reward_model import RewardJob, train_reward_model
    from tutelage.verbs.runs import begin, finish, say

    loaded = load_preferences(settings.data)
    say(settings, loaded.describe())
    with begin(settings) as run:
        if run is None:
            return 0
        model = new_reward_model(settings.model, settings.lora, seed=settings.seed)
        max_length = min(settings.max_length, model.context or settings.max_length)
        kept, aside = split_by_prompt(loaded.records, settings.held_out, settings.seed)
        train, cuts = encode_preferences(kept, model.tokenizer, max_length)
        say(settings, cuts.describe(max_length))
        held_out = encode_preferences(aside, model.tokenizer, max_length)[0] if aside else []
        job = RewardJob(train, held_out, settings.epochs, settings.evaluate_every, settings.patience)
        train_reward_model(run, model, job, settings, settings, settings.optimiser)
        figures: dict[str, Any] = {"pairs": len(train), "held_out_pairs": len(held_out)}
        figures |= _centre(model, train, settings, max_length)
        figures |= _quality(model, held_out, settings, max_length)
        finish(run, model.save_whole, figures)
        if "accuracy" in figures:
            low, high = figures["accuracy_interval"]
            say(
                settings,
                f"accuracy {figures['accuracy']:.3f} ({low:.3f} to {high:.3f}) on {figures['n']} pairs",
            )
    return 0


def _centre(
    model: "ScalarModel", train: Sequence["EncodedPair"], settings: Settings, max_length: int
) -> dict[str, Any]:
    """Make the mean score 0 on the demonstrations."""
    from tutelage.data.chat import pad_token_id
    from tutelage.data.formats import load_demonstrations
    from tutelage.models.heads import centre
    from tutelage.models.rows import collate
    from tutelage.train.batches import encode_demonstrations

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
    model: "ScalarModel", held_out: Sequence["EncodedPair"], settings: Settings, max_length: int
) -> dict[str, Any]:
    """Accuracy with its interval, and calibration, on the test or held-out pairs."""
    from tutelage.data.formats import load_preferences
    from tutelage.evaluate.reward_quality import reward_quality
    from tutelage.train.batches import encode_preferences
    from tutelage.train.reward_model import pair_scores

    if settings.test:
        held_out = encode_preferences(load_preferences(settings.test).records, model.tokenizer, max_length)[0]
    if not held_out:
        return {}
    chosen, rejected = pair_scores(model, held_out, settings.tokens_at_once)
    prompts = [str(pair.chosen.prompt) for pair in held_out]
    p_chosen = [pair.source.p_chosen for pair in held_out]
    return reward_quality((chosen - rejected).tolist(), p_chosen, prompts)
