"""What a study holds to train on: the rows that `data.study_rows` names, as preferences or as demonstrations.

A preference is a demonstration of its better response. A response to a question that was corrected is no demonstration
beside its corrections.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tutelage.data.records import ALL_ROWS, Demonstration, Preference, StudyRows
from tutelage.people.labels import LabelledStudy, Row
from tutelage.people.store.catalogue import Question
from tutelage.people.store.conversations import LIVE

T = TypeVar("T", Preference, Demonstration)


@dataclass(frozen=True)
class TrainingRow(Generic[T]):
    """A record to train on, the question that it is about, and where it comes from."""

    record: T
    question: Question
    rows: StudyRows


def training_pairs(labelled: LabelledStudy, rows: Sequence[StudyRows]) -> list[TrainingRow[Preference]]:
    """The preferences of a study that come from `rows`."""
    found = [TrainingRow(row.preference, row.question, source_of(row)) for row in labelled.rows]
    for each in labelled.corrections:
        found += [TrainingRow(pair, each.question, "corrections") for _, pair in each.pairs]
    return [row for row in found if row.rows in rows]


def training_demonstrations(
    labelled: LabelledStudy, rows: Sequence[StudyRows]
) -> list[TrainingRow[Demonstration]]:
    """The demonstrations of a study that come from `rows`, with the weights of their preferences and corrections; what
    was found equal shows nothing."""
    found = [
        TrainingRow(each.demonstration, each.question, "corrections")
        for each in labelled.corrections
        if "corrections" in rows
    ]
    corrected = {row.question.key for row in found}
    for row in labelled.rows:
        shown = row.preference
        if row.question.key not in corrected and shown.p_chosen > 0.5 and source_of(row) in rows:
            better = Demonstration(shown.messages, shown.chosen, shown.weight)
            found.append(TrainingRow(better, row.question, source_of(row)))
    return found


def source_of(row: Row) -> StudyRows:
    """Where a preference that votes decided comes from."""
    return "live" if row.question.item.origin == LIVE else "votes"


def counted(found: Iterable[TrainingRow[T]]) -> str:
    """How many rows there are and where they come from, as a sum."""
    counts = Counter(row.rows for row in found)
    parts = [f"{counts[name]:,} {name}" for name in ALL_ROWS if counts[name]]
    return f"{counts.total():,} = {' + '.join(parts) or '0'}"
