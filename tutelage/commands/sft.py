"""`tutelage sft`: supervised fine-tuning on demonstrations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tutelage import config
from tutelage.config.limits import a_share, above_zero, at_least
from tutelage.config.run import BatchSettings, RunSettings
from tutelage.data.records import Demonstration, Prompt

if TYPE_CHECKING:
    from tutelage.models.policy import Policy
    from tutelage.train.run.folder import Run


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings, BatchSettings):
    """Fine-tune a language model on demonstrations: the loss is on the responses only."""

    model: config.Model
    data: str
    """Demonstrations: a file (json, jsonl, csv, parquet; also .gz) or hub data set; the format is recognised."""
    lora: config.Lora = field(default_factory=config.Lora)
    optimiser: config.Optimiser = field(
        default_factory=lambda: config.Optimiser(lr=2e-5, warmup=0.03, schedule="cosine")
    )
    epochs: float = 1.0
    """Passes over the demonstrations."""
    held_out: float = 0.05
    """Share of the demonstrations kept aside to measure perplexity and ROUGE."""
    evaluate_every: int = 50
    """Steps between looks at the held-out demonstrations."""
    samples: int = 4
    """Held-out prompts that are answered before and after, to read."""
    rouge: int = 32
    """Held-out prompts that are answered greedily at the end and compared with their references; 0 for none."""
    max_new_tokens: int = 128
    """Length limit of those answers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "epochs")
        at_least(self, evaluate_every=1, samples=0, rouge=0, max_new_tokens=1)
        a_share(self, "held_out")


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.commands.runs import begin, budget_of, finish, say
    from tutelage.data.formats import load_demonstrations
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.train.supervised.batches import encode_demonstrations
    from tutelage.train.supervised.language import LanguageJob, divide, held_out_metrics, train_language

    loaded = load_demonstrations(settings.data)
    say(settings, loaded.describe())
    with begin(settings) as run:
        if run is None:
            return 0
        policy = Policy(load_backbone(settings.model, settings.lora, seed=settings.seed))
        max_length = min(settings.max_length, policy.context or settings.max_length)
        kept, aside = divide(len(loaded.records), settings.held_out, settings.seed)
        records = loaded.records
        train, cuts = encode_demonstrations([records[i] for i in kept], policy.tokenizer, max_length)
        say(settings, cuts.describe(max_length))
        held_records = [records[i] for i in aside]
        held_out = (
            encode_demonstrations(held_records, policy.tokenizer, max_length)[0] if held_records else []
        )
        answerable = [record for record in held_records if _leaves_room(record, policy, settings)]
        shown = answerable[: settings.samples]
        budget = budget_of(settings, run, policy)
        if run.start == 0 and held_out:
            before = held_out_metrics(policy, held_out, budget)
            run.log(0, before)
            _write_samples(run, policy, 0, shown, settings)

        def at_end(step: int) -> None:
            _write_samples(run, policy, step, shown, settings)

        job = LanguageJob(train, held_out, settings.epochs, settings.evaluate_every, "sft", at_end)
        train_language(run, policy, job, settings, settings, settings.optimiser, budget)
        figures = _rouge(policy, answerable[: settings.rouge], settings)
        finish(run, policy.save_whole, figures)
    return 0


def _leaves_room(record: Demonstration, policy: "Policy", settings: Settings) -> bool:
    """Whether the model's context holds the prompt and an answer of full length."""
    from tutelage.data.chat import encode

    prompt, _ = encode(record.messages, None, policy.tokenizer)
    return policy.context is None or len(prompt) + settings.max_new_tokens <= policy.context


def _answers(policy: "Policy", records: Sequence[Demonstration], settings: Settings) -> list[str]:
    """Greedy answers to the prompts of the records."""
    from tutelage.infer.answering import answer

    prompts = [Prompt(str(number), record.messages) for number, record in enumerate(records)]
    sampling = config.Sampling(temperature=0.0, max_new_tokens=settings.max_new_tokens)
    return list(answer(policy, prompts, 1, sampling, seed=settings.seed).texts)


def _write_samples(
    run: "Run", policy: "Policy", step: int, records: Sequence[Demonstration], settings: Settings
) -> None:
    if not records:
        return
    rows = zip(records, _answers(policy, records, settings), strict=True)
    run.samples(
        step,
        [
            {
                "prompt": record.messages[-1].content if record.messages else "",
                "completion": text,
                "reference": record.response,
            }
            for record, text in rows
        ],
    )


def _rouge(policy: "Policy", records: Sequence[Demonstration], settings: Settings) -> dict[str, float]:
    """ROUGE of greedy answers against the held-out responses."""
    from tutelage.evaluation.text import rouge

    if not records:
        return {}
    scores = rouge(_answers(policy, records, settings), [record.response for record in records])
    return {f"held_out/{name}": value for name, value in scores.items()}
