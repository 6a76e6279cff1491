"""`tutelage pretrain`: a language model from plain text."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tutelage import config
from tutelage.config.limits import a_share, above_zero, at_least
from tutelage.config.run import BatchSettings, RunSettings
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.core.rows import Encoded
    from tutelage.engines.network import Backbone
    from tutelage.models.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings, BatchSettings):
    """Train a language model on plain text: a new small Llama with its own tokenizer, or further training of a model
    that exists."""

    data: str
    """Text: a .txt file with documents between blank lines, a file with a `text` column, or a hub data set."""
    model: str = ""
    """Folder or hub name of a model to train further; empty makes a new one of the size in --shape."""
    dtype: Literal["float32", "bf16"] = "float32"
    """Precision of the arithmetic; the weights being trained stay float32."""
    device: str = "auto"
    """Where it runs: auto (a GPU when there is one), cpu, cuda, ..."""
    shape: config.Shape = field(default_factory=config.Shape)
    optimiser: config.Optimiser = field(
        default_factory=lambda: config.Optimiser(
            lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1, warmup=0.05, schedule="cosine"
        )
    )
    epochs: float = 1.0
    """Passes over the text."""
    held_out: float = 0.02
    """Share of the documents kept aside to measure perplexity."""
    evaluate_every: int = 50
    """Steps between looks at the held-out text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "epochs")
        at_least(self, evaluate_every=1)
        a_share(self, "held_out")
        if self.model and self.shape != config.Shape():
            raise TutelageError(
                f"--shape describes a new model, but --model {self.model} names one that exists. Leave one of them out."
            )


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.commands.runs import begin, budget_of, finish, say
    from tutelage.data.formats import load_texts
    from tutelage.models.policy import Policy
    from tutelage.train.supervised.language import LanguageJob, train_language

    loaded = load_texts(settings.data)
    say(settings, loaded.describe())
    with begin(settings) as run:
        if run is None:
            return 0
        policy = Policy(_backbone(settings, list(loaded.records)))
        train, held_out = _rows(settings, policy, loaded.records)
        say(
            settings,
            f"{sum(map(len, train)):,} tokens to train on, {sum(p.numel() for p in policy.parameters()):,} weights.",
        )
        job = LanguageJob(train, held_out, settings.epochs, settings.evaluate_every, "pretrain")
        budget = budget_of(settings, run, policy)
        train_language(run, policy, job, settings, settings, settings.optimiser, budget)
        finish(run, policy.save_whole)
    return 0


def _backbone(settings: Settings, texts: list[str]) -> "Backbone":
    from tutelage.models.backbone import load_backbone
    from tutelage.models.fresh import save_fresh

    path = settings.model
    if not path:
        start = settings.out / "start"
        if not (start / "tokenizer.json").is_file():
            save_fresh(texts, settings.shape, start, settings.seed)
        path = str(start)
    model = config.Model(path=path, dtype=settings.dtype, device=settings.device)
    return load_backbone(model, config.Lora())


def _rows(
    settings: Settings, policy: "Policy", texts: tuple[str, ...]
) -> tuple[list["Encoded"], list["Encoded"]]:
    from tutelage.train.supervised.batches import windows
    from tutelage.train.supervised.language import divide

    end = policy.end_ids[0]
    tokens = policy.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    context = min(settings.max_length, policy.context or settings.max_length)
    sides = []
    for side in divide(len(tokens), settings.held_out, settings.seed):
        stream = [end] + [token for i in side for token in (*tokens[i], end)]
        sides.append(windows(stream, context))
    if not sides[0]:
        raise TutelageError(f"{settings.data} holds no text to train on.")
    return sides[0], sides[1]
