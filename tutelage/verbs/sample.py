"""`tutelage sample`: answers to prompts, and pairs of them to compare."""

from dataclasses import dataclass, field
from pathlib import Path

from tutelage import config
from tutelage.config.limits import at_least
from tutelage.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sample answers to prompts. Writes prompts.jsonl and completions.jsonl and, with --pairs, comparisons.jsonl: the
    questions that people can then be asked."""

    model: config.Model
    prompts: str
    """Prompts: a file or hub data set; any format of demonstrations or preferences serves too."""
    out: Path
    """Folder to write to."""
    n: int = 2
    """Answers to each prompt."""
    pairs: int = 0
    """Pairs of different answers to compare per prompt; 0 for none."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Seed of the sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        at_least(self, n=1, pairs=0)
        if self.pairs and self.n < 2:
            raise TutelageError("--pairs needs two answers to each prompt: set --n 2 or more.")
        if self.n > 1 and self.sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 all answers to a prompt are the same: set --n 1, or a temperature."
            )


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.data.formats import load_prompts
    from tutelage.data.pairing import count_repeated, pair_completions
    from tutelage.data.rows import to_row, write_jsonl
    from tutelage.infer.answering import answer, completions
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.verbs.runs import say

    loaded = load_prompts(settings.prompts)
    say(settings, loaded.describe())
    policy = Policy(load_backbone(settings.model))
    answered = answer(policy, loaded.records, settings.n, settings.sampling, seed=settings.seed)
    records = completions(answered, settings.model.path, settings.sampling)
    settings.out.mkdir(parents=True, exist_ok=True)
    config.save(settings, settings.out / "config.json")
    write_jsonl(settings.out / "prompts.jsonl", map(to_row, loaded.records))
    write_jsonl(settings.out / "completions.jsonl", map(to_row, records))
    ended = sum(record.finished for record in records) / len(records)
    say(
        settings, f"{len(records)} answers to {len(loaded.records)} prompts, {ended:.0%} ended by themselves."
    )
    if settings.pairs:
        said = [record for record in records if record.text.strip() and "\0" not in record.text]
        if len(said) < len(records):
            say(
                settings,
                f"{len(records) - len(said)} answers say nothing that could be shown and are left out of the pairs.",
            )
        pairs = pair_completions(said, pairs_per_prompt=settings.pairs, rng_seed=settings.seed)
        write_jsonl(settings.out / "comparisons.jsonl", map(to_row, pairs))
        say(settings, f"{len(pairs)} pairs to compare ({count_repeated(records)} answers repeat another).")
    return 0
