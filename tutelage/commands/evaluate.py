"""`tutelage evaluate`: what a model's answers are worth, alone or against another's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tutelage import config
from tutelage.config.limits import at_least
from tutelage.data.records import Messages, Prompt
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.infer.answering import Answered
    from tutelage.models.policy import Policy
    from tutelage.rewards.reward import Reward


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Measure a model's answers to prompts: scores, win rates against another model with prompt-clustered intervals,
    divergence, perplexity, ROUGE, variety and length. Writes summary.json and answers.jsonl."""

    model: config.Model
    prompts: str
    """Prompts: a file or hub data set; demonstrations bring references for ROUGE."""
    out: Path
    """Folder to write to."""
    against: str = ""
    """A second model, answering the same prompts; win rates and the divergence are against it."""
    reward: tuple[str, ...] = ()
    """What scores the answers: reward-model folders or module:function, each with an optional name= before it."""
    base: str = ""
    """A model under which the perplexity of the answers is measured."""
    names: tuple[str, str] = ("against", "model")
    """What to call the second model and the first in the tables."""
    references: str = ""
    """Demonstrations of the same prompts, with which the answers are compared by ROUGE."""
    n: int = 1
    """Answers to each prompt."""
    limit: int = 0
    """Prompts to use at most; 0 for all."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Seed of the sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        at_least(self, n=1, limit=0)


LABELS = {
    "kl": "KL to the other, nats per answer",
    "length": "length, tokens",
    "words": "length, words",
    "ended": "ended by themselves",
    "distinct_2": "distinct word pairs",
    "repetition": "repeated trigrams",
    "perplexity": "perplexity under the base model",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}


@dataclass(frozen=True)
class Side:
    """One model's answers with all that was measured of each."""

    name: str
    answered: "Answered"
    scores: Mapping[str, list[float]]
    figures: dict[str, float]


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.commands.runs import say
    from tutelage.data.formats import load_prompts
    from tutelage.data.rows import write_jsonl
    from tutelage.data.tokenizer import same_vocabulary
    from tutelage.evaluate.win_rate import scored_win_rate

    loaded = load_prompts(settings.prompts)
    say(settings, loaded.describe())
    prompts = loaded.records[: settings.limit or None]
    policy = _load(settings.model.path, settings)
    rewards = _rewards(settings, policy)
    other = _load(settings.against, settings) if settings.against else None
    base = _load(settings.base, settings) if settings.base else None
    model = _side(settings.names[1], policy, prompts, rewards, base, other, settings)
    sides = [model]
    summary: dict[str, Any] = {"prompts": len(prompts), "model": model.figures}
    if other is not None:
        if not same_vocabulary(policy.tokenizer, other.tokenizer):
            rewards = _rewards(settings, other)  # these may have to read the text, not the tokens
        against = _side(settings.names[0], other, prompts, rewards, base, None, settings)
        sides.insert(0, against)
        ids = [prompt.id for prompt in model.answered.prompts]
        summary |= {
            "against": against.figures,
            "win_rate": {
                name: scored_win_rate(model.scores[name], against.scores[name], ids) for name in rewards
            },
        }
    summary |= {"columns": [side.name for side in sides], "rows": _table(sides, summary)}
    settings.out.mkdir(parents=True, exist_ok=True)
    config.save(settings, settings.out / "config.json")
    write_jsonl(settings.out / "answers.jsonl", _answer_rows(sides))
    (settings.out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    if not settings.quiet:
        print_table(summary)
    return 0


def _load(path: str, settings: Settings) -> "Policy":
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    model = config.Model(path=path, dtype=settings.model.dtype, device=settings.model.device)
    return Policy(load_backbone(model))


def _rewards(settings: Settings, policy: "Policy") -> dict[str, "Reward"]:
    from tutelage.rewards.named import make_reward

    rewards = {}
    for given in settings.reward:
        name, equals, source = given.partition("=")
        if not equals:
            name, source = Path(given.rpartition(":")[2]).name, given
        if name in rewards:
            raise TutelageError(
                f"Two rewards are called {name!r}; put a name before each, as in gold=module:function."
            )
        rewards[name] = make_reward([source], policy, settings.model)
    return rewards


def _side(
    name: str,
    policy: "Policy",
    prompts: Sequence[Prompt],
    rewards: Mapping[str, "Reward"],
    base: "Policy | None",
    other: "Policy | None",
    settings: Settings,
) -> Side:
    """Let one model answer, and measure its answers."""
    from tutelage.evaluate.drift import perplexity, sequence_kl
    from tutelage.evaluate.text import distinct, lengths, repetition, rouge
    from tutelage.infer.answering import answer
    from tutelage.rewards.scores import scores_of

    answered = answer(policy, prompts, settings.n, settings.sampling, seed=settings.seed)
    rollout, texts = answered.rollout, list(answered.texts)
    scores = {key: scores_of(reward, answered.completions).tolist() for key, reward in rewards.items()}
    figures = {}
    for key, values in scores.items():
        mean = sum(values) / len(values)
        figures[f"{key}_mean"] = mean
        figures[f"{key}_std"] = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
    figures |= {
        "length": float(rollout.mask.sum(1).float().mean()),
        "words": lengths(texts).mean,
        "ended": float(rollout.terminated.float().mean()),
        "distinct_2": distinct(texts, 2),
        "repetition": repetition(texts),
    }
    references = _references(settings)
    known = [
        (text, references[p.messages])
        for p, text in zip(answered.prompts, texts, strict=True)
        if p.messages in references
    ]
    if known:
        figures |= rouge(*(list(column) for column in zip(*known, strict=True)))
    if other is not None and _can_tell(policy, other, settings, "divergence"):
        temperature = settings.sampling.temperature
        figures["kl"], figures["kl_error"] = sequence_kl(rollout, other, temperature=temperature)
    if base is not None and _can_tell(policy, base, settings, "perplexity"):
        figures["perplexity"] = perplexity(base, rollout)
    return Side(name, answered, scores, figures)


def _can_tell(policy: "Policy", other: "Policy", settings: Settings, what: str) -> bool:
    """Whether the figure means something; says so where not."""
    from tutelage.commands.runs import say
    from tutelage.data.tokenizer import same_vocabulary

    sampling = settings.sampling
    if not same_vocabulary(policy.tokenizer, other.tokenizer):
        say(settings, f"The {what} is left out: the two models have different vocabularies.")
        return False
    if what == "divergence" and (
        not sampling.temperature or sampling.top_k or sampling.top_p < 1 or sampling.min_p
    ):
        say(
            settings,
            "The divergence is left out: it needs answers from the whole distribution, at a temperature.",
        )
        return False
    return True


def _references(settings: Settings) -> dict[Messages, str]:
    from tutelage.data.formats import load_demonstrations

    if not settings.references:
        return {}
    return {record.messages: record.response for record in load_demonstrations(settings.references).records}


def _table(sides: Sequence[Side], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the final table: one figure each, per model."""
    rows = []
    for key in sides[-1].scores:
        rows.append(
            {"name": key, "values": [side.figures[f"{key}_mean"] for side in sides], "note": "mean score"}
        )
        found = summary.get("win_rate", {}).get(key)
        if found:
            low, high = found["win_rate_ci"]
            note = f"{low:.3f} to {high:.3f} over {found['n']} answers, ties half"
            rows.append({"name": f"win rate by {key}", "values": [None, found["win_rate"]], "note": note})
    for key, label in LABELS.items():
        if key in sides[-1].figures:
            rows.append({"name": label, "values": [side.figures.get(key) for side in sides], "note": ""})
    return rows


def _answer_rows(sides: Sequence[Side]) -> list[dict[str, object]]:
    """answers.jsonl: the model's answers as `after`, the other's as `before`."""
    suffixes = ["before", "after"] if len(sides) == 2 else ["after"]
    rows = []
    for number, prompt in enumerate(sides[-1].answered.prompts):
        row: dict[str, object] = {"prompt": prompt.messages[-1].content if prompt.messages else ""}
        for side, suffix in zip(sides, suffixes, strict=True):
            row[suffix] = side.answered.texts[number]
            row |= {f"{key}_{suffix}": values[number] for key, values in side.scores.items()}
            row[f"ended_{suffix}"] = bool(side.answered.rollout.terminated[number])
        rows.append(row)
    return rows


def print_table(summary: Mapping[str, Any]) -> None:
    """The final table on standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in summary["columns"]:
        table.add_column(name, justify="right")
    table.add_column("", style="dim")
    for row in summary["rows"]:
        table.add_row(row["name"], *("" if v is None else f"{v:.3f}" for v in row["values"]), row["note"])
    Console().print(table)
