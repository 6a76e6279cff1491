"""Results of an evaluation as a table, and as rows of a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tutelage.base.nouns import counted
from tutelage.data.records import prompt_id, user
from tutelage.data.transcripts import transcript_text
from tutelage.rollout.inference.completion_records import SampledBatch

LABELS = {
    "kl": "KL to the other, nats per answer",
    "length/mean": "length, tokens",
    "words/mean": "length, words",
    "turns/mean": "turns of an episode",
    "ended": "ended by themselves",
    "distinct_2": "distinct word pairs",
    "repetition": "repeated trigrams",
    "perplexity": "perplexity under the base model",
    "text_perplexity": "perplexity on the texts",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}
"""Names of figures in the table."""


@dataclass(frozen=True)
class Side:
    """Completions of one model with their measurements."""

    name: str
    answered: SampledBatch | None
    """None if only tasks are run."""
    scores: Mapping[str, list[float | None]]
    """Score of each completion by reward; None where it does not apply."""
    figures: dict[str, float]


def table(sides: Sequence[Side], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the final table: one figure each, per model."""
    rows = []
    for key in sides[-1].scores:
        counts = [side.figures[f"{key}_n"] for side in sides if f"{key}_n" in side.figures]
        note = (
            f"mean score of the {' and '.join(f'{n:,}' for n in counts)} to which it applies"
            if counts
            else "mean score"
        )
        rows.append({"name": key, "values": [side.figures[f"{key}_mean"] for side in sides], "note": note})
        win_rate = summary.get("win_rate", {}).get(key)
        if win_rate:
            low, high = win_rate["win_rate_ci"]
            note = f"{low:.3f} to {high:.3f} over {counted(win_rate['n'], 'answer')}, ties half"
            rows.append({"name": f"win rate by {key}", "values": [None, win_rate["win_rate"]], "note": note})
            even = win_rate["length_controlled"]
            note = f"{even['low']:.3f} to {even['high']:.3f}, by logistic regression on the difference in characters"
            rows.append({"name": f"win rate by {key} at equal length", "values": [None, even["value"]], "note": note})
    for key in summary.get("tasks", {}).get("figures", []):
        errors = [side.figures.get(f"{key}_error") for side in sides]
        note = ", ".join(f"± {error:.3f}" for error in errors if error is not None)
        values = [side.figures.get(key) for side in sides]
        rows.append({"name": key.replace("/", " "), "values": values, "note": note})
    for key, label in LABELS.items():
        if key in sides[-1].figures:
            rows.append({"name": label, "values": [side.figures.get(key) for side in sides], "note": ""})
    return rows


def answer_rows(sides: Sequence[Side]) -> list[dict[str, object]]:
    """Return the rows of answers.jsonl: the model's completions as `after`, the other's as `before`. `prompt` is the
    last message; if it is not the whole prompt, `prompt_id` identifies the conversation."""
    suffixes = ["before", "after"] if len(sides) == 2 else ["after"]
    answered = [side.answered for side in sides if side.answered is not None]
    rows = []
    for number, prompt in enumerate(answered[-1].prompts):
        row: dict[str, object] = {"prompt": prompt.messages[-1].content if prompt.messages else ""}
        if prompt.messages and prompt.messages != user(str(row["prompt"])):
            row["prompt_id"] = prompt_id(prompt.messages)
        for side, own, suffix in zip(sides, answered, suffixes, strict=True):
            episodes = own.rollout.transcripts
            row[suffix] = transcript_text(episodes[number], prompt.messages) if episodes else own.texts[number]
            row |= {f"{key}_{suffix}": values[number] for key, values in side.scores.items()}
            row[f"ended_{suffix}"] = bool(own.rollout.terminated[number])
        rows.append(row)
    return rows
