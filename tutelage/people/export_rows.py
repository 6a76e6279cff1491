"""The lines of the files of an export, kind by kind."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tutelage.data.record_files import to_row
from tutelage.data.records import Demonstration, UnpairedAnswer
from tutelage.people.corrected import CorrectedAnswer
from tutelage.people.kinds import find_kind
from tutelage.people.labels import LabelledStudy, Row
from tutelage.people.store.catalogue import Question
from tutelage.people.store.consents import Agreement, Agreements
from tutelage.people.store.conversations import LIVE
from tutelage.people.store.raters import Rater
from tutelage.people.store.votes import Vote

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def preference_row(row: Row, study: str) -> dict[str, object]:
    """A preference as a line of preferences.jsonl."""
    chosen, rejected = row.question.completions[row.chosen], row.question.completions[row.rejected]
    return to_row(row.preference) | {
        "n_votes": sum(row.label.counts.values()),
        "votes": dict(row.label.counts),
        "strength": row.strength,
        "item_id": row.question.key,
        "chosen_id": chosen.id,
        "rejected_id": rejected.id,
        "chosen_model": chosen.sampler,
        "rejected_model": rejected.sampler,
        "split": row.question.prompt.split,
        "round": row.question.item.round,
        "study": study,
    }


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def turn_rows(rows: Iterable[Row], study: str) -> Iterator[dict[str, object]]:
    """The chosen answers of turns of live conversations, for supervised fine-tuning; turns found equal chose none."""
    for row in rows:
        if row.question.item.origin == LIVE and row.preference.p_chosen > 0.5:
            shown = Demonstration(row.preference.messages, row.preference.chosen)
            model = row.question.completions[row.chosen].sampler
            yield to_row(shown) | {
                "item_id": row.question.key,
                "model": model,
                "split": row.question.prompt.split,
                "round": row.question.item.round,
                "study": study,
            }


def bad_rows(questions: Iterable[Question]) -> Iterator[dict[str, object]]:
    for question in questions:
        for completion in question.completions:
            row = to_row(UnpairedAnswer(question.messages, completion.text, False))
            yield row | {"item_id": question.key, "completion_id": completion.id, "model": completion.sampler}


def demonstration_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    for each in labelled.corrections:
        yield to_row(each.demonstration) | _origin(each, study)


def correction_rows(labelled: LabelledStudy, study: str) -> Iterator[dict[str, object]]:
    for each in labelled.corrections:
        for index, preference in each.pairs:
            original = each.question.completions[index]
            named = {"rejected_id": original.id, "rejected_model": original.sampler}
            yield to_row(preference) | named | _origin(each, study)


def _origin(each: CorrectedAnswer, study: str) -> dict[str, object]:
    question = each.question
    return {
        "item_id": question.key,
        "judgement": each.vote.id,
        "rater": each.vote.pseudonym,
        "split": question.prompt.split,
        "round": question.item.round,
        "study": study,
    }


def marked_rows(votes: Iterable[Vote], questions: Sequence[Question]) -> Iterator[dict[str, object]]:
    """A line per span. It names the response by its id in items.jsonl and has no column with a text to learn from."""
    by_key = {question.key: question for question in questions}
    for vote in votes:
        for span in vote.spans:
            completion = by_key[vote.item].completions[span.response]
            yield {
                "item_id": vote.item,
                "completion_id": completion.id,
                "model": completion.sampler,
                "judgement": vote.id,
                "rater": vote.pseudonym,
                "category": span.category,
                "start": span.start,
                "end": span.end,
                "words": completion.text[span.start : span.end],
            }


def item_row(question: Question) -> dict[str, object]:
    return {
        "item": asdict(question.item),
        "prompt": to_row(question.prompt),
        "completions": [asdict(completion) for completion in question.completions],
    }


def consent_row(made: Agreement | None) -> dict[str, object]:
    """What the rater of a vote had agreed to: the number of the text, its hash and language as it was shown."""
    return {
        "consent": made and made.number,
        "consent_text": made.sha256 if made and made.sha256 else None,
        "consent_language": made.language if made and made.language else None,
    }


def rater_row(
    rater: Rater, labelled: LabelledStudy, agreements: Agreements, *, names: bool
) -> dict[str, object]:
    """A rater as a line of raters.jsonl, under the pseudonym; with `names` the name and what else the entry says of a
    person stand beside it."""
    row = {"rater": rater.pseudonym} | asdict(rater)
    for private in ("id", "study_id", "identity", "contact"):
        del row[private]
    if not names:
        del row["name"]
        row["detail"] = {} if rater.kind == "human" else rater.detail
    name, made = rater.name, agreements.by_rater.get(rater.name, (None,))[-1]
    shown = {key: value for key, value in consent_row(made).items() if key != "consent"}
    return row | {
        **shown,
        "reliability": labelled.labels.accuracy.get(name),
        "interval": labelled.labels.interval.get(name),
    }


_CSV = (
    "id",
    "item",
    "rater",
    "rater_kind",
    "pool",
    "verdict",
    "strength",
    "repeat",
    "extra",
    "version",
    "active_ms",
)


_CORRECTED = ("correction", "spans")
"""The better response, and the number of spans."""


def write_csv(path: Path, votes: Sequence[tuple[Vote, int | None]]) -> int:
    """Write the votes in force as a table, each with the version of the text that its rater had agreed to; returns how
    many there are."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        own = [find_kind(vote.kind).cells(vote.said) for vote, _ in votes]
        names = list(dict.fromkeys(name for cells in own for name in cells))
        writer.writerow(
            (*_CSV, "left", "flags", "reason", "excluded", "created", *_CORRECTED, "consent", *names)
        )
        for (vote, consent), found in zip(votes, own, strict=True):
            if vote.latest:
                cells = [vote.pseudonym if name == "rater" else getattr(vote, name) for name in _CSV]
                cells += [
                    "abcdef"[vote.sides[0]],
                    " ".join(vote.flags),
                    vote.reason,
                    vote.excluded,
                    vote.created,
                    vote.correction and vote.correction.text,
                    len(vote.spans),
                    consent,
                    *(found.get(name) for name in names),
                ]
                writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in cells])
                count += 1
    return count
